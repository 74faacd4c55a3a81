"""Ops that move or repeat elements by position alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import (
    Draft,
    get_int,
    get_ints,
    get_shape,
    not_key,
    plain,
    require,
    require_axes,
    require_axis,
    result_shape,
    show,
    silent,
    sums,
)
from gshard_ir.types import BOOL, DType, TensorType


def _no_keys(name: str, types: Types) -> None:
    require(name, types, not_key, "number or bool", "u32")


# ---- broadcast


def _infer_broadcast(types: Types, attrs: Attrs) -> Types:
    _no_keys("broadcast", types)
    shape, dims, x = get_shape(attrs), get_ints(attrs, "dims"), types[0]
    if len(dims) != x.rank or list(dims) != sorted(set(dims)) or not all(0 <= d < len(shape) for d in dims):
        raise OpError(
            f"broadcast of {plain(x)} to {show(shape)}: dims {show(dims)} must be {x.rank} increasing dims of the result",
            suggestion=f"dims={show(range(len(shape) - x.rank, len(shape)))}" if len(shape) >= x.rank else None,
            operand=0,
        )
    for i, d in enumerate(dims):
        if x.shape[i] != shape[d]:
            raise OpError(
                f"broadcast of {plain(x)} to {show(shape)}: dim {i} is {x.shape[i]}, dim {d} of the result is {shape[d]}",
                suggestion=f"make dim {d} of the result {x.shape[i]}",
                operand=0,
            )
    return (TensorType(x.dtype, shape),)


def _rule_broadcast(types: Types, attrs: Attrs) -> Rule:
    draft = Draft()
    result = draft.dims(get_shape(attrs))
    return draft.build((tuple(result[d] for d in get_ints(attrs, "dims")),), (result,), sums(types[0].dtype, (0,)))


@silent
def _broadcast(x: Array, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Any:
    spread = [1] * len(shape)
    for d, n in zip(dims, x.shape, strict=True):
        spread[d] = n
    return np.broadcast_to(x.reshape(spread), shape).copy()


define(
    OpDef(
        "broadcast",
        ("x",),
        attrs=("shape", "dims"),
        infer=_infer_broadcast,
        reference=_broadcast,
        rule=_rule_broadcast,
        localize=result_shape,
        family="broadcast",
        examples=(
            (("f32[4]",), {"shape": (3, 4), "dims": (1,)}),
            (("f32[]",), {"shape": (5,), "dims": ()}),
            (("i32[4,3]",), {"shape": (4, 2, 3), "dims": (0, 2)}),
        ),
        doc="Repeat along new dims: dim i of the operand is dim dims[i] of the result, of equal size.",
    )
)


# ---- reshape


def _infer_reshape(types: Types, attrs: Attrs) -> Types:
    _no_keys("reshape", types)
    shape, x = get_shape(attrs), types[0]
    if math.prod(shape) != x.size:
        raise OpError(
            f"reshape of {plain(x)} to {show(shape)}: {x.size} elements do not make {math.prod(shape)}",
            suggestion=_fitting(shape, x.size),
            operand=0,
        )
    return (TensorType(x.dtype, shape),)


def _fitting(shape: tuple[int, ...], size: int) -> str | None:
    """Suggest the shape with its last adjustable dim changed so that the element count fits."""
    for d in reversed(range(len(shape))):
        rest = math.prod(shape[:d] + shape[d + 1 :])
        if rest and size % rest == 0:
            return f"shape={show((*shape[:d], size // rest, *shape[d + 1 :]))}"
    return None


def _rule_reshape(types: Types, attrs: Attrs) -> Rule:
    x, y = types[0].shape, get_shape(attrs)
    linear = sums(types[0].dtype, (0,))
    draft = Draft()
    if x == y:
        dims = draft.dims(x)
        return draft.build((dims,), (dims,), linear)
    if 0 in x:
        sides = [tuple(draft.new(f"{p}{d}", n, "gather") for d, n in enumerate(s)) for p, s in (("d", x), ("r", y))]
        return draft.build((sides[0],), (sides[1],), linear)
    left: list[list[int]] = [[] for _ in x]
    right: list[list[int]] = [[] for _ in y]
    _walk(draft, x, y, left, right)
    for d, n in enumerate(x):
        if n == 1:
            left[d] += draft.new(f"o{d}", 1, "gather")
    for d, n in enumerate(y):
        if n == 1:
            right[d] += draft.new(f"r{d}", 1)
    return draft.build((tuple(map(tuple, left)),), (tuple(map(tuple, right)),), linear)


def _walk(draft: Draft, x: tuple[int, ...], y: tuple[int, ...], left: list[list[int]], right: list[list[int]]) -> None:
    """Match the dims of both shapes from the major side, sharing the greatest common factor at each step.

    Where what is left of two dims has no common factor (``[6,4]`` against ``[4,6]`` after a shared 2),
    the remainder up to the next point where both element counts agree cannot stay split.
    """
    i = j = 0
    rest = [x[0] if x else 1, y[0] if y else 1]
    while i < len(x) and j < len(y):
        shared = math.gcd(*rest)
        if shared > 1:
            (f,) = draft.new(f"d{len(draft.factors)}", shared)
            left[i].append(f)
            right[j].append(f)
            rest = [rest[0] // shared, rest[1] // shared]
        if 1 not in rest:
            i, j = _tangle(draft, x, y, left, right, i, j, rest)
            rest = [x[i] if i < len(x) else 1, y[j] if j < len(y) else 1]
            continue
        if rest[0] == 1:
            i += 1
            rest[0] = x[i] if i < len(x) else 1
        if rest[1] == 1:
            j += 1
            rest[1] = y[j] if j < len(y) else 1


def _tangle(
    draft: Draft,
    x: tuple[int, ...],
    y: tuple[int, ...],
    left: list[list[int]],
    right: list[list[int]],
    i: int,
    j: int,
    rest: list[int],
) -> tuple[int, int]:
    """Give each remainder a factor of its own up to where both sides hold equally many elements; return that point."""
    done = [1, 1]
    ends = [(x, left, i, "o", 0), (y, right, j, "r", 1)]
    at = [i, j]
    sizes = list(rest)
    while True:
        k = 0 if done[0] <= done[1] else 1
        if done[0] > 1 and done[0] == done[1]:
            return at[0], at[1]
        shape, side, _, prefix, _ = ends[k]
        if sizes[k] > 1:
            side[at[k]] += draft.new(f"{prefix}{at[k]}", sizes[k], "gather")
        done[k] *= sizes[k]
        at[k] += 1
        sizes[k] = shape[at[k]] if at[k] < len(shape) else 1


define(
    OpDef(
        "reshape",
        ("x",),
        attrs=("shape",),
        infer=_infer_reshape,
        reference=silent(lambda x, *, shape: np.reshape(x, shape)),
        rule=_rule_reshape,
        localize=result_shape,
        family="movement",
        examples=(
            (("f32[4,6]",), {"shape": (24,)}),
            (("f32[24]",), {"shape": (4, 6)}),
            (("f32[2,3,5]",), {"shape": (6, 5)}),
            (("f32[6,4]",), {"shape": (4, 6)}),
            (("f32[4,6]",), {"shape": (4, 1, 3, 2)}),
            (("f32[1,5]",), {"shape": (5, 1)}),
            (("i32[4,3,2]",), {"shape": (4, 2, 3)}),
        ),
        doc="The same elements in row-major order under another shape.",
    )
)


# ---- transpose and reverse


def _infer_transpose(types: Types, attrs: Attrs) -> Types:
    _no_keys("transpose", types)
    perm, x = get_ints(attrs, "perm"), types[0]
    if sorted(perm) != list(range(x.rank)):
        raise OpError(
            f"transpose of {plain(x)}: perm {show(perm)} must name each of its {x.rank} dims once",
            suggestion=f"perm={show(reversed(range(x.rank)))}",
            operand=0,
        )
    return (TensorType(x.dtype, tuple(x.shape[p] for p in perm)),)


def _rule_transpose(types: Types, attrs: Attrs) -> Rule:
    draft = Draft()
    dims = draft.dims(types[0].shape)
    return draft.build((dims,), (tuple(dims[p] for p in get_ints(attrs, "perm")),), sums(types[0].dtype, (0,)))


define(
    OpDef(
        "transpose",
        ("x",),
        attrs=("perm",),
        infer=_infer_transpose,
        reference=silent(lambda x, *, perm: np.transpose(x, perm)),
        rule=_rule_transpose,
        family="movement",
        examples=((("f32[4,6]",), {"perm": (1, 0)}), (("bool[2,3,4]",), {"perm": (2, 0, 1)})),
        doc="Reorder dims: dim i of the result is dim perm[i] of the operand.",
    )
)


def _infer_reverse(types: Types, attrs: Attrs) -> Types:
    _no_keys("reverse", types)
    require_axes("reverse", types[0], get_ints(attrs, "axes"))
    return (plain(types[0]),)


def _rule_reverse(types: Types, attrs: Attrs) -> Rule:
    draft, axes = Draft(), get_ints(attrs, "axes")
    dims = tuple(draft.new(f"d{d}", n, "gather" if d in axes else "pass") for d, n in enumerate(types[0].shape))
    return draft.build((dims,), (dims,), sums(types[0].dtype, (0,)))


define(
    OpDef(
        "reverse",
        ("x",),
        attrs=("axes",),
        infer=_infer_reverse,
        reference=silent(lambda x, *, axes: np.flip(x, axes).copy()),
        rule=_rule_reverse,
        family="movement",
        examples=((("f32[4,6]",), {"axes": (1,)}), (("i32[5]",), {"axes": (0,)})),
        doc="Turn the order of elements around along dims.",
    )
)


# ---- concat, slice, pad


def _infer_concat(types: Types, attrs: Attrs) -> Types:
    if not types:
        raise OpError("concat takes at least 1 operand, found 0")
    _no_keys("concat", types)
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
            raise OpError(
                f"concat along dim {axis} takes operands whose other dims are equal",
                note,
                suggestion=f"give operand {i + 1} the shape {show((*first.shape[:axis], *t.shape[axis : axis + 1], *first.shape[axis + 1 :]))}",
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
    _no_keys("slice", types)
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
    # A dim that the global slice takes whole keeps its size; every other dim is unsplit and its bounds hold as they are.
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
    _no_keys("pad", types)
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


def check_value(name: str, value: object, dtype: DType) -> int | float | bool:
    """Return a Python number that an element of ``dtype`` can hold; raise :class:`OpError` for any other."""
    if dtype == BOOL:
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        raise OpError(f"{name} of bool takes true or false, found {value!r}", suggestion="true")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise OpError(f"{name} of {dtype} takes a number, found {value!r}", suggestion="0")
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy())
        if not isinstance(value, int):
            edit = f"{int(value)}" if math.isfinite(value) else "0"
            raise OpError(f"{name} of {dtype} takes an integer, found {value!r}", suggestion=edit)
        if not info.min <= value <= info.max:
            edit = f"{min(max(value, int(info.min)), int(info.max))}"
            raise OpError(f"{value} does not fit {dtype}: {info.min} to {info.max}", suggestion=edit)
    return value


def _rule_pad(types: Types, attrs: Attrs) -> Rule:
    (result,) = _infer_pad(types, attrs)
    kept = tuple(a == b == 0 for a, b in zip(get_ints(attrs, "low"), get_ints(attrs, "high"), strict=True))
    return _resized(types[0], result, kept, linear=attrs["value"] == 0)


@silent
def _pad(x: Array, *, low: tuple[int, ...], high: tuple[int, ...], value: int | float | bool) -> Any:
    shape = [a + n + b for a, n, b in zip(low, x.shape, high, strict=True)]
    padded = np.full(shape, value, x.dtype)
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
