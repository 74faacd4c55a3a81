"""Propagation: layouts, causes back to an annotation, and clashes with both sides named."""

from __future__ import annotations

from typing import Any

import pytest

from gshard_ir.builder import Builder
from gshard_ir.errors import GShardError
from gshard_ir.ir import Function, Value
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.passes.propagate import Propagation, propagate
from gshard_ir.sharding import DimSharding, Sharding
from gshard_ir.types import F32, TensorType


def asked(*dims: str, forbid: str = "") -> Sharding:
    """``"a"`` closed, ``"a?"`` open, ``""`` says nothing, ``"_"`` closed unsplit, ``"a!1"`` of round 1."""
    made = []
    for word in dims:
        text, _, late = word.partition("!")
        axes = tuple(AxisRef(a) for a in text.strip("?_"))
        made.append(DimSharding(axes, text in ("", "?") or text.endswith("?"), int(late or 0)))
    return Sharding(tuple(made), tuple(AxisRef(a) for a in forbid))


class Case:
    """A little program under construction."""

    def __init__(self, **axes: int) -> None:
        self.mesh, self.builder = Mesh(tuple(axes), tuple(axes.values())), Builder()
        self.shardings: list[Sharding | None] = []

    def arg(self, shape: tuple[int, ...], *dims: str, forbid: str = "") -> Value:
        self.shardings.append(asked(*dims, forbid=forbid) if dims else None)
        return self.builder.param(TensorType(F32, shape), f"x{len(self.shardings)}")

    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        return self.builder(name, *operands, hint=name, **attrs)

    def pin(self, x: Value, *dims: str, forbid: str = "") -> Value:
        return self.op("annotate", x, sharding=asked(*dims, forbid=forbid), how="split(x)")

    def run(self, *results: Value) -> Propagation:
        names = tuple(f"x{i}" for i in range(len(self.shardings)))
        outs = tuple(f"r{i}" for i in range(len(results)))
        silent: tuple[Sharding | None, ...] = (None,) * len(results)
        function = Function("f", self.builder.region(*results), names, outs, tuple(self.shardings), silent)
        return propagate(function, self.mesh)


def dims(found: Propagation, value: Value) -> str:
    return "|".join("".join(d) for d in found.layouts[value].dims)


def test_forward_backward_and_sideways() -> None:
    c = Case(a=2, b=2)
    x, y, w = c.arg((8, 8), "a", "b"), c.arg((8, 8)), c.arg((8, 16))
    s = c.op("add", x, y)
    o = c.op("einsum", s, w, spec="ij,jk->ik")
    found = c.run(o)
    assert [dims(found, v) for v in (y, s, w, o)] == ["a|b", "a|b", "b|", "a|"]


def test_closed_empty_dim_stays_empty() -> None:
    c = Case(a=2, b=2)
    left, right = c.arg((8, 8), "a", ""), c.arg((8, 16), "", "b")
    o = c.pin(c.op("einsum", left, right, spec="ij,jk->ik"), "_", "?")
    assert dims(c.run(o), o) == "|b"


def test_forbidden_axis_is_not_taken() -> None:
    c = Case(a=2, b=2)
    x = c.arg((8, 8), "ab", "")
    y = c.pin(x, "?", "?", forbid="a")
    found = c.run(y)
    assert dims(found, y) == "|"
    assert any("forbidden" in clash.reason for clash in found.clashes)


def test_sizes_that_do_not_divide_propagate() -> None:
    c = Case(a=3)
    x = c.arg((2, 4), "", "a")
    y = c.op("add", x, x)
    assert dims(c.run(y), y) == "|a"


