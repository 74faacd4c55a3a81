"""Annotations in expressions: split, replicate, shard, like, barrier. Each becomes an op or an error, never nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gshard_ir.errors import fail
from gshard_ir.frontend import ast
from gshard_ir.frontend.lower_arguments import bind_arguments
from gshard_ir.frontend.lower_axes import (
    Placed,
    axes_of_size,
    device_order,
    in_order,
    make_sharding,
    mesh_order,
    resolve_axis,
)
from gshard_ir.frontend.lower_consts import whole
from gshard_ir.frontend.lower_emit import show
from gshard_ir.frontend.lower_values import Item, StructValue, describe, nearest, text_of
from gshard_ir.ir import Value
from gshard_ir.mesh import AxisRef
from gshard_ir.sharding import DimSharding, Sharding
from gshard_ir.source import Span
from gshard_ir.types import KEY

if TYPE_CHECKING:
    from gshard_ir.frontend.lower_exprs import Evaluator

DIRECTIONS = ("forward", "backward", "both")


def _arguments(node: ast.Call, name: str, names: Sequence[str], required: int) -> dict[str, ast.Expr]:
    """Match the unevaluated arguments of an annotation with its parameters."""
    keywords = {k.name: (k.value, k.span) for k in node.keywords}
    found = bind_arguments(name, names, [(a, a.span) for a in node.args], keywords)
    for missing in names[:required]:
        if missing not in found:
            raise fail(f"{name} needs {missing}", node.span, f"{name}({', '.join(names)})")
    return {k: v for k, (v, _) in found.items()}


def _tensor(ev: Evaluator, node: ast.Expr, name: str) -> Value:
    item = ev.eval(node)
    if isinstance(item, StructValue):
        raise fail(
            f"{name} annotates one tensor, found {describe(item)}",
            node.span,
            suggestion=f"{text_of(node.span)}.{next(iter(item.fields), 'field')}",
        )
    if not isinstance(item, Value):
        edit = f"{text_of(node.span)} alone: a number is on every device" if isinstance(item, int | float) else None
        raise fail(f"{name} annotates a tensor, found {describe(item)}", node.span, suggestion=edit)
    if item.dtype == KEY:
        raise fail(
            "a random key is on every device; it takes no annotation",
            node.span,
            suggestion=f"{text_of(node.span)} without {name}",
        )
    return item


def _annotate(ev: Evaluator, x: Value, sharding: Sharding, node: ast.Call) -> Value:
    return ev.emit.op(
        "annotate", x, span=node.span, where=(node.args[0].span,), sharding=sharding, how=text_of(node.span)
    )


def _axes(ev: Evaluator, node: ast.Expr, how: str) -> list[Placed]:
    """Return the axes that one argument names: an axis, a piece, a tuple of them, or a size."""
    if isinstance(node, ast.Tuple | ast.ListExpr):
        return [p for item in node.items for p in _axes(ev, item, how)]
    if isinstance(node, ast.AxisExpr):
        return [(resolve_axis(ev.mesh, node.name, node.span, node.pre, node.size), node.span)]
    item: Item = None
    if isinstance(node, ast.Placeholder) or (isinstance(node, ast.Name) and node.id == "_"):
        raise fail(f"{how}: name a mesh axis here", node.span, suggestion="shard(x, [..]) to pin every dim at once")
    if isinstance(node, ast.Name):
        known = ev.lookup(node.id)
        if not isinstance(known, AxisRef | str | tuple) and (node.id in ev.mesh.names or not isinstance(known, int)):
            return [(resolve_axis(ev.mesh, node.id, node.span), node.span)]
        item = known
    else:
        item = ev.eval(node)
    return _axes_of(ev, item, node.span, how)


def _axes_of(ev: Evaluator, item: Item, span: Span, how: str) -> list[Placed]:
    if isinstance(item, tuple):
        return [p for part in item for p in _axes_of(ev, part, span, how)]
    if isinstance(item, AxisRef):
        return [(resolve_axis(ev.mesh, item.name, span, item.pre, item.size), span)]
    if isinstance(item, str):
        return [(resolve_axis(ev.mesh, item, span), span)]
    if isinstance(item, int) and not isinstance(item, bool):
        if item < 1:
            edit = " or ".join(ev.mesh.names[:4]) or "1"
            raise fail(f"{how}: a dim is split into 1 piece or more, found {item}", span, suggestion=edit)
        return [(ref, span) for ref in axes_of_size(ev.mesh, item, span, how)]
    raise fail(f"{how}: expected a mesh axis, found {describe(item)}", span)


def _dim(item: Item, x: Value, span: Span, how: str) -> int:
    dim = whole(item, f"the dim of {how}", span)
    if not -x.type.rank <= dim < x.type.rank:
        edit = f"{x.type.rank - 1}" if x.type.rank else f"no {how}: a scalar is on every device"
        raise fail(
            f"{how}: there is no dim {dim} in {x.type}",
            span,
            f"dims are 0 to {x.type.rank - 1}" if x.type.rank else "a scalar has no dims",
            suggestion=edit,
        )
    return dim % x.type.rank


def _split(ev: Evaluator, node: ast.Call) -> Item:
    if node.keywords or len(node.args) < 3:
        at = node.keywords[0].span if node.keywords else node.span
        raise fail("split takes a tensor, a dim and one axis or more", at, suggestion="split(x, 0, data)")
    x = _tensor(ev, node.args[0], "split")
    dim = _dim(ev.eval(node.args[1]), x, node.args[1].span, "split")
    placed = [p for arg in node.args[2:] for p in _axes(ev, arg, "split")]
    dims = [DimSharding()] * x.type.rank
    dims[dim] = DimSharding(tuple(ref for ref, _ in placed), open=False)
    return _annotate(ev, x, make_sharding(dims, placed, mesh=ev.mesh), node)


def _replicate(ev: Evaluator, node: ast.Call) -> Item:
    args = _arguments(node, "replicate", ("x",), 1)
    x = _tensor(ev, args["x"], "replicate")
    return _annotate(ev, x, Sharding((DimSharding((), open=False),) * x.type.rank), node)


def _shard(ev: Evaluator, node: ast.Call) -> Item:
    args = _arguments(node, "shard", ("x", "dims", "devices"), 1)
    x = _tensor(ev, args["x"], "shard")
    if "dims" not in args:
        edit = f"shard({text_of(args['x'].span)}, {_list(x, ev.mesh.names[:1])})"
        raise fail("shard needs dims", node.span, "shard(x, dims, devices)", suggestion=edit)
    layout = args["dims"]
    entries = layout.items if isinstance(layout, ast.ListExpr | ast.Tuple) else None
    if entries is None or "devices" in args or (entries and all(isinstance(e, ast.Number) for e in entries)):
        return _shard_devices(ev, node, x, layout, args.get("devices"))
    if len(entries) != x.type.rank:
        found = f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
        raise fail(
            f"shard: {found} for the {x.type.rank} dims of {x.type}",
            layout.span,
            suggestion=_list(x, [text_of(e.span) for e in entries]),
        )
    dims, placed = [], list[Placed]()
    for entry in entries:
        pinned, axes = _entry(ev, entry)
        dims.append(pinned)
        placed += axes
    return _annotate(ev, x, make_sharding(dims, placed, mesh=ev.mesh), node)


def _list(x: Value, entries: Sequence[str]) -> str:
    """Write a layout list of these entries, open dims after them, one per dim of ``x``."""
    return f"[{', '.join([*entries, *['?'] * x.type.rank][: x.type.rank])}]"


def _entry(ev: Evaluator, node: ast.Expr) -> tuple[DimSharding, list[Placed]]:
    """Read one entry of a layout list: an axis, axes, ``_``, ``?``, ``data?``, ``data!1``."""
    if isinstance(node, ast.Placeholder):
        return DimSharding((), open=node.kind == "?"), []
    is_open, round_ = False, 0
    axes: ast.Expr = node
    if isinstance(node, ast.DimPin):
        is_open, round_, axes = node.open, node.round, node.axes
    placed = [] if isinstance(axes, ast.Placeholder) else _axes(ev, axes, "shard")
    return DimSharding(tuple(ref for ref, _ in placed), is_open, round_), placed


def _shard_devices(ev: Evaluator, node: ast.Call, x: Value, layout: ast.Expr, order: ast.Expr | None) -> Item:
    """Lower the paper's general form: pieces per dim, and the device of every piece."""
    if order is None and not isinstance(layout, ast.ListExpr | ast.Tuple):
        item = ev.eval(layout)
        if not isinstance(item, tuple):
            raise fail(
                f"shard: the layout is a list with an entry per dim, found {describe(item)}",
                layout.span,
                suggestion=_list(x, [text_of(layout.span)] if isinstance(item, AxisRef) else ["_"]),
            )
    tiles, _ = _integers(ev, layout, "the pieces per dim", 1)
    if len(tiles) != x.type.rank:
        found = f"{len(tiles)} {'number' if len(tiles) == 1 else 'numbers'} of pieces"
        raise fail(
            f"shard: {found} for the {x.type.rank} dims of {x.type}",
            layout.span,
            suggestion=show([*tiles, *[1] * x.type.rank][: x.type.rank]),
        )
    if order is None:
        _check_pieces(ev, tiles, layout.span)
        axes = mesh_order(ev.mesh, tiles, layout.span)
    else:
        devices, places = _integers(ev, order, "devices", 0, in_order(ev.mesh))
        axes = device_order(ev.mesh, tiles, devices, order.span, places)
    placed = [(ref, layout.span) for refs in axes for ref in refs]
    dims = [DimSharding(refs, open=False) for refs in axes]
    return _annotate(ev, x, make_sharding(dims, placed), node)


