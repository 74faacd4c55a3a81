"""Invariant 1: sharded equals unsharded, for random programs, meshes, annotations and uneven sizes."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from properties.checks import Seeded, check, check_any_plan, check_on_jax
from properties.programs import generate

from gshard_ir.opdef import REGISTRY

SCALE = int(os.environ.get("GSHARD_SWEEP", "1"))
PARTS = 10
SIMULATED, ANY_PLAN, ON_JAX = 90 * SCALE, 40 * SCALE, 10 * min(SCALE, 10)


class Drawn:
    """A chooser whose decisions hypothesis makes and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data

    def below(self, n: int) -> int:
        return self.data.draw(st.integers(0, n - 1)) if n > 1 else 0


quick = settings(
    deadline=None, derandomize=True, database=None, print_blob=False, suppress_health_check=list(HealthCheck)
)


@settings(quick, max_examples=250 * min(SCALE, 4))
@given(st.data())
def test_programs_that_shrink(data: st.DataObject) -> None:
    check(generate(Drawn(data), most=6))


@pytest.mark.parametrize("part", range(PARTS))
def test_seeded_programs_on_the_simulator(part: int) -> None:
    for i in range(SIMULATED):
        seed = part * SIMULATED + i
        try:
            check(generate(Seeded(seed)), search=seed % 4 != 0, launch_bytes=0 if seed % 3 == 0 else 16384)
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


@pytest.mark.parametrize("part", range(PARTS))
def test_seeded_programs_under_any_plan(part: int) -> None:
    for i in range(ANY_PLAN):
        seed = part * ANY_PLAN + i
        choose = Seeded(seed)
        program = generate(choose)
        try:
            check_any_plan(program, choose)
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


@pytest.mark.parametrize("part", range(PARTS))
def test_seeded_programs_on_jax(part: int) -> None:
    for i in range(ON_JAX):
        seed = part * ON_JAX + i
        try:
            check_on_jax(generate(Seeded(seed), exact_only=True), search=seed % 4 != 0)
        except Exception as failure:
            raise AssertionError(f"seed {seed}: {failure}") from failure


def test_every_op_is_generated() -> None:
    used: set[str] = set()
    for seed in range(1200):
        used |= {op.name for op in generate(Seeded(seed)).module.main.body.ops}
    whole = {name for name, op in REGISTRY.items() if op.rule is not None}
    assert whole - used == set(), "ops that random programs never use"
