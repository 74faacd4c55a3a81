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
    get_ints,
    get_shape,
    no_keys,
    plain,
    require_axes,
    result_shape,
    show,
    silent,
    sums,
)
from gshard_ir.types import TensorType

# ---- broadcast


def _infer_broadcast(types: Types, attrs: Attrs) -> Types:
    no_keys("broadcast", types)
    shape, dims, x = get_shape(attrs), get_ints(attrs, "dims"), types[0]
    if len(dims) != x.rank or list(dims) != sorted(set(dims)) or not all(0 <= d < len(shape) for d in dims):
        raise OpError(
            f"broadcast of {plain(x)} to {show(shape)}: dims {show(dims)} must be {x.rank} rising dims of the result",
            suggestion=f"dims={show(range(len(shape) - x.rank, len(shape)))}" if len(shape) >= x.rank else None,
            operand=0,
        )
    for i, d in enumerate(dims):
        if x.shape[i] != shape[d]:
            raise OpError(
                f"broadcast of {plain(x)}: dim {i} is {x.shape[i]}, dim {d} of the result {show(shape)} is {shape[d]}",
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
    no_keys("reshape", types)
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
    left, right = _Cursor(x, "o"), _Cursor(y, "r")
    _walk(draft, left, right)
    for side, mark in ((left, "gather"), (right, "pass")):
        for d, n in enumerate(side.shape):
            if n == 1:
                side.dims[d].extend(draft.new(f"{side.prefix}{d}", 1, mark))
    return draft.build((tuple(map(tuple, left.dims)),), (tuple(map(tuple, right.dims)),), linear)


class _Cursor:
    """A place in a shape, from the major side: dim ``at``, of which ``rest`` has no factor yet; 1 at the end."""

    def __init__(self, shape: tuple[int, ...], prefix: str) -> None:
        self.shape, self.prefix = shape, prefix
        self.dims: list[list[int]] = [[] for _ in shape]
        self.at, self.rest = -1, 1
        self.take((), 1)

    def take(self, factor: tuple[int, ...], size: int) -> None:
        """Give the next ``size`` of the dim a factor; go to the next dim of more than one row when it is used up."""
        if factor:
            self.dims[self.at].extend(factor)
        self.rest //= size
        while self.rest == 1 and self.at < len(self.shape):
            self.at += 1
            self.rest = self.shape[self.at] if self.at < len(self.shape) else 1


def _walk(draft: Draft, left: _Cursor, right: _Cursor) -> None:
    """Match the dims of two shapes, sharing the greatest common factor at each step.

    Where what is left of two dims has no common factor (``[6,4]`` against ``[4,6]`` after a shared 2),
    the remainders up to the next point where both element counts agree cannot stay split.
    """
    while left.rest > 1:
        shared = math.gcd(left.rest, right.rest)
        if shared > 1:
            factor = draft.new(f"d{len(draft.factors)}", shared)
            left.take(factor, shared)
            right.take(factor, shared)
            continue
        passed = {left: 1, right: 1}
        while passed[left] == 1 or passed[left] != passed[right]:
            side = left if passed[left] <= passed[right] else right
            passed[side] *= side.rest
            side.take(draft.new(f"{side.prefix}{side.at}", side.rest, "gather"), side.rest)


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
    no_keys("transpose", types)
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
    no_keys("reverse", types)
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
