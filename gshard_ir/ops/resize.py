"""Ops that keep the order of elements but change how many there are: concat, slice and pad."""

from __future__ import annotations

from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import (
    Draft,
    check_value,
    get_int,
    get_ints,
    no_keys,
    plain,
    require_axis,
    show,
    silent,
    sums,
)
from gshard_ir.types import TensorType

# ---- concat


def _infer_concat(types: Types, attrs: Attrs) -> Types:
    if not types:
        raise OpError("concat takes at least 1 operand, found 0")
    no_keys("concat", types)
    axis = require_axis("concat", types[0], get_int(attrs, "axis"))
    first = types[0]
    for i, t in enumerate(types):
        note = f"operand 1 is {plain(first)}, operand {i + 1} is {plain(t)}"
        if t.dtype != first.dtype:
            edit = f"cast operand {i + 1} to {first.dtype}"
            raise OpError("concat takes operands of one element type", note, suggestion=edit, operand=i)
        if t.rank != first.rank or any(
            a != b and d != axis for d, (a, b) in enumerate(zip(t.shape, first.shape, strict=False))
        ):
            wanted = (*first.shape[:axis], *t.shape[axis : axis + 1], *first.shape[axis + 1 :])
            raise OpError(
                f"concat along dim {axis} takes operands whose other dims are equal",
                note,
                suggestion=f"give operand {i + 1} the shape {show(wanted)}",
                operand=i,
            )
    total = sum(t.shape[axis] for t in types)
    return (TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _rule_concat(types: Types, attrs: Attrs) -> Rule:
    draft, axis = Draft(), get_int(attrs, "axis")
    shared = {d: draft.new(f"d{d}", n) for d, n in enumerate(types[0].shape) if d != axis}
    operands = []
    for i, t in enumerate(types):
        own = draft.new(f"o{i}", t.shape[axis], "gather")
        operands.append(tuple(shared.get(d, own) for d in range(t.rank)))
    whole = draft.new(f"r{axis}", sum(t.shape[axis] for t in types), "gather")
    result = tuple(shared.get(d, whole) for d in range(types[0].rank))
    return draft.build(operands, (result,), sums(types[0].dtype, range(len(types))))


define(
    OpDef(
        "concat",
        ("operands*",),
        attrs=("axis",),
        infer=_infer_concat,
        reference=silent(lambda *arrays, axis: np.concatenate(arrays, axis)),
        rule=_rule_concat,
        family="movement",
        examples=((("f32[4,6]", "f32[4,3]"), {"axis": 1}), (("i32[2]", "i32[2]", "i32[3]"), {"axis": 0})),
        doc="Put tensors one after the other along a dim.",
    )
)


def _infer_slice(types: Types, attrs: Attrs) -> Types:
    no_keys("slice", types)
    x = types[0]
    starts, limits, strides = (get_ints(attrs, a) for a in ("starts", "limits", "strides"))
    for name, values in (("starts", starts), ("limits", limits), ("strides", strides)):
        if len(values) != x.rank:
            raise OpError(f"slice of {plain(x)}: {name} has {len(values)} numbers for {x.rank} dims", operand=0)
    shape = []
    for d, (a, b, s) in enumerate(zip(starts, limits, strides, strict=True)):
        if not 0 <= a <= b <= x.shape[d]:
            raise OpError(
                f"slice {a}:{b} of dim {d} of {plain(x)}, which has {x.shape[d]} rows",
                suggestion=f"{min(max(a, 0), x.shape[d])}:{max(min(b, x.shape[d]), min(max(a, 0), x.shape[d]))}",
                operand=0,
            )
        if s < 1:
            raise OpError(f"slice stride {s} in dim {d} must be positive", suggestion="reverse the dim", operand=0)
        shape.append(-(-(b - a) // s))
    return (TensorType(x.dtype, tuple(shape)),)


def _taken_whole(attrs: Attrs, shape: tuple[int, ...]) -> tuple[bool, ...]:
    bounds = zip(*(get_ints(attrs, a) for a in ("starts", "limits", "strides")), shape, strict=True)
    return tuple(start == 0 and stride == 1 and limit == n for start, limit, stride, n in bounds)


def _rule_slice(types: Types, attrs: Attrs) -> Rule:
    (result,) = _infer_slice(types, attrs)
    return _resized(types[0], result, _taken_whole(attrs, types[0].shape), linear=True)


def _resized(x: TensorType, y: TensorType, kept: tuple[bool, ...], *, linear: bool) -> Rule:
    """Return the rule of an op that changes some dims and leaves others alone."""
    draft = Draft()
    left, right = [], []
    for d, same in enumerate(kept):
        left.append(draft.new(f"d{d}" if same else f"o{d}", x.shape[d], "pass" if same else "gather"))
        right.append(left[-1] if same else draft.new(f"r{d}", y.shape[d], "gather"))
    return draft.build((tuple(left),), (tuple(right),), sums(x.dtype, (0,)) if linear else ())


def _localize_slice(attrs: Attrs, operands: Types, results: Types) -> Attrs:
    # A dim that the global slice takes whole keeps its size; every other dim is unsplit, and its bounds hold.
    starts, limits, strides = (get_ints(attrs, a) for a in ("starts", "limits", "strides"))
    local = tuple(
        n if start == 0 and stride == 1 and n == m else limit
        for start, limit, stride, n, m in zip(starts, limits, strides, operands[0].shape, results[0].shape, strict=True)
    )
    return {**attrs, "limits": local}


@silent
def _slice(x: Array, *, starts: tuple[int, ...], limits: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    return x[tuple(slice(a, b, s) for a, b, s in zip(starts, limits, strides, strict=True))].copy()


define(
    OpDef(
        "slice",
        ("x",),
        attrs=("starts", "limits", "strides"),
        infer=_infer_slice,
        reference=_slice,
        rule=_rule_slice,
        localize=_localize_slice,
        family="movement",
        examples=(
            (("f32[6,5]",), {"starts": (1, 0), "limits": (5, 5), "strides": (1, 1)}),
            (("i32[6,4]",), {"starts": (0, 0), "limits": (6, 4), "strides": (2, 1)}),
        ),
        doc="Rows start, start + stride, .. below limit of every dim. A dim that is taken whole may stay split.",
    )
)


def _infer_pad(types: Types, attrs: Attrs) -> Types:
    no_keys("pad", types)
    x, value = types[0], attrs["value"]
    low, high = get_ints(attrs, "low"), get_ints(attrs, "high")
    for name, counts in (("low", low), ("high", high)):
        if len(counts) != x.rank:
            raise OpError(f"pad of {plain(x)}: {name} has {len(counts)} numbers for {x.rank} dims", operand=0)
        if any(n < 0 for n in counts):
            raise OpError(
                f"pad counts must not be negative, {name} is {show(counts)}",
                suggestion="slice to remove rows",
                operand=0,
            )
    check_value("pad", value, x.dtype)
    return (TensorType(x.dtype, tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True))),)


def _rule_pad(types: Types, attrs: Attrs) -> Rule:
    (result,) = _infer_pad(types, attrs)
    kept = tuple(a == b == 0 for a, b in zip(get_ints(attrs, "low"), get_ints(attrs, "high"), strict=True))
    return _resized(types[0], result, kept, linear=attrs["value"] == 0)


@silent
def _pad(x: Array, *, low: tuple[int, ...], high: tuple[int, ...], value: int | float | bool) -> Any:
    shape = [a + n + b for a, n, b in zip(low, x.shape, high, strict=True)]
    padded = np.full(shape, np.asarray(value, x.dtype))
    padded[tuple(slice(a, a + n) for a, n in zip(low, x.shape, strict=True))] = x
    return padded


define(
    OpDef(
        "pad",
        ("x",),
        attrs=("low", "high", "value"),
        infer=_infer_pad,
        reference=_pad,
        rule=_rule_pad,
        family="movement",
        examples=(
            (("f32[4,6]",), {"low": (0, 1), "high": (0, 2), "value": 0.0}),
            (("i32[5]",), {"low": (1,), "high": (0,), "value": 3}),
        ),
        doc="Add rows of one value before and after along dims. Linear when the value is 0.",
    )
)
