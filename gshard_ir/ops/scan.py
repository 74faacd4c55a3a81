"""Prefix sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import Draft, get_int, in_f32, numeric, plain, require, require_axis, silent, sums


def _infer(types: Types, attrs: Attrs) -> Types:
    require("cumsum", types, numeric, "float or integer", "i32")
    require_axis("cumsum", types[0], get_int(attrs, "axis"))
    if not isinstance(attrs["reverse"], bool):
        raise OpError(f"reverse must be true or false, found {attrs['reverse']!r}", suggestion="reverse=false")
    return (plain(types[0]),)


def _rule(types: Types, attrs: Attrs) -> Rule:
    draft, axis = Draft(), get_int(attrs, "axis")
    dims = tuple(draft.new(f"d{d}", n, "scan" if d == axis else "pass") for d, n in enumerate(types[0].shape))
    return draft.build((dims,), (dims,), sums(types[0].dtype, (0,)))


@silent
@in_f32
def _cumsum(x: Array, *, axis: int, reverse: bool) -> Any:
    if reverse:
        x = np.flip(x, axis)
    total = np.cumsum(x, axis=axis, dtype=x.dtype)
    return np.flip(total, axis) if reverse else total


define(
    OpDef(
        "cumsum",
        ("x",),
        attrs=("axis", "reverse"),
        infer=_infer,
        reference=_cumsum,
        rule=_rule,
        family="reduction",
        examples=(
            (("f32[5,3]",), {"axis": 0, "reverse": False}),
            (("i32[4,6]",), {"axis": 1, "reverse": True}),
        ),
        doc="Inclusive sum of all elements up to here along a dim, or of all from here on with reverse. 16-bit "
        "floats are accumulated in f32 and rounded once; integers wrap.",
    )
)
