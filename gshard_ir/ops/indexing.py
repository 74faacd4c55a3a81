"""Look-up by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import Draft, get_int, highest, lowest, not_key, plain, require, require_axis, silent
from gshard_ir.types import BOOL, TensorType


def _infer(types: Types, attrs: Attrs) -> Types:
    x, indices = types
    require("take", types, not_key, "number or bool", "f32", only=(0,))
    require("take", types, lambda d: d.is_integer, "integer index", "i32", only=(1,))
    axis = require_axis("take", x, get_int(attrs, "axis"))
    if x.shape[axis] == 0 and indices.size:
        raise OpError(f"take along dim {axis} of {plain(x)}: it is empty", operand=0)
    return (TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _rule(types: Types, attrs: Attrs) -> Rule:
    draft, axis = Draft(), get_int(attrs, "axis")
    combine = "max" if types[0].dtype == BOOL else "sum"
    x = tuple(
        draft.new(f"d{d}", n, "lookup", combine) if d == axis else draft.new(f"d{d}", n)
        for d, n in enumerate(types[0].shape)
    )
    indices = draft.dims(types[1].shape, "i")
    # What stands in for a row that does not exist is NaN for floats, which sums keep; an integer stand-in would add up.
    linear = ((0,),) if types[0].dtype.is_float else ()
    return draft.build((x, indices), ((*x[:axis], *indices, *x[axis + 1 :]),), linear)


def missing(dtype: np.dtype[Any]) -> Any:
    """Return what stands in for a row that does not exist: NaN, lowest (signed), highest (unsigned), True."""
    if dtype.kind in "ub":
        return highest(dtype)
    return lowest(dtype) if dtype.kind == "i" else np.nan


@silent
def _take(x: Array, indices: Array, *, axis: int) -> Any:
    n = x.shape[axis]
    at = indices.astype(np.int64)
    at = np.where(at < 0, at + n, at)
    inside = (at >= 0) & (at < n)
    found = np.take(x, np.where(inside, at, 0), axis=axis)
    shape = (1,) * axis + indices.shape + (1,) * (x.ndim - axis - 1)
    return np.where(inside.reshape(shape), found, np.asarray(missing(x.dtype), x.dtype))


define(
    OpDef(
        "take",
        ("x", "indices"),
        attrs=("axis",),
        infer=_infer,
        reference=_take,
        rule=_rule,
        family="lookup",
        examples=(
            (("f32[6,3]", "i32[4]"), {"axis": 0}),
            (("f32[2,5]", "i32[3,2]"), {"axis": 1}),
            (("i32[5]", "u32[4]"), {"axis": 0}),
            (("bool[5,2]", "i32[]"), {"axis": 0}),
        ),
        doc="Rows of x along a dim, by index. A negative index counts from the end; one out of range gives NaN, the "
        "lowest signed or the highest unsigned integer, or True. Linear in x for floats only.",
    )
)
