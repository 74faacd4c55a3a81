"""How jax.lax says the ops that only a local program has: collectives, and what depends on the device.

Same contract as :mod:`gshard_ir.backends.jax_ops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gshard_ir.backends.jax_ops import Context, Renderer, code_of, full, ints
from gshard_ir.backends.py_code import Code, axes_text, literal, tuple_text
from gshard_ir.ir import Op
from gshard_ir.passes.traffic import COLLECTIVES, moved_axes, native_reduction
from gshard_ir.sharding import Layout

_COMBINE = {"sum": "jnp.sum", "max": "jnp.max", "min": "jnp.min", "prod": "jnp.prod"}


def _all_reduce(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    x, axes, kind = full(operands[0], op.operands[0].type), axes_text(context.axes(op.attrs["axes"])), op.attrs["kind"]
    if native_reduction(str(kind), op.operands[0].dtype):
        name = {"sum": "lax.psum", "max": "lax.pmax", "min": "lax.pmin"}[str(kind)]
        return code_of(f"{name}({x.text}, {axes})", op.result.type)
    combine = _COMBINE[str(kind)]
    return code_of(context.call("all_combine", x.text, axes, combine), op.result.type)


def _reduce_scatter(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    axes, dim = axes_text(context.axes(op.attrs["axes"])), cast("int", op.attrs["dim"])
    x = _padded(context, op, operands[0], dim)
    if op.attrs["kind"] == "sum":
        return code_of(f"lax.psum_scatter({x}, {axes}, scatter_dimension={dim}, tiled=True)", op.result.type)
    call = context.call("scatter_combine", x, axes, str(dim), _COMBINE[str(op.attrs["kind"])])
    return code_of(call, op.result.type)


def _padded(context: Context, op: Op, code: Code, dim: int) -> str:
    """The operand with zero rows added until ``dim`` divides into whole blocks."""
    type_ = op.operands[0].type
    group = context.mesh.size(cast("tuple[str, ...]", op.attrs["axes"]))
    missing = op.result.shape[dim] * group - type_.shape[dim]
    x = full(code, type_)
    if not missing:
        return x.text
    widths = tuple_text(tuple_text((0, missing if d == dim else 0)) for d in range(type_.rank))
    padded = f"jnp.pad({x.text}, {widths})"
    # A block that is all padding is a constant to XLA:CPU, which then fails to lay out an all-to-all of it.
    return f"lax.optimization_barrier({padded})" if missing >= op.result.shape[dim] else padded


def _trimmed(text: str, op: Op, dim: int, rows: int) -> Code:
    """Drop rows of ``dim`` past those of the result type."""
    wanted = op.result.shape[dim]
    if rows > wanted:
        text += "[" + ":, " * dim + f":{wanted}]"
    return code_of(text, op.result.type)


def _all_gather(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    axes, dim, type_ = context.axes(op.attrs["axes"]), cast("int", op.attrs["dim"]), op.operands[0].type
    group = context.mesh.size(cast("tuple[str, ...]", op.attrs["axes"]))
    x = full(operands[0], type_)
    text = f"lax.all_gather({x.text}, {axes_text(axes)}, axis={dim}, tiled=True)"
    return _trimmed(text, op, dim, type_.shape[dim] * group)


def _all_to_all(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    axes = context.axes(op.attrs["axes"])
    group = context.mesh.size(cast("tuple[str, ...]", op.attrs["axes"]))
    split, concat = cast("int", op.attrs["split_dim"]), cast("int", op.attrs["concat_dim"])
    x = _padded(context, op, operands[0], split)
    text = f"lax.all_to_all({x}, {axes_text(axes)}, split_axis={split}, concat_axis={concat}, tiled=True)"
    return _trimmed(text, op, concat, op.operands[0].shape[concat] * group)


def _permute(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    source, target = cast("Layout", op.attrs["source"]), cast("Layout", op.attrs["target"])
    mesh = context.mesh
    axes = mesh.order(moved_axes(source, target))
    sizes = tuple_text(mesh.size(a) for a in axes)
    before, after = (tuple_text(_places(layout, source, target, axes)) for layout in (source, target))
    moves = context.call("block_moves", sizes, before, after)
    x = full(operands[0], op.operands[0].type)
    return code_of(f"lax.ppermute({x.text}, {axes_text(context.axes(axes))}, {moves})", op.result.type)


def _places(layout: Layout, source: Layout, target: Layout, axes: Sequence[str]) -> list[int]:
    """Axes of the dims that change, major to minor and dim after dim, as positions in ``axes``."""
    found: list[int] = []
    for own, a, b in zip(layout.dims, source.dims, target.dims, strict=True):
        if a != b:
            found += [axes.index(name) for name in own]
    return found


def _axis_index(context: Context, op: Op, _operands: Sequence[Code]) -> Code:
    return code_of(f"lax.axis_index({axes_text(context.axes(op.attrs['axes']))})", op.result.type)


def _shard_slice(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    dim = cast("int", op.attrs["dim"])
    x = full(operands[0], op.operands[0].type)
    args = (x.text, axes_text(context.axes(op.attrs["axes"])), str(dim), str(op.result.shape[dim]))
    return code_of(context.call("own_block", *args), op.result.type)


def _mask_padding(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    x = full(operands[0], op.operands[0].type)
    value = literal(cast("int | float | bool", op.attrs["value"]), op.result.dtype)
    axes = axes_text(context.axes(op.attrs["axes"]))
    args = (x.text, axes, str(op.attrs["dim"]), str(op.attrs["size"]), value.text)
    return code_of(context.call("mask_padding", *args), op.result.type)


def _mask_leader(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    x = full(operands[0], op.operands[0].type)
    zero = literal(0, op.result.dtype)
    leads = f"lax.axis_index({axes_text(context.axes(op.attrs['axes']))}) == 0"
    return code_of(f"jnp.where({leads}, {x.text}, {zero.text})", op.result.type)


def _uniform_shard(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    key, *starts = operands
    whole, shape = tuple_text(ints(op.attrs["whole"])), tuple_text(op.result.shape)
    offsets = tuple_text(s.text for s in starts)
    return code_of(context.call("uniform", key.text, whole, shape, offsets), op.result.type)


def _unless_empty(renderer: Renderer) -> Renderer:
    """A collective on tensors without elements sends nothing, and XLA refuses some: its result is written instead."""

    def render(context: Context, op: Op, operands: Sequence[Code]) -> Code:
        if op.operands[0].type.size and op.result.type.size:
            return renderer(context, op, operands)
        return full(literal(0, op.result.dtype), op.result.type)

    return render


LOCAL_TABLE: dict[str, Renderer] = {
    "all_reduce": _unless_empty(_all_reduce),
    "all_gather": _unless_empty(_all_gather),
    "reduce_scatter": _unless_empty(_reduce_scatter),
    "all_to_all": _unless_empty(_all_to_all),
    "permute": _unless_empty(_permute),
    "axis_index": _axis_index,
    "shard_slice": _shard_slice,
    "mask_padding": _mask_padding,
    "mask_leader": _mask_leader,
    "uniform_shard": _uniform_shard,
}

__all__ = ["COLLECTIVES", "LOCAL_TABLE"]
