"""Small values that op tests share."""

from __future__ import annotations

import pytest

from gshard_ir.mesh import Mesh


@pytest.fixture
def mesh_of():
    return lambda **axes: Mesh(tuple(axes), tuple(axes.values()))
