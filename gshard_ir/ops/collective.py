"""Ops of local programs: they know the device they run on, and some talk to others.

Their meaning needs all devices at once, so it lives in the simulator, not in ``reference``. Sizes of
mesh axes are not known here: whoever builds one states its result type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from gshard_ir.errors import InternalError
from gshard_ir.ir import Attrs
from gshard_ir.opdef import OpDef, OpError, Types, define
from gshard_ir.ops.common import check_value, get_int, get_names, numeric, plain, require, require_axis
from gshard_ir.sharding import REDUCTIONS, Layout
from gshard_ir.types import BOOL, I32, KEY, TensorType

Check = Callable[[str, Types, Attrs], None]


def _one_device(name: str) -> Callable[..., NoReturn]:
    def reference(*arrays: Any, **attrs: Any) -> NoReturn:
        raise InternalError(f"{name} has no meaning on one device: run local programs in the simulator")

    return reference


def _axes(name: str, types: Types, attrs: Attrs) -> None:
    get_names(attrs)


def _reduction(name: str, types: Types, attrs: Attrs) -> None:
    if attrs["kind"] not in REDUCTIONS:
        raise OpError(f"{name} reduces by {', '.join(REDUCTIONS)}, found {attrs['kind']!r}", suggestion='kind="sum"')
    if types[0].dtype == KEY or (types[0].dtype == BOOL and attrs["kind"] not in ("max", "min")):
        raise OpError(f"{name} by {attrs['kind']} of {plain(types[0])} is not defined", operand=0)


def _dim(*names: str) -> Check:
    def check(name: str, types: Types, attrs: Attrs) -> None:
        for attr in names:
            require_axis(name, types[0], get_int(attrs, attr), attr)

    return check


def _layouts(name: str, types: Types, attrs: Attrs) -> None:
    for attr in ("source", "target"):
        layout = attrs[attr]
        if not isinstance(layout, Layout) or len(layout.dims) != types[0].rank:
            raise OpError(f"{name}: {attr} must be a layout of {types[0].rank} dims, found {layout}", operand=0)


def _padding(name: str, types: Types, attrs: Attrs) -> None:
    if get_int(attrs, "size") < 0:
        raise OpError(f"{name}: size must not be negative, found {attrs['size']}")
    check_value(name, attrs["value"], types[0].dtype)


def _zeros(name: str, types: Types, attrs: Attrs) -> None:
    require(name, types, numeric, "float or integer", "f32")


def _define(
    name: str,
    attrs: tuple[str, ...],
    checks: tuple[Check, ...],
    example: dict[str, Any],
    doc: str,
    *,
    family: str = "collective",
) -> None:
    def infer(types: Types, attributes: Attrs) -> Types:
        for check in checks:
            check(name, types, attributes)
        return (plain(types[0]),)

    define(
        OpDef(
            name,
            ("x",),
            attrs=attrs,
            infer=infer,
            reference=_one_device(name),
            family=family,
            examples=((("f32[4,6]",), example),),
            doc=doc,
        )
    )


_define(
    "all_reduce",
    ("kind", "axes"),
    (_axes, _reduction),
    {"kind": "sum", "axes": ("a",)},
    "Every device gets the reduction of all devices along axes. On bool, max is or and min is and.",
)
_define(
    "all_gather",
    ("axes", "dim"),
    (_axes, _dim("dim")),
    {"axes": ("a",), "dim": 0},
    "Every device gets the shards of a dim of all devices along axes, one after the other, major axis first.",
)
_define(
    "reduce_scatter",
    ("kind", "axes", "dim"),
    (_axes, _reduction, _dim("dim")),
    {"kind": "sum", "axes": ("a",), "dim": 0},
    "As all_reduce, of which each device keeps its own piece of a dim.",
)
_define(
    "all_to_all",
    ("axes", "split_dim", "concat_dim"),
    (_axes, _dim("split_dim", "concat_dim")),
    {"axes": ("a",), "split_dim": 0, "concat_dim": 1},
    "Each device cuts split_dim, sends a piece to each device along axes, and joins what it gets along concat_dim.",
)
_define(
    "permute",
    ("source", "target"),
    (_layouts,),
    {"source": Layout((("a",), ())), "target": Layout((("b",), ()))},
    "Each device gets the shard that the target layout gives it, from one that holds it under the source layout.",
)
_define(
    "shard_slice",
    ("axes", "dim"),
    (_axes, _dim("dim")),
    {"axes": ("a",), "dim": 0},
    "Own piece of a dim that all devices along axes hold, padded to a whole chunk. No traffic.",
    family="local",
)
_define(
    "mask_padding",
    ("dim", "axes", "size", "value"),
    (_axes, _dim("dim"), _padding),
    {"dim": 0, "axes": ("a",), "size": 7, "value": 0.0},
    "Rows whose global position along a dim split over axes is at or past size become value.",
    family="local",
)
_define(
    "mask_leader",
    ("axes",),
    (_axes, _zeros),
    {"axes": ("a",)},
    "x on the first device along axes, zeros on the others: a replicated value as a pending sum.",
    family="local",
)


def _infer_index(types: Types, attrs: Attrs) -> Types:
    get_names(attrs)
    return (TensorType(I32, ()),)


define(
    OpDef(
        "axis_index",
        (),
        attrs=("axes",),
        infer=_infer_index,
        reference=_one_device("axis_index"),
        family="local",
        examples=(((), {"axes": ("a",)}),),
        doc="The device's flat position along axes, major first, an i32 scalar.",
    )
)
