"""The device mesh: ordered named axes. Nothing here grows with the number of devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gshard_ir.memo import hash_once

LAUNCH_BYTES = 16 * 1024
"""What the launch of one collective counts as in the search, in bytes sent; 0 asks for the fewest bytes."""


@dataclass(frozen=True)
class AxisRef:
    """A full mesh axis, or the piece of it of ``size`` that comes after a factor of ``pre``.

    ``size`` 0 means the full axis (its size is then the mesh's business). Written ``model`` or
    ``model:(2)2``, as Shardy does.
    """

    name: str
    pre: int = 1
    size: int = 0

    def __str__(self) -> str:
        return self.name if not self.size else f"{self.name}:({self.pre}){self.size}"


@hash_once
@dataclass(frozen=True)
class Mesh:
    """Ordered axes, major to minor: device number = row-major index over ``sizes``.

    After :meth:`refine` an axis may be a piece of a user's axis; its name is then the sub-axis
    notation (``model:(2)2``) and ``parents`` says which axis and factor it came from.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    parents: tuple[AxisRef, ...] = ()

    def __post_init__(self) -> None:
        if not self.parents:
            object.__setattr__(self, "parents", tuple(AxisRef(n) for n in self.names))

    @property
    def shape(self) -> dict[str, int]:
        return dict(zip(self.names, self.sizes, strict=True))

    @cached_property
    def _size_of(self) -> dict[str, int]:
        return dict(zip(self.names, self.sizes, strict=True))

    @property
    def devices(self) -> int:
        return math.prod(self.sizes)

    def size(self, axes: str | Iterable[str]) -> int:
        """Number of devices along one axis or the product over several."""
        sizes = self._size_of
        return sizes[axes] if isinstance(axes, str) else math.prod(map(sizes.__getitem__, axes))

    def stride(self, axis: str) -> int:
        """Distance in device numbers between neighbours along ``axis``."""
        return math.prod(self.sizes[self.names.index(axis) + 1 :])

    def order(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Sort axes major to minor."""
        return tuple(sorted(axes, key=self.names.index))

    def index(self, device: int, axes: Sequence[str]) -> int:
        """Flat position of ``device`` along ``axes``, the first being the major one."""
        at = 0
        for axis in axes:
            at = at * self.size(axis) + device // self.stride(axis) % self.size(axis)
        return at

    def refine(self, refs: Iterable[AxisRef]) -> Mesh:
        """Cut axes so that every sub-axis in ``refs`` is a run of whole axes of the result.

        Raises ``ValueError`` when the cuts of one axis do not nest (2 and 3 in an axis of 6).
        """
        cuts: dict[str, set[int]] = {n: {1, s} for n, s in zip(self.names, self.sizes, strict=True)}
        for ref in refs:
            if ref.size:
                cuts[ref.name] |= {ref.pre, ref.pre * ref.size}
        names: list[str] = []
        sizes: list[int] = []
        parents: list[AxisRef] = []
        for name, total in zip(self.names, self.sizes, strict=True):
            points = sorted(cuts[name])
            pieces = list(pairwise(points)) or [(1, 1)]
            if any(b % a for a, b in pieces) or total % points[-1]:
                raise ValueError(f"sub-axes of {name} (size {total}) do not nest: factors {points}")
            for a, b in pieces:
                ref = AxisRef(name) if len(pieces) == 1 else AxisRef(name, a, b // a)
                names.append(str(ref))
                sizes.append(b // a)
                parents.append(ref)
        return Mesh(tuple(names), tuple(sizes), tuple(parents))

    def expand(self, ref: AxisRef) -> tuple[str, ...]:
        """Axes of this (refined) mesh that make up ``ref``, major to minor; size-1 axes are dropped."""
        first, last = ref.pre, ref.pre * ref.size
        found = [
            name
            for name, parent, size in zip(self.names, self.parents, self.sizes, strict=True)
            if parent.name == ref.name and size > 1 and (not ref.size or first <= parent.pre < last)
        ]
        return tuple(found)

    def show_axes(self, axes: Sequence[str]) -> str:
        """Write axes in the language's notation, merging adjacent pieces of one axis."""
        return show_axes(self, axes)

    def __str__(self) -> str:
        return ",".join(f"{n}={s}" for n, s in user_axes(self).items())


def user_axes(mesh: Mesh) -> dict[str, int]:
    """Axes as the user declared them, with sub-axis pieces multiplied back together."""
    found: dict[str, int] = {}
    for parent, size in zip(mesh.parents, mesh.sizes, strict=True):
        found[parent.name] = found.get(parent.name, 1) * size
    return found


def merged_axes(mesh: Mesh, axes: Sequence[str]) -> list[AxisRef]:
    """Name axes of a refined mesh in the user's terms, merging adjacent pieces of one axis."""
    merged: list[AxisRef] = []
    totals = user_axes(mesh)
    for axis in axes:
        ref = mesh.parents[mesh.names.index(axis)]
        last = merged[-1] if merged else None
        if last and ref.size and last.size and last.name == ref.name and last.pre * last.size == ref.pre:
            merged[-1] = AxisRef(ref.name, last.pre, last.size * ref.size)
        else:
            merged.append(ref)
    return [AxisRef(m.name) if m.size == totals[m.name] else m for m in merged]


def show_axes(mesh: Mesh, axes: Sequence[str]) -> str:
    """Write axes as ``a`` or ``(a,b:(1)2)``, merging adjacent pieces of one axis."""
    words = [str(m) for m in merged_axes(mesh, axes)]
    return words[0] if len(words) == 1 else f"({','.join(words)})"
