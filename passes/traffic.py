"""Bytes that collectives send: the one place where communication is counted.

Ring accounting, per device, n = group size, B = the whole buffer (padding included): all_gather
(n-1)/n of the result, all_reduce 2(n-1)/n, reduce_scatter and all_to_all (n-1)/n of the operand,
permute B times the share of devices that send. An all_reduce that XLA's own reduction cannot do (see
:func:`native_reduction`) is an exchange of pieces and a gather of the combined ones: as much where the
buffer divides into n pieces, else the buffer is padded, or gathered whole when that is no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gshard_ir.ir import Attrs, Module, Op
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Layout
from gshard_ir.types import DType, TensorType

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute")


@dataclass(frozen=True)
class Transfer:
    """One collective as it will run: ``kind`` over ``axes``, ``sent`` bytes leaving each device."""

    kind: str
    axes: tuple[str, ...]
    sent: float


def transfer(name: str, attrs: Attrs, operand: TensorType, result: TensorType, mesh: Mesh) -> Transfer | None:
    """Describe the traffic of one op, or None when it sends nothing."""
    if name not in COLLECTIVES:
        return None
    if name == "permute":
        source, target = attrs["source"], attrs["target"]
        assert isinstance(source, Layout) and isinstance(target, Layout)
        moved = moved_axes(source, target)
        return Transfer(name, mesh.order(moved), operand.nbytes * sending_share(source, target, mesh))
    axes = attrs["axes"]
    assert isinstance(axes, tuple)
    names = tuple(str(a) for a in axes)
    n = mesh.size(names)
    if name == "all_reduce" and not native_reduction(str(attrs["kind"]), operand.dtype):
        piece = -(-operand.size // n)
        return Transfer(name, names, float((n - 1) * min(operand.size, 2 * piece) * operand.dtype.itemsize))
    buffer = _buffer(name, attrs, operand, result, n)
    factor = 2 * (n - 1) / n if name == "all_reduce" else (n - 1) / n
    return Transfer(name, names, buffer * factor)


def native_reduction(kind: str, dtype: DType) -> bool:
    """Can a device's own reduction combine this? Its float max and min may lose NaN; jax has no product."""
    return kind == "sum" or (kind in ("max", "min") and not dtype.is_float)


def _buffer(name: str, attrs: Attrs, operand: TensorType, result: TensorType, n: int) -> int:
    if name == "all_reduce":
        return operand.nbytes
    if name == "all_gather":
        return operand.nbytes * n
    dim = attrs["dim"] if name == "reduce_scatter" else attrs["split_dim"]
    assert isinstance(dim, int)
    shape = list(operand.shape)
    shape[dim] = result.shape[dim] * n
    return math.prod(shape) * operand.dtype.itemsize


def moved_axes(source: Layout, target: Layout) -> tuple[str, ...]:
    """Axes whose role differs between two layouts of equal local shape."""
    found: list[str] = []
    for a, b in zip(source.dims, target.dims, strict=True):
        if a != b:
            found += [x for x in dict.fromkeys((*a, *b)) if x not in found]
    return tuple(found)


@lru_cache(maxsize=4096)
def sending_share(source: Layout, target: Layout, mesh: Mesh) -> float:
    """Share of devices that do not already hold, under ``source``, the block they need under ``target``.

    The axes whose role changes decide it, so the count runs over those alone.
    """
    axes = mesh.order(moved_axes(source, target))
    if not axes:
        return 0.0
    sizes = [mesh.size(a) for a in axes]
    places = dict(zip(axes, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    stay = np.ones(math.prod(sizes), dtype=bool)
    for a, b in zip(source.dims, target.dims, strict=True):
        if a != b:
            common = 0
            while common < min(len(a), len(b)) and a[common] == b[common]:
                common += 1
            stay &= _flat(a[common:], places, mesh) == _flat(b[common:], places, mesh)
    return float(1 - stay.mean())


def _flat(axes: tuple[str, ...], places: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]], mesh: Mesh) -> object:
    at: object = 0
    for axis in axes:
        at = at * mesh.size(axis) + places[axis]  # type: ignore[operator]
    return at


def of_op(op: Op, mesh: Mesh) -> Transfer | None:
    """Traffic of one op of a local program."""
    if op.name not in COLLECTIVES:
        return None
    return transfer(op.name, op.attrs, op.operands[0].type, op.result.type, mesh)


def of_module(module: Module) -> list[tuple[Op, Transfer]]:
    """Every collective of the entry function with its traffic, in program order."""
    found = [(op, of_op(op, module.mesh)) for op in module.main.body.walk()]
    return [(op, t) for op, t in found if t is not None]
