"""Identities that speak to propagation."""

from __future__ import annotations

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import OpDef, OpError, Types, define
from gshard_ir.ops.common import plain, require_same, same_dims, silent, sums
from gshard_ir.sharding import DimSharding, Sharding

DIRECTIONS = ("forward", "backward", "both")


def _infer_annotate(types: Types, attrs: Attrs) -> Types:
    sharding = attrs["sharding"]
    if not isinstance(sharding, Sharding):
        raise OpError(f"annotate takes a sharding, found {sharding!r}")
    if len(sharding.dims) != types[0].rank:
        raise OpError(
            f"a sharding of {len(sharding.dims)} dims on {plain(types[0])}, which has {types[0].rank}",
            suggestion=f"name {types[0].rank} dims",
            operand=0,
        )
    return (plain(types[0]),)


define(
    OpDef(
        "annotate",
        ("x",),
        attrs=("sharding", "how"),
        infer=_infer_annotate,
        reference=silent(lambda x, *, sharding, how: x),
        # A pin is never partial, so a pending sum must be settled before it although the op is an identity.
        rule=lambda types, attrs: same_dims(types),
        family="annotation",
        examples=((("f32[4,6]",), {"sharding": Sharding((DimSharding(),) * 2), "how": "open(x)"}),),
        doc="x itself, laid out as the user asks. A sum owed on x is settled first.",
    )
)


def _infer_like(types: Types, attrs: Attrs) -> Types:
    x, y = types
    if x.shape != y.shape:
        raise OpError(
            "like takes operands of one shape",
            f"operand 1 is {plain(x)}, operand 2 is {plain(y)}",
            suggestion="name a tensor of the same shape",
            operand=1,
        )
    return (plain(x),)


define(
    OpDef(
        "like",
        ("x", "y"),
        infer=_infer_like,
        reference=silent(lambda x, y: x),
        rule=lambda types, attrs: same_dims(types),
        family="annotation",
        examples=((("f32[4,6]", "i32[4,6]"), {}),),
        doc="x itself, laid out like y, whose elements do not matter. A sum owed on x is settled first.",
    )
)


def _infer_barrier(types: Types, attrs: Attrs) -> Types:
    if attrs["direction"] not in DIRECTIONS:
        raise OpError(
            f"a barrier stops {', '.join(DIRECTIONS[:-1])} or {DIRECTIONS[-1]}, found {attrs['direction']!r}",
            suggestion='"both"',
        )
    require_same("barrier", types)
    return (plain(types[0]),)


def _rule_barrier(types: Types, attrs: Attrs) -> Rule:
    return same_dims(types, sums(types[0].dtype, (0,)))


define(
    OpDef(
        "barrier",
        ("x",),
        attrs=("direction",),
        infer=_infer_barrier,
        reference=silent(lambda x, *, direction: x),
        rule=_rule_barrier,
        family="annotation",
        examples=((("f32[4,6]",), {"direction": "both"}),),
        doc="x itself; shardings do not propagate across in the given direction.",
    )
)
