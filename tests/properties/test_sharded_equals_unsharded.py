"""Invariant 1: sharded equals unsharded, for random programs, meshes, annotations and uneven sizes."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from properties.checks import Seeded, check
from properties.programs import MAKERS, State, generate

EXAMPLES = int(os.environ.get("GSHARD_PROGRAMS", "1500"))


class Drawn:
    """A chooser whose decisions hypothesis makes and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def below(self, n: int) -> int:
        return self.data.draw(st.integers(0, n - 1)) if n > 1 else 0


quick = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@quick
@given(st.integers(0, 2**40))
def test_seeded_programs(seed: int) -> None:
    check(generate(Seeded(seed)), search=seed % 4 != 0, launch_bytes=0 if seed % 3 == 0 else 16384)


@settings(quick, max_examples=max(1, EXAMPLES // 10))
@given(st.data())
def test_drawn_programs(data: st.DataObject) -> None:
    check(generate(Drawn(data), most=5))


def test_every_op_is_generated() -> None:
    from gshard_ir.opdef import REGISTRY

    used: set[str] = set()
    for seed in range(400):
        used |= {op.name for op in generate(Seeded(seed)).module.main.body.ops}
    globals_ = {name for name, op in REGISTRY.items() if op.rule is not None}
    assert globals_ - used == set(), "ops that random programs never use"
    assert len(MAKERS) > 20 and State is not None