def _check_pieces(ev: Evaluator, tiles: Sequence[int], span: Span) -> None:
    """Refuse pieces per dim that are not as many as the devices; suggest the axes of those sizes."""
    total, left = math.prod(tiles), dict(ev.mesh.shape)
    if total == ev.mesh.devices:
        return
    words = []
    for n in tiles:
        name = next((axis for axis, size in left.items() if size == n), None)
        left.pop(name or "", None)
        words.append(name or ("_" if n == 1 else "?"))
    raise fail(
        f"shard: {total} pieces for {ev.mesh.devices} devices: each device holds exactly one",
        span,
        f"the mesh is {ev.mesh}" if ev.mesh.names else "the mesh is one device",
        suggestion=f"[{', '.join(words)}]",
    )


def _integers(ev: Evaluator, node: ast.Expr, what: str, low: int, edit: str = "[2, 4]") -> tuple[list[int], list[Span]]:
    """Return a list of integers and where each is written."""
    item = ev.eval(node)
    if not isinstance(item, tuple):
        raise fail(f"{what} must be a list of integers, found {describe(item)}", node.span, suggestion=edit)
    spans = [i.span for i in node.items] if isinstance(node, ast.ListExpr | ast.Tuple) else [node.span] * len(item)
    return [whole(i, what, s, low=low) for i, s in zip(item, spans, strict=True)], spans


