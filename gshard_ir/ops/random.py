"""Tensors from nothing: constants, counts and random draws (threefry, bit for bit those of jax)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import (
    Draft,
    check_value,
    get_dtype,
    get_int,
    get_shape,
    is_scalar,
    only_result,
    require_axis,
    result_shape,
    show,
    silent,
)
from gshard_ir.types import F32, I32, KEY, U32, DType, TensorType

# ---- constant and iota


def _infer_constant(types: Types, attrs: Attrs) -> Types:
    dtype = get_dtype(attrs)
    if dtype == KEY:
        raise OpError("a random key cannot be a constant", suggestion="pass a key as a parameter")
    check_value("a constant", attrs["value"], dtype)
    return (TensorType(dtype, get_shape(attrs)),)


define(
    OpDef(
        "constant",
        (),
        attrs=("value", "dtype", "shape"),
        infer=_infer_constant,
        reference=silent(lambda *, value, dtype, shape: np.full(shape, np.asarray(value, dtype.numpy()))),
        rule=lambda types, attrs: only_result(get_shape(attrs)),
        localize=result_shape,
        family="source",
        examples=(((), {"value": 1.5, "dtype": F32, "shape": (4, 3)}), ((), {"value": -2, "dtype": I32, "shape": ()})),
        doc="A tensor filled with one number.",
    )
)


def _infer_iota(types: Types, attrs: Attrs) -> Types:
    dtype = get_dtype(attrs)
    if not dtype.is_numeric:
        raise OpError(f"iota counts in floats or integers, found {dtype}", suggestion="dtype=i32")
    type_ = TensorType(dtype, get_shape(attrs))
    require_axis("iota", type_, get_int(attrs, "axis"), operand=None)
    return (type_,)


@silent
def _iota(*, dtype: DType, shape: tuple[int, ...], axis: int) -> Any:
    column = np.arange(shape[axis]).astype(dtype.numpy())
    return np.broadcast_to(column.reshape([-1] + [1] * (len(shape) - axis - 1)), shape).copy()


define(
    OpDef(
        "iota",
        (),
        attrs=("dtype", "shape", "axis"),
        infer=_infer_iota,
        reference=_iota,
        rule=lambda types, attrs: only_result(get_shape(attrs)),
        localize=result_shape,
        family="source",
        examples=(((), {"dtype": I32, "shape": (4, 5), "axis": 1}), ((), {"dtype": F32, "shape": (5,), "axis": 0})),
        doc="Each element's position along a dim. A shard counts from its first global position.",
    )
)


# ---- threefry

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def threefry2x32(key: Array, hi: Array, lo: Array) -> tuple[Array, Array]:
    """Encrypt counters under a key with 20 rounds of Threefry-2x32.

    ``key`` is u32[2]; ``hi`` and ``lo`` are u32 of equal shape, the two words of each counter. Returns two u32
    arrays of that shape. A device that holds part of an index space passes the global indices it holds.
    """
    k0, k1 = np.uint32(key[0]), np.uint32(key[1])
    keys = (k0, k1, np.uint32(k0 ^ k1 ^ np.uint32(0x1BD11BDA)))
    with np.errstate(over="ignore"):
        x0, x1 = hi.astype(np.uint32) + keys[0], lo.astype(np.uint32) + keys[1]
        for block in range(5):
            for turn in _ROTATIONS[block % 2]:
                x0 = x0 + x1
                x1 = ((x1 << np.uint32(turn)) | (x1 >> np.uint32(32 - turn))) ^ x0
            x0 = x0 + keys[(block + 1) % 3]
            x1 = x1 + keys[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def draws(key: Array, starts: Sequence[int], shape: Sequence[int], whole: Sequence[int]) -> Array:
    """Draw f32 in [0, 1) at a box of positions of a tensor of shape ``whole``; positions past it are garbage."""
    index = np.zeros(tuple(shape), np.uint64)
    for d, (start, n) in enumerate(zip(starts, shape, strict=True)):
        at = (np.arange(n, dtype=np.int64) + int(start)).astype(np.uint64) * np.uint64(math.prod(whole[d + 1 :]))
        index += at.reshape([-1] + [1] * (len(shape) - d - 1))
    first, second = threefry2x32(key, (index >> np.uint64(32)).astype(np.uint32), index.astype(np.uint32))
    mantissa = np.asarray(((first ^ second) >> np.uint32(9)) | np.uint32(0x3F800000))
    return mantissa.view(np.float32) - np.float32(1)


def _infer_uniform(types: Types, attrs: Attrs) -> Types:
    is_scalar("uniform", types, 0, lambda d: d == KEY, "a key")
    return (TensorType(F32, get_shape(attrs)),)


define(
    OpDef(
        "uniform",
        ("key",),
        attrs=("shape",),
        infer=_infer_uniform,
        reference=silent(lambda key, *, shape: draws(key, (0,) * len(shape), shape, shape)),
        rule=lambda types, attrs: only_result(get_shape(attrs), ((),)),
        localize=result_shape,
        family="broadcast",
        examples=((("key",), {"shape": (4, 5)}),),
        doc="Independent draws from [0, 1), f32. Each element depends on the key and its global position alone, so "
        "a shard draws its own part.",
    )
)


def _infer_shard(types: Types, attrs: Attrs) -> Types:
    is_scalar("uniform_shard", types, 0, lambda d: d == KEY, "a key")
    shape, whole = get_shape(attrs), get_shape(attrs, "whole")
    if not len(shape) == len(whole) == len(types) - 1:
        raise OpError(
            f"uniform_shard of {show(shape)} out of {show(whole)} takes {len(whole)} offsets, found {len(types) - 1}"
        )
    for i in range(1, len(types)):
        is_scalar("uniform_shard", types, i, lambda d: d == I32, "an i32 scalar")
    return (TensorType(F32, shape),)


define(
    OpDef(
        "uniform_shard",
        ("key", "offsets*"),
        attrs=("shape", "whole"),
        infer=_infer_shard,
        reference=silent(lambda key, *offsets, shape, whole: draws(key, [int(o) for o in offsets], shape, whole)),
        family="local",
        examples=((("key", "i32[]", "i32[]"), {"shape": (2, 5), "whole": (4, 5)}),),
        doc="The part of uniform{shape=whole} that starts at the offsets, one per dim. Positions past the whole are "
        "garbage.",
    )
)


def _infer_fold_in(types: Types, attrs: Attrs) -> Types:
    is_scalar("fold_in", types, 0, lambda d: d == KEY, "a key")
    is_scalar("fold_in", types, 1, lambda d: d in (I32, U32), "an i32 or u32 scalar")
    return (TensorType(KEY, ()),)


@silent
def _fold_in(key: Array, data: Array) -> Any:
    low = np.asarray(data).astype(np.uint32)
    return np.array(threefry2x32(key, np.zeros_like(low), low), np.uint32)


define(
    OpDef(
        "fold_in",
        ("key", "data"),
        infer=_infer_fold_in,
        reference=_fold_in,
        rule=lambda types, attrs: Draft().build(((), ()), ((),)),
        examples=((("key", "i32[]"), {}),),
        doc="A new key from a key and a number.",
    )
)
