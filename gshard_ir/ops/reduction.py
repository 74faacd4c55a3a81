"""Reductions over dims, and the position of the largest or smallest element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import (
    Draft,
    get_int,
    get_ints,
    highest,
    in_f32,
    lowest,
    numeric,
    plain,
    require,
    require_axes,
    require_axis,
    silent,
    sums,
)
from gshard_ir.types import BOOL, I32, TensorType


def _dropped(type_: TensorType, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(type_.shape) if d not in axes)


def _rule(type_: TensorType, axes: tuple[int, ...], mark: str, combine: str, linear: bool) -> Rule:
    draft = Draft()
    dims = tuple(
        draft.new(f"d{d}", n, *((mark, combine) if d in axes else ("pass",))) for d, n in enumerate(type_.shape)
    )
    kept = tuple(f for d, f in enumerate(dims) if d not in axes)
    return draft.build((dims,), (kept,), sums(type_.dtype, (0,)) if linear else ())


def _define(name: str, combine: str, meaning: Callable[..., Any], doc: str, *, logical: bool = False) -> None:
    def infer(types: Types, attrs: Attrs) -> Types:
        axes = get_ints(attrs, "axes")
        if logical:
            require(name, types, lambda d: d == BOOL, "bool", "bool")
        else:
            require(name, types, numeric, "float or integer", "i32")
        require_axes(name, types[0], axes)
        return (TensorType(types[0].dtype, _dropped(types[0], axes)),)

    def rule(types: Types, attrs: Attrs) -> Rule:
        axes = get_ints(attrs, "axes")
        linear = combine == "sum" or all(types[0].shape[d] == 1 for d in axes)
        return _rule(types[0], axes, "reduce", combine, linear)

    dtypes = ("bool",) if logical else ("f32", "i32")
    examples: list[tuple[tuple[str, ...], dict[str, Any]]] = [((f"{d}[4,6]",), {"axes": (1,)}) for d in dtypes]
    examples += [((f"{d}[3,2,5]",), {"axes": (0, 2)}) for d in dtypes]
    define(
        OpDef(
            name,
            ("x",),
            attrs=("axes",),
            infer=infer,
            reference=silent(meaning),
            rule=rule,
            family="reduction",
            examples=tuple(examples),
            doc=doc,
        )
    )


_define(
    "reduce_sum",
    "sum",
    in_f32(lambda x, *, axes: np.sum(x, axis=axes, dtype=x.dtype)),
    "Sum over dims, which are dropped. 16-bit floats are accumulated in f32 and rounded once; integers wrap.",
)
_define(
    "reduce_prod",
    "prod",
    in_f32(lambda x, *, axes: np.prod(x, axis=axes, dtype=x.dtype)),
    "Product over dims, which are dropped. 16-bit floats are accumulated in f32; integers wrap.",
)
_define(
    "reduce_max",
    "max",
    in_f32(lambda x, *, axes: np.max(x, axis=axes, initial=lowest(x.dtype))),
    "Largest over dims, which are dropped; NaN if any is. Over nothing: the lowest value.",
)
_define(
    "reduce_min",
    "min",
    in_f32(lambda x, *, axes: np.min(x, axis=axes, initial=highest(x.dtype))),
    "Smallest over dims, which are dropped; NaN if any is. Over nothing: the highest value.",
)
_define("reduce_and", "min", lambda x, *, axes: np.all(x, axis=axes), "Do all hold, over dims.", logical=True)
_define("reduce_or", "max", lambda x, *, axes: np.any(x, axis=axes), "Does any hold, over dims.", logical=True)


def _define_select(name: str, meaning: Callable[..., Any], doc: str) -> None:
    def infer(types: Types, attrs: Attrs) -> Types:
        axis = get_int(attrs, "axis")
        require(name, types, numeric, "float or integer", "i32")
        require_axis(name, types[0], axis)
        if types[0].shape[axis] == 0:
            raise OpError(f"{name} along dim {axis} of {plain(types[0])}: it is empty", operand=0)
        return (TensorType(I32, _dropped(types[0], (axis,))),)

    @silent
    def reference(x: Array, *, axis: int) -> Any:
        return meaning(x.astype(np.float32) if x.dtype.itemsize == 2 else x, axis=axis).astype(np.int32)

    define(
        OpDef(
            name,
            ("x",),
            attrs=("axis",),
            infer=infer,
            reference=reference,
            rule=lambda types, attrs: _rule(types[0], (get_int(attrs, "axis"),), "select", "", linear=False),
            family="reduction",
            examples=((("f32[4,6]",), {"axis": 1}), (("i32[5,3]",), {"axis": 0})),
            doc=doc,
        )
    )


_define_select(
    "argmax", np.argmax, "Position (i32) of the largest along a dim: the first NaN, else the lowest on ties."
)
_define_select(
    "argmin", np.argmin, "Position (i32) of the smallest along a dim: the first NaN, else the lowest on ties."
)