def _like(ev: Evaluator, node: ast.Call) -> Item:
    args = _arguments(node, "like", ("x", "y"), 2)
    x, y = _tensor(ev, args["x"], "like"), _tensor(ev, args["y"], "like")
    if x.shape != y.shape:
        raise fail(
            f"like ties tensors of one shape, found {x.type} and {y.type}",
            args["y"].span,
            suggestion=f"shard({text_of(args['x'].span)}, [..]) to place it by itself",
        )
    return ev.emit.op("like", x, y, span=node.span, where=(args["x"].span, args["y"].span))


def _barrier(ev: Evaluator, node: ast.Call) -> Item:
    args = _arguments(node, "barrier", ("x", "direction"), 1)
    x = _tensor(ev, args["x"], "barrier")
    direction = ev.eval(args["direction"]) if "direction" in args else "both"
    if not isinstance(direction, str) or direction not in DIRECTIONS:
        words = ", ".join(f'"{d}"' for d in DIRECTIONS)
        edit = (isinstance(direction, str) and nearest(direction, list(DIRECTIONS))) or "both"
        raise fail(
            f"barrier stops {words}, found {describe(direction)}", args["direction"].span, suggestion=f'"{edit}"'
        )
    return ev.emit.op("barrier", x, span=node.span, where=(args["x"].span,), direction=direction)


SPECIAL: dict[str, Callable[[Evaluator, ast.Call], Item]] = {
    "split": _split,
    "replicate": _replicate,
    "shard": _shard,
    "like": _like,
    "barrier": _barrier,
}
"""Operations whose arguments are not ordinary expressions."""
