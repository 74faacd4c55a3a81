"""A picture of a split in one to three dims: a box per shard, in it the devices that hold the shard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice, pairwise, product
from typing import Protocol

from gshard_ir.dump.table import Line, line
from gshard_ir.mesh import Mesh

MOST = 8
"""Shards along a dim that are drawn; of more, the first six, the last and the one that is asked for."""

ASCII = str.maketrans("┌┬┐├┼┤└┴┘│─", "+++++++++|-")
"""For streams that have no lines to draw with."""


class Split(Protocol):
    """What a picture needs of a dim."""

    @property
    def number(self) -> int: ...
    @property
    def axes(self) -> tuple[str, ...]: ...
    @property
    def shown_axes(self) -> str: ...
    @property
    def shards(self) -> int: ...
    def range(self, shard: int, /) -> tuple[int, int]: ...


def picture(dims: Sequence[Split], mesh: Mesh, device: int | None = None) -> list[Line]:
    """Draw the dims that are split; ``device`` is put in brackets. A value with four such dims is not drawn."""
    split = [d for d in dims if d.shards > 1]
    if len(split) > 3:
        return [line(f"  no picture: {len(split)} dims are split", "faint")]
    if not split:
        return [line("  "), *_grid(None, None, (), mesh, device)][1:]
    across, down = split[-1], split[-2] if len(split) > 1 else None
    told = [f"{way}: dim {d.number} over {d.shown_axes}" for way, d in (("down", down), ("across", across)) if d]
    panel = split[0] if len(split) == 3 else None
    if panel is None:
        return [line(f"  {', '.join(told)}", "faint"), *_grid(down, across, (), mesh, device)]
    lines = [line(f"  {', '.join(told)}; one picture per shard of dim {panel.number} over {panel.shown_axes}", "faint")]
    for shard in _drawn(panel, mesh, device):
        if shard is None:
            lines += [line(), line("  ..")]
        else:
            lines += [line(), line(f"  dim {panel.number} {_range(panel, shard)}")]
            lines += _grid(down, across, ((panel, shard),), mesh, device)
    return lines


def _drawn(dim: Split | None, mesh: Mesh, device: int | None) -> list[int | None]:
    """Shards to draw; None stands for those that are left out."""
    if dim is None:
        return [0]
    if dim.shards <= MOST:
        return list(range(dim.shards))
    kept = {*range(MOST - 2), dim.shards - 1}
    kept |= {mesh.index(device, dim.axes)} if device is not None else set()
    found: list[int | None] = []
    last = -1
    for shard in sorted(kept):
        found += [shard] if shard == last + 1 else [None, shard]
        last = shard
    return found


def _range(dim: Split, shard: int) -> str:
    start, stop = dim.range(shard)
    return f"{start}:{stop}" if stop > start else "padding"


def _grid(
    down: Split | None, across: Split | None, fixed: Sequence[tuple[Split, int]], mesh: Mesh, device: int | None
) -> list[Line]:
    rows, columns = _drawn(down, mesh, device), _drawn(across, mesh, device)
    heads = [".." if j is None else _range(across, j) if across else "" for j in columns]
    sides = [".." if i is None else _range(down, i) if down else "" for i in rows]
    cells = [[_cell([(down, i), (across, j), *fixed], mesh, device) for j in columns] for i in rows]
    widths = [max(len(head), *(len(row[j]) for row in cells)) for j, head in enumerate(heads)]
    margin = max(map(len, sides))
    indent = f"  {'':{margin}} " if margin else "  "

    def rule(left: str, middle: str, right: str) -> str:
        return indent + left + middle.join("─" * (w + 2) for w in widths) + right

    lines = [indent + "".join(f"  {head:^{w}} " for head, w in zip(heads, widths, strict=True))] if across else []
    lines.append(rule("┌", "┬", "┐"))
    for i, (side, row) in enumerate(zip(sides, cells, strict=True)):
        if i:
            lines.append(rule("├", "┼", "┤"))
        body = "│".join(f" {cell:^{w}} " for cell, w in zip(row, widths, strict=True))
        lines.append(f"  {side:>{margin}} │{body}│" if margin else f"  │{body}│")
    lines.append(rule("└", "┴", "┘"))
    return [line(text.rstrip()) for text in lines]


def _cell(at: Sequence[tuple[Split | None, int | None]], mesh: Mesh, device: int | None) -> str:
    """Name the devices at one place of the picture."""
    if any(shard is None for _, shard in at):
        return ".."
    fixed: dict[str, int] = {}
    for dim, shard in at:
        assert shard is not None
        for axis in reversed(dim.axes) if dim else ():
            shard, fixed[axis] = divmod(shard, mesh.size(axis))
    free = [n for n, size in zip(mesh.names, mesh.sizes, strict=True) if n not in fixed and size > 1]
    base = sum(i * mesh.stride(axis) for axis, i in fixed.items())
    inside = device is not None and all(mesh.index(device, (axis,)) == i for axis, i in fixed.items())
    text = _devices(base, free, mesh)
    return f"[{text}]" if inside else text


def _devices(base: int, free: Sequence[str], mesh: Mesh) -> str:
    """Write ``0``, ``0-3``, ``0,4`` or, for many, ``0,8,16 .. (64)``; nothing here grows with the mesh."""
    count = math.prod(mesh.size(a) for a in free)
    steps = [mesh.stride(a) for a in free]
    if count == 1:
        return str(base)
    if steps[-1] == 1 and all(a == b * mesh.size(n) for (a, b), n in zip(pairwise(steps), free[1:], strict=True)):
        return f"{base}-{base + count - 1}"
    first = islice(product(*(range(mesh.size(a)) for a in free)), 4)
    shown = [str(base + sum(i * s for i, s in zip(at, steps, strict=True))) for at in first]
    return ",".join(shown) if count <= 4 else f"{','.join(shown[:3])} .. ({count:,})"
