"""Local forms of ops whose split factor needs more than the op itself: scan, select, lookup, offsets.

Each function emits standard ops and collectives on shards, so traffic, simulator and emitters need to
know nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gshard_ir.builder import Builder
from gshard_ir.factors import Rule
from gshard_ir.ir import Op, Value
from gshard_ir.mesh import Mesh
from gshard_ir.ops.indexing import missing
from gshard_ir.ops.scan import SCANS, nothing
from gshard_ir.passes.plan import Strategy, result_layout
from gshard_ir.sharding import Layout, chunk, sharded
from gshard_ir.types import BOOL, I32, I64, U8, DType, ShardedType, TensorType


@dataclass(frozen=True)
class Site:
    """One op being made local: where to emit, the op, its rule and strategy, its operands on one device."""

    builder: Builder
    op: Op
    rule: Rule
    strategy: Strategy
    mesh: Mesh
    operands: tuple[Value, ...]
    notes: dict[Value, str] = field(default_factory=dict)

    def result_type(self, index: int = 0) -> ShardedType:
        layout = result_layout(self.rule, self.strategy, index, self.mesh)
        return sharded(self.op.results[index].type, layout, self.mesh)

    def axes_of_mark(self, mark: str) -> tuple[str, ...]:
        """Axes that split the (only) factor carrying ``mark``."""
        found = [a for f, a in zip(self.rule.factors, self.strategy.split, strict=True) if f.mark == mark and a]
        return found[0] if found else ()

    def emit(self, name: str, *operands: Value, type: TensorType | None = None, **attrs: object) -> Value:
        return self.builder(name, *operands, span=self.op.span, hint=self.op.results[0].hint, type=type, **attrs)  # type: ignore[arg-type]

    def fill(self, value: int | float | bool, like: TensorType) -> Value:
        return self.emit("constant", value=value, dtype=like.dtype, shape=like.shape)

    def spread(self, scalar: Value, shape: tuple[int, ...]) -> Value:
        """Broadcast a scalar."""
        return self.emit("broadcast", scalar, shape=shape, dims=()) if shape else scalar

    def offset(self, axes: tuple[str, ...], rows: int, dtype: DType = I32) -> Value:
        """First global row of this device's shard, a scalar."""
        at = self.emit("axis_index", axes=axes)
        if dtype != I32:
            at = self.emit("cast", at, dtype=dtype)
        return self.emit("mul", at, self.fill(rows, at.type))


def identity(mark: str, combine: str, op: Op, dtype: DType) -> int | float | bool:
    """What padding must hold so that it does not show in the result of a split factor."""
    kind = {"argmax": "max", "argmin": "min"}[op.name] if mark == "select" else combine or "sum"
    return False if dtype == BOOL and kind == "sum" else plain(nothing(kind, dtype.numpy()))


def plain(number: Any) -> int | float | bool:
    """A numpy or Python number as a Python one, fit for an attribute."""
    found = number.item() if isinstance(number, np.generic) else number
    assert isinstance(found, int | float | bool)
    return found


def mask_padding(site: Site) -> Site:
    """Replace padding by the identity in every operand dim whose factor is unevenly split and combined."""
    operands = list(site.operands)
    for index, (factor, axes) in enumerate(zip(site.rule.factors, site.strategy.split, strict=True)):
        if not axes or factor.mark not in ("reduce", "scan", "select") or factor.size % site.mesh.size(axes) == 0:
            continue
        for i, dims in enumerate(site.rule.operands):
            for d, dim in enumerate(dims):
                if dim == (index,):
                    value = identity(factor.mark, factor.combine, site.op, operands[i].dtype)
                    operands[i] = site.emit(
                        "mask_padding",
                        operands[i],
                        dim=d,
                        axes=axes,
                        size=factor.size,
                        value=value,
                        type=operands[i].type,
                    )
    return Site(site.builder, site.op, site.rule, site.strategy, site.mesh, tuple(operands), site.notes)


def _gathered(site: Site, value: Value, axis: int, axes: tuple[str, ...], why: str) -> Value:
    """Stack one row per device along ``axis``: ``[..]`` to ``[.., shards, ..]`` everywhere."""
    shape = (*value.shape[:axis], 1, *value.shape[axis:])
    whole = (*shape[:axis], site.mesh.size(axes), *shape[axis + 1 :])
    split = Layout.replicated(len(shape)).with_dim(axis, axes)
    row = site.emit("reshape", value, shape=shape, type=ShardedType(value.dtype, shape, whole, split))
    everywhere = ShardedType(value.dtype, whole, whole, Layout.replicated(len(shape)))
    found = site.emit("all_gather", row, axes=axes, dim=axis, type=everywhere)
    site.notes[found] = why
    return found


STEP = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "logsumexp": "logaddexp"}


def _total(site: Site, combine: str, x: Value, axis: int) -> Value:
    """Combine all elements along a dim, which is dropped."""
    if combine != "logsumexp":
        return site.emit(f"reduce_{combine}", x, axes=(axis,))
    dims = tuple(d for d in range(len(x.shape)) if d != axis)
    top = site.emit("reduce_max", x, axes=(axis,))
    # An infinite maximum taken off would leave NaN; exp takes it as it is.
    top = site.emit("select", site.emit("is_finite", top), top, site.fill(0.0, top.type))
    weights = site.emit("exp", site.emit("sub", x, site.emit("broadcast", top, shape=x.shape, dims=dims)))
    return site.emit("add", site.emit("log", site.emit("reduce_sum", weights, axes=(axis,))), top)


