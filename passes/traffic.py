"""Bytes that collectives send: the one place where communication is counted.

Ring accounting, per device, n = group size, B = the whole buffer (padding included): all_gather
(n-1)/n of the result, all_reduce 2(n-1)/n, reduce_scatter and all_to_all (n-1)/n of the operand,
permute B times the share of devices that send. An all_reduce that XLA's own reduction cannot do (see
:func:`native_reduction`) is an exchange of pieces and a gather of the combined ones: as much where the
buffer divides into n pieces, else the buffer is padded, or gathered whole when that is no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from gshard_ir.ir import Attrs, Module, Op
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Layout
from gshard_ir.types import DType, TensorType

MOST_COUNTED = 2**20
Pair: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""Axes, major to minor, along which a dim lies before and after."""
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

    A device holds it when, in every dim, its position along the axes of ``source`` is that along the axes of
    ``target``. Positions are numbers in mixed radix: where the radices nest, their digits are compared one by
    one, however many devices there are. Where they do not (2, 3 against 3, 2), devices are counted, up to
    MOST_COUNTED of them; beyond that all are taken to send.
    """
    pairs = []
    for a, b in zip(source.dims, target.dims, strict=True):
        kept = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        pairs.append((a[kept:], b[kept:]))
    axes = tuple(dict.fromkeys(axis for pair in pairs for side in pair for axis in side))
    cuts = _digits(pairs, mesh)
    if cuts is not None:
        return 1 - _equal_digits(pairs, mesh, cuts)
    sizes = [mesh.size(a) for a in axes]
    if math.prod(sizes) > MOST_COUNTED:
        return 1.0
    places = dict(zip(axes, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    stay = np.ones(math.prod(sizes), dtype=bool)
    for a, b in pairs:
        stay &= _flat(a, places, mesh) == _flat(b, places, mesh)
    return float(1 - stay.mean())


def _digits(pairs: Sequence[Pair], mesh: Mesh) -> dict[str, list[int]] | None:
    """Cut each axis so that both sides of every pair have the same digits; None where a cut does not divide.

    The cuts of an axis of 8 into digits of 2 and 4, minor first, are 1, 2, 8.
    """
    cuts = {axis: {1, mesh.size(axis)} for pair in pairs for side in pair for axis in side}
    found = -1
    while found != (found := sum(map(len, cuts.values()))):
        for pair in pairs:
            points = {p * c for side in pair for axis, p in _places(side, mesh) for c in cuts[axis]}
            for side in pair:
                for axis, place in _places(side, mesh):
                    inner = [p for p in points if place < p < place * mesh.size(axis)]
                    if any(p % place for p in inner):
                        return None
                    cuts[axis] |= {p // place for p in inner}
    ordered = {axis: sorted(points) for axis, points in cuts.items()}
    nested = all(b % a == 0 for points in ordered.values() for a, b in pairwise(points))
    return ordered if nested else None


def _places(side: Sequence[str], mesh: Mesh) -> Iterator[tuple[str, int]]:
    """Yield the axes of one side, minor first, with what one step along each counts."""
    place = 1
    for axis in reversed(side):
        yield axis, place
        place *= mesh.size(axis)


def _equal_digits(pairs: Sequence[Pair], mesh: Mesh, cuts: Mapping[str, Sequence[int]]) -> float:
    """Share of devices whose digits agree in all pairs: each digit that must equal another one divides it."""
    leader: dict[tuple[str, int], tuple[str, int]] = {}

    def lead(digit: tuple[str, int]) -> tuple[str, int]:
        while digit in leader:
            digit = leader[digit]
        return digit

    divisor = 1
    for pair in pairs:
        sides = [[(a, c, d // c) for a, _ in _places(side, mesh) for c, d in pairwise(cuts[a])] for side in pair]
        for (a, at, size), (b, to, _) in zip(*sides, strict=True):
            first, second = lead((a, at)), lead((b, to))
            if first != second:
                leader[first] = second
                divisor *= size
    return 1 / divisor


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
