"""Set-up for all tests: eight fake CPU devices for jax, and the flag that rewrites goldens."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write what was found into the golden files")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Were goldens asked to be rewritten?"""
    return bool(request.config.getoption("--update"))


@pytest.fixture(autouse=True)
def restore_jax_precision() -> Iterator[None]:
    """Undo what an emitted program with 64-bit types switches on when it is imported."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", False)
