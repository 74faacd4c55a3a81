"""How one value lies on the devices: a row per dim, what one device holds, and a picture of the split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gshard_ir.data import nearest
from gshard_ir.dump.partitioned import Row
from gshard_ir.dump.picture import picture
from gshard_ir.dump.table import Column, Line, Segment, line, plain, table
from gshard_ir.dump.traffic import bytes_text
from gshard_ir.errors import GShardError, fail
from gshard_ir.mesh import Mesh, user_axes
from gshard_ir.sharding import Layout
from gshard_ir.types import ShardedType

MOST_RANGES = 64
"""Shards of a dim whose index ranges are all listed; of more shards the first follow from the local size."""

SHOWN_RANGES = 8


@dataclass(frozen=True)
class Dim:
    """One dim of ``size`` rows, split over ``axes`` into ``shards`` of ``local`` rows, padding included."""

    number: int
    size: int
    axes: tuple[str, ...]
    shown_axes: str
    shards: int
    local: int

    @property
    def padding(self) -> int:
        """Rows of padding over all shards."""
        return self.local * self.shards - self.size

    def range(self, shard: int) -> tuple[int, int]:
        """Return the half-open range of indices that a shard holds; empty for one that is all padding."""
        start = min(shard * self.local, self.size)
        return start, min(start + self.local, self.size)

    def ranges(self) -> list[tuple[int, int]] | None:
        """Return the range of every shard, None when there are more than :data:`MOST_RANGES`."""
        return [self.range(i) for i in range(self.shards)] if self.shards <= MOST_RANGES else None


@dataclass(frozen=True)
class Place:
    """One device: its coordinates on the user's axes and, per dim, the index range that it holds."""

    device: int
    coordinates: dict[str, int]
    ranges: tuple[tuple[int, int], ...]

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain data."""
        return {"device": self.device, "coordinates": self.coordinates, "ranges": [list(r) for r in self.ranges]}


@dataclass(frozen=True)
class ValueLayout:
    """The layout of one value: ``row`` of the partitioned dump, on the refined ``mesh``."""

    row: Row
    mesh: Mesh

    @property
    def type(self) -> ShardedType:
        """What one device holds."""
        found = self.row.held.type
        if isinstance(found, ShardedType):
            return found
        return ShardedType(found.dtype, found.shape, found.shape, Layout.replicated(found.rank))

    @property
    def layout(self) -> Layout:
        return self.type.layout

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dims, outermost first."""
        sizes = zip(self.type.whole, self.type.shape, self.layout.dims, strict=True)
        return tuple(
            Dim(i, n, axes, self.mesh.show_axes(axes) if axes else "", self.mesh.size(axes), local)
            for i, (n, local, axes) in enumerate(sizes)
        )

    @property
    def pending(self) -> tuple[tuple[str, str], ...]:
        """Reductions that are still owed: ``(("sum", "model"),)``."""
        return tuple((kind, self.mesh.show_axes(axes)) for kind, axes in self.layout.pending)

    @property
    def copies(self) -> int:
        """How many devices hold the same rows."""
        return self.mesh.devices // self.mesh.size(a for d in self.layout.dims for a in d)

    def place(self, device: int) -> Place:
        """Say what one device holds. Raises ``GShardError`` when the mesh has no such device."""
        if not 0 <= device < self.mesh.devices:
            raise fail(f"mesh {self.mesh} has devices 0 to {self.mesh.devices - 1:,}, no device {device:,}")
        pieces: dict[str, list[str]] = {axis: [] for axis in user_axes(self.mesh)}
        for name, parent in zip(self.mesh.names, self.mesh.parents, strict=True):
            pieces[parent.name].append(name)
        at = {axis: self.mesh.index(device, names) for axis, names in pieces.items()}
        return Place(device, at, tuple(d.range(self.mesh.index(device, d.axes)) for d in self.dims))

    def as_json(self, device: int | None = None) -> dict[str, object]:
        """Return everything as plain data; ``ranges`` is null where a dim has very many shards."""
        view, type_ = self.row.view, self.type
        fields: dict[str, object] = {"line": view.line, "name": view.name, "role": self.row.role}
        fields |= {"where": view.where, "inner": view.inner, "global": self.row.whole, "local": self.row.local}
        dims = [
            {"dim": d.number, "size": d.size, "axes": d.shown_axes, "shards": d.shards, "local": d.local}
            | {
                "padding": d.padding,
                "ranges": [list(r) for r in ranges] if (ranges := d.ranges()) is not None else None,
            }
            for d in self.dims
        ]
        fields |= {"dims": dims, "pending": [{"kind": kind, "axes": axes} for kind, axes in self.pending]}
        fields |= {"bytes_per_device": type_.nbytes, "copies": self.copies}
        return fields | {"place": self.place(device).as_json() if device is not None else None}

    def lines(self, device: int | None = None) -> list[Line]:
        """Lay out a heading, the table and, where at most three dims are split, the picture."""
        return [
            *_head(self),
            *_table(self, device),
            *_notes(self, device),
            line(),
            *picture(self.dims, self.mesh, device),
        ]

    def __str__(self) -> str:
        return plain(self.lines()).rstrip("\n")