def scan(site: Site) -> Value:
    """Scan the shard, then combine with the totals of the shards before it."""
    (x,) = site.operands
    axis, reverse = site.op.attrs["axis"], bool(site.op.attrs["reverse"])
    assert isinstance(axis, int)
    combine = SCANS[site.op.name]
    axes = site.axes_of_mark("scan")
    local = site.emit(site.op.name, x, axis=axis, reverse=reverse, exclusive=site.op.attrs["exclusive"])
    total = _total(site, combine, x, axis)
    totals = _gathered(site, total, axis, axes, "totals of the shards, for the prefix")
    number = site.emit("iota", dtype=I32, shape=totals.shape, axis=axis)
    mine = site.spread(site.emit("axis_index", axes=axes), totals.shape)
    before = site.emit("gt" if reverse else "lt", number, mine)
    kept = site.emit("select", before, totals, site.fill(plain(nothing(combine, x.dtype.numpy())), totals.type))
    prefix = _total(site, combine, kept, axis)
    dims = tuple(d for d in range(len(local.shape)) if d != axis)
    wide = site.emit("broadcast", prefix, shape=local.shape, dims=dims)
    return site.emit(STEP[combine], local, wide, type=site.result_type())


def arg_select(site: Site) -> Value:
    """Select on the shard with global indices, then among one candidate per shard; ties to the lowest index."""
    (x,) = site.operands
    axis, name = site.op.attrs["axis"], site.op.name
    assert isinstance(axis, int)
    axes = site.axes_of_mark("select")
    if x.dtype == BOOL:
        x = site.emit("cast", x, dtype=U8)
    best = site.emit("reduce_max" if name == "argmax" else "reduce_min", x, axes=(axis,))
    at = site.emit(name, x, axis=axis)
    index = site.emit("add", at, site.spread(site.offset(axes, x.shape[axis]), at.shape))
    bests = _gathered(site, best, axis, axes, "the best value of every shard")
    indices = _gathered(site, index, axis, axes, "where the best value of every shard is")
    winner = site.emit(name, bests, axis=axis)
    dims = tuple(d for d in range(len(indices.shape)) if d != axis)
    number = site.emit("iota", dtype=I32, shape=indices.shape, axis=axis)
    chosen = site.emit("eq", number, site.emit("broadcast", winner, shape=indices.shape, dims=dims))
    kept = site.emit("select", chosen, indices, site.fill(0, indices.type))
    return site.emit("reduce_sum", kept, axes=(axis,), type=site.result_type())


def take(site: Site) -> Value:
    """Look up rows on their owner; others contribute zero, the first device what is out of range."""
    table, index = site.operands
    axis = site.op.attrs["axis"]
    assert isinstance(axis, int)
    axes, n = site.axes_of_mark("lookup"), site.op.operands[0].shape[axis]
    rows = chunk(n, site.mesh.size(axes))
    if index.dtype.kind == "u" and index.dtype.itemsize >= I32.itemsize:
        index = site.emit("min", index, site.fill(n, index.type))
    if index.dtype not in (I32, I64):
        index = site.emit("cast", index, dtype=I32)
    count = site.fill(n, index.type)
    zero = site.fill(0, index.type)
    wrapped = site.emit("select", site.emit("lt", index, zero), site.emit("add", index, count), index)
    local = site.emit("sub", wrapped, site.spread(site.offset(axes, rows, index.dtype), index.shape))
    valid = site.emit("and", site.emit("ge", wrapped, zero), site.emit("lt", wrapped, count))
    below = site.emit("lt", local, site.fill(rows, local.type))
    owned = site.emit("and", valid, site.emit("and", site.emit("ge", local, zero), below))
    found = site.emit("take", table, site.emit("select", owned, local, zero), axis=axis)
    dims = tuple(range(axis, axis + len(index.shape)))

    def wide(flag: Value) -> Value:
        return site.emit("broadcast", flag, shape=found.shape, dims=dims)

    kept = site.emit("select", wide(owned), found, site.fill(0, found.type))
    first = site.emit("axis_index", axes=axes)
    leader = site.spread(site.emit("eq", first, site.fill(0, first.type)), index.shape)
    outside = wide(site.emit("and", leader, site.emit("not", valid)))
    stand_in = site.fill(plain(missing(found.dtype.numpy())), found.type)
    return site.emit("select", outside, stand_in, kept, type=site.result_type())


def iota(site: Site) -> Value:
    """Count from this shard's first global position."""
    axis, dtype = site.op.attrs["axis"], site.op.attrs["dtype"]
    assert isinstance(axis, int) and isinstance(dtype, DType)
    type_ = site.result_type()
    local = site.emit("iota", dtype=dtype, shape=type_.shape, axis=axis)
    start = site.spread(site.offset(type_.layout.dims[axis], type_.shape[axis], dtype), type_.shape)
    return site.emit("add", local, start, type=type_)


def uniform(site: Site) -> Value:
    """Draw at the global positions of this shard."""
    type_ = site.result_type()
    starts = []
    for axes, rows in zip(type_.layout.dims, type_.shape, strict=True):
        starts.append(site.offset(axes, rows) if axes else site.emit("constant", value=0, dtype=I32, shape=()))
    return site.emit("uniform_shard", site.operands[0], *starts, shape=type_.shape, whole=type_.whole, type=type_)


def expansion(op: Op, strategy: Strategy, rule: Rule) -> Callable[[Site], Value] | None:
    """Return the local form that this op needs under this strategy, or None when the op itself will do."""
    split_marks = {f.mark for f, axes in zip(rule.factors, strategy.split, strict=True) if axes}
    if "scan" in split_marks:
        return scan
    if "select" in split_marks:
        return arg_select
    if "lookup" in split_marks:
        return take
    if op.name == "uniform" and any(strategy.split):
        return uniform
    if op.name == "iota" and any(strategy.split[f] for f in rule.results[0][int(str(op.attrs["axis"]))]):
        return iota
    return None
