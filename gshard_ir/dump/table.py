"""Lines of styled segments, and tables of them: plain text by default, colour only where a terminal asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Segment:
    """A piece of a line. ``style`` is a role: ``head``, ``name``, ``comm``, ``bytes``, ``faint``, ``good``, ``bad``."""

    text: str
    style: str = ""


Line = tuple[Segment, ...]


def line(text: str = "", style: str = "") -> Line:
    """Return a line of one segment."""
    return (Segment(text, style),)


@dataclass(frozen=True)
class Column:
    """A heading, the role of its cells, and whether they are aligned to the right."""

    title: str
    style: str = ""
    right: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[Line]:
    """Lay out rows under headings, two blanks between columns; columns that are empty throughout are left out."""
    cells = [tuple(row) for row in rows]
    shown = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    width = {i: max(len(columns[i].title), *(len(row[i]) for row in cells)) for i in shown}
    heads = {i: Segment(_fit(columns[i].title, width[i], columns[i].right), "faint") for i in shown}
    lines = [_joined([heads[i] for i in shown])]
    for row in cells:
        fitted = [Segment(_fit(row[i], width[i], columns[i].right), columns[i].style) for i in shown]
        lines.append(_joined(fitted))
    return lines


def _fit(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _joined(cells: Sequence[Segment]) -> Line:
    found: list[Segment] = []
    for cell in cells:
        found += [Segment("  "), cell]
    return tuple(found)


def plain(lines: Iterable[Line]) -> str:
    """Return the text without styles, ending in a newline."""
    return "".join("".join(s.text for s in segments).rstrip() + "\n" for segments in lines)