@pytest.mark.parametrize(
    ("mesh", "shape", "split", "to", "expected"),
    [
        ({"a": 2, "b": 2}, (2, 4), ("a", ""), (8,), "a"),
        ({"a": 2, "b": 2}, (8,), ("ba",), (2, 4), "b|a"),
        ({"a": 2, "b": 2}, (16,), ("ba",), (4, 4), "ba|"),
        ({"a": 2, "b": 3}, (6, 4), ("ab", ""), (24,), "ab"),
        ({"a": 2, "b": 2}, (2, 4), ("", "a"), (8,), ""),
        ({"a": 2, "b": 2, "c": 2}, (2, 3, 8), ("a", "", "b"), (2, 3, 2, 4), "a||b|"),
    ],
)
def test_reshape(mesh: dict[str, int], shape: tuple[int, ...], split: Any, to: tuple[int, ...], expected: str) -> None:
    c = Case(**mesh)
    y = c.op("reshape", c.arg(shape, *split), shape=to)
    assert dims(c.run(y), y) == expected


def test_larger_tensor_wins_a_clash_and_both_sides_are_named() -> None:
    c = Case(a=2, b=2, c=2)
    left, right = c.arg((8, 4), "ab", ""), c.arg((4, 16), "", "ac")
    o = c.op("einsum", left, right, spec="ij,jk->ik")
    found = c.run(o)
    assert dims(found, o) == "|ac"
    (clash,) = [k for k in found.clashes if k.value is o]
    assert clash.factor == "i" and clash.source == (left, 0) and "a already splits dim 1" in clash.reason


def test_passing_factor_beats_a_reduced_one() -> None:
    c = Case(a=2)
    left, right = c.arg((32, 1024)), c.arg((1024, 16), "a?", "?")
    o = c.pin(c.op("einsum", left, right, spec="ij,jk->ik"), "a?", "?")
    found = c.run(o)
    assert dims(found, left) == "a|"


@pytest.mark.parametrize(
    ("direction", "before", "after"), [("forward", "a", ""), ("backward", "", "a"), ("both", "", "")]
)
def test_barrier(direction: str, before: str, after: str) -> None:
    c = Case(a=2)
    x = c.arg((8,), "a")
    late = c.op("barrier", x, direction=direction)
    forward = c.op("neg", late)
    y = c.arg((8,))
    early = c.op("neg", y)
    c.pin(c.op("barrier", early, direction=direction), "a")
    found = c.run(forward, early)
    assert dims(found, forward) == after
    assert dims(found, early) == before


def test_rounds_decide_in_order() -> None:
    c = Case(a=2)
    x, y = c.arg((8, 8), "a!1", ""), c.arg((8, 8), "", "a")
    z = c.op("add", x, y)
    found = c.run(z)
    assert dims(found, z) == "|a" and dims(found, x) == "a|"


def test_every_axis_has_a_cause_that_ends_at_an_annotation() -> None:
    c = Case(a=2, b=2)
    x, w = c.arg((4, 8), "a", ""), c.arg((8, 6), "", "b")
    h = c.op("tanh", c.op("einsum", x, w, spec="ij,jk->ik"))
    o = c.op("transpose", h, perm=(1, 0))
    found = c.run(o)
    assert dims(found, o) == "b|a"
    for value, layout in found.layouts.items():
        for dim, axes in enumerate(layout.dims):
            for axis in axes:
                at: tuple[Value, int] | None = (value, dim)
                steps = 0
                while at is not None:
                    cause = found.causes[at[0], at[1], axis]
                    at, steps = cause.source, steps + 1
                assert cause.op is None and steps <= 4


def test_like_ties_two_layouts() -> None:
    c = Case(a=2, b=2)
    x, y = c.arg((4, 4), "a", ""), c.arg((4, 4), "", "b")
    z = c.op("like", x, y)
    found = c.run(z)
    assert dims(found, z) == dims(found, y) and dims(found, y).endswith("|b")


def test_contradictory_annotation_is_refused() -> None:
    c = Case(a=2)
    x = c.arg((4, 4), "a", "a")
    with pytest.raises(GShardError, match="twice"):
        c.run(x)


def test_same_result_for_reordered_annotations() -> None:
    def build(swap: bool) -> str:
        c = Case(a=2, b=2)
        x = c.arg((4, 4))
        pins = [("a?", "?"), ("?", "b?")]
        for p in reversed(pins) if swap else pins:
            x = c.pin(x, *p)
        y = c.op("neg", x)
        return dims(c.run(y), y)

    assert build(False) == build(True) == "a|b"