def find(rows: Sequence[Row], name: str, mesh: Mesh, title: str) -> list[ValueLayout]:
    """Return the layouts of every value called ``name``, ``name@line`` or ``callee.name``.

    Values of the entry's own hide those of called defs. A result counts as a value of its own name, where it is
    not the value that is shown already. Raises ``GShardError``, with the nearest name, when there is none.
    """
    wanted, at = name, None
    if matched := re.fullmatch(r"(.+)@(\d{1,9})", name):
        wanted, at = matched[1], int(matched[2])
    named = [r for r in rows if r.view.name in (wanted, f"-> {wanted}")]
    if not named:
        named = [r for r in rows if r.view.callee and f"{r.view.callee}.{r.view.name}" == wanted]
    found = [r for r in named if at is None or r.view.line == at]
    if not found:
        raise _no_value(rows, named, wanted, at, title)
    outer = [r for r in found if not r.view.inner] or found
    seen = {r.held for r in outer if r.role != "result"}
    return [ValueLayout(r, mesh) for r in outer if r.role != "result" or r.held not in seen]


def _no_value(rows: Sequence[Row], named: Sequence[Row], wanted: str, at: int | None, title: str) -> GShardError:
    if named:
        lines = ", ".join(str(n) for n in dict.fromkeys(r.view.line for r in named))
        edit = f"{wanted}@{named[-1].view.line}"
        return fail(f"{title} has no value {wanted} on line {at}", None, f"it is on {lines}", suggestion=edit)
    names = [r.view.name.removeprefix("-> ") for r in rows if not r.view.name.startswith("(")]
    return fail(f"{title} has no value {wanted}", None, suggestion=nearest(wanted, list(dict.fromkeys(names))))


COLUMNS = (
    Column("dim", "name", right=True),
    Column("size", right=True),
    Column("axes", "comm"),
    Column("shards", right=True),
    Column("local", right=True),
    Column("padding", "bad", right=True),
    Column("index ranges"),
)


def _head(layout: ValueLayout) -> list[Line]:
    view = layout.row.view
    tail = [f"line {view.line}"] * bool(view.line) + [view.where] * bool(view.where)
    place = f"  ({', '.join(tail)})" if tail else ""
    told = f"    {layout.row.whole}    mesh {layout.mesh}"
    return [(Segment(view.name, "head"), Segment(place, "faint"), Segment(told)), line()]


def _table(layout: ValueLayout, device: int | None) -> list[Line]:
    place = layout.place(device) if device is not None else None
    rows = []
    for d in layout.dims:
        ranges = _ranges(d) if place is None else _range(place.ranges[d.number])
        shards = str(d.shards) if d.axes else ""
        rows.append((str(d.number), str(d.size), d.shown_axes, shards, str(d.local), str(d.padding or ""), ranges))
    columns = (*COLUMNS[:-1], Column(f"on device {device}")) if device is not None else COLUMNS
    return table(columns, rows) if rows else [line("  a scalar")]


def _notes(layout: ValueLayout, device: int | None) -> list[Line]:
    held = f"  {bytes_text(layout.type.nbytes)} on each device"
    copies = f"; {layout.copies:,} devices hold the same" if layout.copies > 1 else ""
    lines = [line(), line(held + copies)]
    lines += [line(f"  still to be reduced: {kind} over {axes}") for kind, axes in layout.pending]
    if device is not None:
        at = layout.place(device)
        where = ", ".join(f"{axis}={i}" for axis, i in at.coordinates.items())
        lines.append(line(f"  device {device} is {where}"))
        if any(a == b for (a, b), d in zip(at.ranges, layout.dims, strict=True) if d.size):
            lines.append(line("  it holds padding alone"))
    return lines


def _range(found: tuple[int, int]) -> str:
    return f"{found[0]}:{found[1]}"


def _ranges(dim: Dim) -> str:
    if dim.shards <= SHOWN_RANGES:
        return "  ".join(_range(dim.range(i)) for i in range(dim.shards))
    first = [_range(dim.range(i)) for i in range(SHOWN_RANGES - 2)]
    return "  ".join([*first, "..", _range(dim.range(dim.shards - 1))])
