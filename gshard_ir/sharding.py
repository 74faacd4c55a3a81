"""How a tensor lies on a mesh: what the user wrote (`Sharding`) and what was decided (`Layout`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gshard_ir.memo import hash_once
from gshard_ir.mesh import AxisRef, Mesh, show_axes
from gshard_ir.types import ShardedType, TensorType

REDUCTIONS = ("sum", "max", "min", "prod")


def chunk(n: int, shards: int) -> int:
    """Rows that each of ``shards`` devices holds of ``n``: ceil(n / shards); trailing shards are short or empty."""
    return -(-n // shards)


def nests(n: int, outer: int, inner: int) -> bool:
    """Do chunks of n over outer*inner devices tile the chunks of n over outer devices?"""
    return outer == 1 or chunk(n, outer) == inner * chunk(n, outer * inner)


@dataclass(frozen=True)
class DimSharding:
    """One dim of an annotation: axes major to minor, whether propagation may append, and its round."""

    axes: tuple[AxisRef, ...] = ()
    open: bool = True
    round: int = 0

    def show(self, size: int) -> str:
        """Write the dim as the language does: ``64@data?``, ``64@_``, ``64``."""
        if not self.axes:
            word = f"{size}" if self.open else f"{size}@_"
        else:
            names = ",".join(map(str, self.axes))
            word = f"{size}@{names if len(self.axes) == 1 else f'({names})'}" + ("?" if self.open else "")
        return word + (f"!{self.round}" if self.round else "")


@dataclass(frozen=True)
class Sharding:
    """An annotation: what the user asks of a tensor. Axes are the user's own, sub-axes included.

    ``forbidden`` axes must not split the tensor; ``pending`` are ``(kind, axes)`` reductions that a
    type may declare (only the IR's text uses them: a user's pin is never partial).
    """

    dims: tuple[DimSharding, ...]
    forbidden: tuple[AxisRef, ...] = ()
    pending: tuple[tuple[str, tuple[AxisRef, ...]], ...] = ()

    @property
    def says_nothing(self) -> bool:
        return not self.forbidden and not self.pending and all(d == DimSharding() for d in self.dims)

    def refs(self) -> Iterable[AxisRef]:
        """Yield every axis that is mentioned."""
        for dim in self.dims:
            yield from dim.axes
        yield from self.forbidden
        for _, axes in self.pending:
            yield from axes

    def show(self, shape: Sequence[int]) -> str:
        """Write ``[8@expert,64]!{data}`` for a tensor of ``shape``."""
        body = ",".join(d.show(n) for d, n in zip(self.dims, shape, strict=True))
        text = f"[{body}]"
        for kind, axes in self.pending:
            text += f"+{'' if kind == 'sum' else kind}{{{','.join(map(str, axes))}}}"
        if self.forbidden:
            text += f"!{{{','.join(map(str, self.forbidden))}}}"
        return text


@hash_once
@dataclass(frozen=True)
class Layout:
    """A decided, closed layout on a refined mesh: per dim the axes that split it, major to minor.

    ``pending`` maps axes to the reduction still owed: ``(("sum", ("expert",)),)``. Axes of size 1
    never appear. An axis appears at most once over all dims and pending reductions.
    """

    dims: tuple[tuple[str, ...], ...]
    pending: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @staticmethod
    def replicated(rank: int) -> Layout:
        """The layout in which every device holds everything."""
        return Layout(((),) * rank)

    @cached_property
    def axes(self) -> frozenset[str]:
        """Every axis in use, pending ones included."""
        return frozenset(a for d in self.dims for a in d) | self.pending_axes

    @cached_property
    def pending_axes(self) -> frozenset[str]:
        return frozenset(a for _, axes in self.pending for a in axes)

    @property
    def settled(self) -> Layout:
        """The same split with no reduction owed."""
        return Layout(self.dims) if self.pending else self

    def with_dim(self, dim: int, axes: tuple[str, ...]) -> Layout:
        """Return a copy with dim ``dim`` split over ``axes``."""
        return Layout((*self.dims[:dim], axes, *self.dims[dim + 1 :]), self.pending)

    def with_pending(self, kind: str, axes: Iterable[str], mesh: Mesh) -> Layout:
        """Return a copy that owes reduction ``kind`` over exactly ``axes`` (in mesh order)."""
        rest = {k: a for k, a in self.pending if k != kind}
        if ordered := mesh.order(axes):
            rest[kind] = ordered
        return Layout(self.dims, tuple((k, rest[k]) for k in REDUCTIONS if k in rest))

    def local_shape(self, whole: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
        """Rows per dim that one device holds, padding included."""
        return tuple(chunk(n, mesh.size(axes)) if axes else n for n, axes in zip(whole, self.dims, strict=True))

    def local_size(self, whole: Sequence[int], mesh: Mesh) -> int:
        """Elements that one device holds, padding included."""
        return math.prod(self.local_shape(whole, mesh))

    def show(self, whole: Sequence[int], mesh: Mesh | None = None) -> str:
        """Write ``[8@expert,64]+{data}``; with a mesh, pieces of one axis are merged back."""

        def join(axes: tuple[str, ...]) -> str:
            if mesh is not None:
                return show_axes(mesh, axes)
            return axes[0] if len(axes) == 1 else f"({','.join(axes)})"

        body = ",".join(f"{n}@{join(axes)}" if axes else f"{n}" for n, axes in zip(whole, self.dims, strict=True))
        text = f"[{body}]"
        for kind, axes in self.pending:
            text += f"+{'' if kind == 'sum' else kind}{{{join(axes).strip('()')}}}"
        return text

    def __str__(self) -> str:
        return self.show(["_"] * len(self.dims))  # type: ignore[list-item]


def sharded(type_: TensorType, layout: Layout, mesh: Mesh) -> ShardedType:
    """Return the local type of a tensor whose global type is ``type_``."""
    whole = type_.whole if isinstance(type_, ShardedType) else type_.shape
    return ShardedType(type_.dtype, layout.local_shape(whole, mesh), whole, layout)
