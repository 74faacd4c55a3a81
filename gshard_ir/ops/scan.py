"""Scans: at each position of a dim, the reduction of what comes up to there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import (
    Draft,
    float_only,
    get_int,
    highest,
    in_f32,
    lowest,
    numeric,
    plain,
    require,
    require_axis,
    silent,
    sums,
)
from gshard_ir.types import DType

SCANS = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min", "cumlogsumexp": "logsumexp"}
"""Op to how it combines elements."""


def nothing(combine: str, dtype: np.dtype[Any]) -> Any:
    """Return the scan of no elements."""
    if combine in ("max", "min"):
        return (lowest if combine == "max" else highest)(dtype)
    return {"sum": 0, "prod": 1, "logsumexp": -math.inf}[combine]


def number_for_nothing(combine: str, dtype: DType) -> int | float:
    """Return the scan of no elements as a Python number of the type's kind."""
    found = nothing(combine, dtype.numpy())
    return float(found) if dtype.is_float else int(found)


def _define(name: str, function: np.ufunc, doc: str) -> None:
    combine = SCANS[name]

    def infer(types: Types, attrs: Attrs) -> Types:
        if combine == "logsumexp":
            require(name, types, float_only, "float", "f32")
        require(name, types, numeric, "float or integer", "i32")
        require_axis(name, types[0], get_int(attrs, "axis"))
        for flag in ("reverse", "exclusive"):
            if not isinstance(attrs[flag], bool):
                raise OpError(f"{flag} must be true or false, found {attrs[flag]!r}", suggestion=f"{flag}=false")
        return (plain(types[0]),)

    def rule(types: Types, attrs: Attrs) -> Rule:
        draft, axis, shape = Draft(), get_int(attrs, "axis"), types[0].shape
        dims = tuple(draft.new(f"d{d}", n, *(("scan", combine) if d == axis else ())) for d, n in enumerate(shape))
        same = shape[axis] <= 1 and not attrs["exclusive"]
        return draft.build((dims,), (dims,), sums(types[0].dtype, (0,)) if combine == "sum" or same else ())

    @silent
    @in_f32
    def reference(x: Array, *, axis: int, reverse: bool, exclusive: bool) -> Any:
        x = np.moveaxis(x, axis, 0)
        rows = x[::-1] if reverse else x
        found = function.accumulate(rows, axis=0, dtype=x.dtype)
        if exclusive:
            before = np.full_like(found, nothing(combine, x.dtype))
            before[1:] = found[:-1]
            found = before
        return np.moveaxis(found[::-1] if reverse else found, 0, axis)

    second = "f32" if combine == "logsumexp" else "i32"
    define(
        OpDef(
            name,
            ("x",),
            attrs=("axis", "reverse", "exclusive"),
            infer=infer,
            reference=reference,
            rule=rule,
            family="reduction",
            examples=(
                (("f32[5,3]",), {"axis": 0, "reverse": False, "exclusive": False}),
                ((f"{second}[4,6]",), {"axis": 1, "reverse": True, "exclusive": False}),
                (("f32[7]",), {"axis": 0, "reverse": False, "exclusive": True}),
                ((f"{second}[3,5]",), {"axis": 1, "reverse": True, "exclusive": True}),
            ),
            doc=f"{doc} of all elements up to here along a dim, or of all from here on with reverse; exclusive leaves "
            "out the element itself. 16-bit floats are accumulated in f32 and rounded once; integers wrap.",
        )
    )


_define("cumsum", np.add, "Sum")
_define("cumprod", np.multiply, "Product")
_define("cummax", np.maximum, "Largest, NaN if any is,")
_define("cummin", np.minimum, "Smallest, NaN if any is,")
_define("cumlogsumexp", np.logaddexp, "log of the sum of exp")
