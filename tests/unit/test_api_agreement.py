"""Verification finds planted faults and names the op; rounding is no fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gshard_ir as gs
from gshard_ir import data
from gshard_ir.agreement import TOLERANCE, difference, first_parting, verify
from gshard_ir.ir import Op, Region

SOURCE = """\
mesh(x=2, y=2)

def main(a: f32[7@x, 6@y], b: f32[6@y, 5]) -> (f32[7, 5], f32[6]):
    c = exp(a @ b)
    total = sum(a, axis=0)
    wide = sum(c, axis=0, keepdims=True)
    scaled = c / wide
    return scaled, total
"""

# Scales a rounding error up by ten million: no op is wrong, the outputs differ.
STEEP = """\
mesh(x=4)

def main(a: f32[1000@x, 8]) -> f32[8]:
    total = sum(a, axis=0)
    return sin(total * 1.0e7)
"""


def arguments(program: gs.Program) -> list[Any]:
    return list(data.seeded(program.lowered.main, 0).values())


def damaged(source: str, change: Callable[[Op], Op | None]) -> gs.Program:
    """Compile and change, or drop (None), ops of the local program."""
    program = gs.compile(source)
    compiled, local = program.compiled, program.local
    ops, renamed, origin = [], {}, dict(compiled.partitioned.origin)
    changes = 0
    for op in local.main.body.ops:
        op = replace(op, operands=tuple(renamed.get(v, v) for v in op.operands))
        new = change(op)
        changes += new is not op
        if new is None:
            renamed[op.result] = op.operands[0]
        else:
            ops.append(new)
    body = local.main.body
    results = tuple(renamed.get(v, v) for v in body.results)
    module = local.with_main(local.main.with_body(Region(body.params, tuple(ops), results)))
    assert changes
    partitioned = replace(compiled.partitioned, module=module, origin=origin)
    program.__dict__["compiled"] = replace(compiled, partitioned=partitioned)
    return program


def test_a_right_program_agrees_and_parts_nowhere() -> None:
    program = gs.compile(SOURCE)
    verdict = verify(program, arguments(program))
    assert verdict.agrees
    assert [(d.against, d.output) for d in verdict.differences] == [
        ("simulator", "scaled"),
        ("simulator", "total"),
        ("jax", "scaled"),
        ("jax", "total"),
    ]
    assert verdict.partings == ()
    assert first_parting(program, arguments(program)) is None


def test_a_missing_mask_is_found_where_padding_enters() -> None:
    program = damaged(SOURCE, lambda op: None if op.name == "mask_padding" else op)
    verdict = verify(program, arguments(program), jax=False)
    assert not verdict.agrees
    (parting,) = verdict.partings
    assert parting.op in ("reduce_sum", "all_reduce")
    assert parting.place == "<string>:5", "the first of the two sums over the uneven dim"


def test_a_wrong_reduction_is_found_at_the_collective() -> None:
    def change(op: Op) -> Op:
        return replace(op, attrs={**op.attrs, "kind": "max"}) if op.name == "all_reduce" and op.span.line == 4 else op

    program = damaged(SOURCE, change)
    verdict = verify(program, arguments(program), jax=False)
    (parting,) = verdict.partings
    assert (parting.op, parting.place) == ("all_reduce", "<string>:4")
    assert parting.error > 0.01
    assert str(parting).startswith("simulator parts at (einsum), all_reduce (<string>:4): largest error")


def test_a_wrong_op_far_down_is_not_blamed_on_what_follows() -> None:
    def change(op: Op) -> Op:
        return replace(op, name="mul") if op.name == "div" else op

    program = damaged(SOURCE, change)
    (parting,) = verify(program, arguments(program), jax=False).partings
    assert (parting.op, parting.value, parting.place) == ("mul", "scaled", "<string>:7")


def test_a_fault_of_the_emitter_is_found_in_jax_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from gshard_ir.backends import jax_shard_map

    true = jax_shard_map.emit
    monkeypatch.setattr(jax_shard_map, "emit", lambda *a, **k: true(*a, **k).replace("jnp.exp(", "jnp.expm1("))
    program = gs.compile(SOURCE)
    verdict = verify(program, arguments(program))
    assert {d.against for d in verdict.differences if not d.agrees} == {"jax"}
    (parting,) = verdict.partings
    assert (parting.against, parting.op, parting.value) == ("jax", "exp", "c")


def test_rounding_that_a_steep_function_blows_up_is_no_ops_fault() -> None:
    program = gs.compile(STEEP)
    verdict = verify(program, arguments(program), jax=False)
    assert not verdict.agrees
    assert verdict.partings == ()


def test_devices_that_disagree_are_reported() -> None:
    # Replicas of the result differ when the reduction is left out.
    program = damaged(STEEP, lambda op: None if op.name == "all_reduce" else op)
    verdict = verify(program, arguments(program), jax=False)
    assert not verdict.agrees
    (parting,) = verdict.partings
    assert parting.op == "mul" or "replicas" in parting.note, parting


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_errors_are_counted_in_units_of_the_last_place(dtype: str) -> None:
    expected = np.array([4.0, 0.5, np.nan, np.inf], dtype)
    assert difference("jax", "r", "", expected, expected.copy()).ulps == 0
    found = expected.copy()
    found[0] = np.nextafter(found[0], np.asarray(9, dtype))
    off = difference("jax", "r", "", expected, found)
    assert off.ulps == 1
    assert off.error == np.spacing(expected[0])
    assert off.agrees
    found[0] = expected[0] + 2 * TOLERANCE[expected.dtype.name] * np.spacing(expected[0])
    assert not difference("jax", "r", "", expected, found).agrees


@pytest.mark.parametrize("wrong", [[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0]])
def test_a_number_and_no_number_never_agree(wrong: list[float]) -> None:
    expected, found = np.array([1.0, 1.0], "f4"), np.array(wrong, "f4")
    for a, b in ((expected, found), (found, expected)):
        assert not difference("jax", "r", "", a, b).agrees
        assert difference("jax", "r", "", a, b).as_json()["error"] is None


def test_integers_and_booleans_must_be_equal() -> None:
    high = np.array([2**63 - 1, 0], np.int64)
    assert difference("jax", "r", "", high, high.copy()).agrees
    off = difference("jax", "r", "", high, high - 1)
    assert (off.error, off.agrees) == (1.0, False)
    assert not difference("jax", "r", "", np.array([True]), np.array([False])).agrees
    assert not difference("jax", "r", "", np.zeros(2, "i4"), np.zeros(2, "i8")).agrees
    assert not difference("jax", "r", "", np.zeros(2, "i4"), np.zeros(3, "i4")).agrees
