"""Propagation's own plan: a layout per named value, the cause of each axis, and what clashed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gshard_ir.dump.table import Column, Line, line, table
from gshard_ir.dump.views import View, Views
from gshard_ir.ir import Op, Value
from gshard_ir.passes.plan import TRANSPARENT
from gshard_ir.passes.propagate import Clash
from gshard_ir.pipeline import Compiled
from gshard_ir.reasons import Link, chain, place

COLUMNS = (
    Column("line", "faint", right=True),
    Column("value", "name"),
    Column("global"),
    Column("dim"),
    Column("axis", "comm"),
    Column("cause"),
)


@dataclass(frozen=True)
class Why:
    """The links from one (value, dim, axis) back to the annotation."""

    dim: int
    axis: str
    links: tuple[str, ...]

    def text(self) -> str:
        """Return the nearest link and the annotation; what lies between is only counted."""
        if len(self.links) <= 2:
            return " <- ".join(self.links)
        between = f"{len(self.links) - 2} more" if len(self.links) > 3 else self.links[1]
        return f"{self.links[0]} <- {between} <- {self.links[-1]}"

    def as_json(self) -> dict[str, object]:
        """Return the link as plain data."""
        return {"dim": self.dim, "axis": self.axis, "causes": list(self.links)}


@dataclass(frozen=True)
class Row:
    """A named value, its layout by propagation alone, and why."""

    view: View
    layout: str
    whys: tuple[Why, ...]

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield one row of cells per split dim and axis, one in all for a value that is not split."""
        head = (str(self.view.line or ""), self.view.name, self.layout)
        where = f"  ({self.view.where})" if self.view.where else ""
        if not self.whys:
            yield (*head, "", "", where.strip())
        for i, why in enumerate(self.whys):
            yield (*(("", "", "") if i else head), str(why.dim), why.axis, why.text() + ("" if i else where))

    def as_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        view = self.view
        fields: dict[str, object] = {"line": view.line, "name": view.name, "global": self.layout, "where": view.where}
        return fields | {"def": view.callee, "inner": view.inner, "why": [w.as_json() for w in self.whys]}


class Causes:
    """Puts propagation's causes and clashes into words."""

    def __init__(self, compiled: Compiled) -> None:
        self.propagation, self.mesh = compiled.propagation, compiled.prepared.mesh
        self.views = Views(compiled.lowered, compiled.prepared.main)

    def rows(self) -> list[Row]:
        """Return a row per named value, in program order."""
        function = self.propagation.function
        named = [*function.params, *(v for op in function.body.ops for v in op.results if v.hint)]
        return [self.row(v) for v in named]

    def row(self, value: Value) -> Row:
        """Describe one value."""
        layout = self.propagation.layouts[value]
        shown = "key" if value.dtype.kind == "k" else f"{value.dtype}{layout.show(value.shape, self.mesh)}"
        whys = [self.why(value, d, axis) for d, axes in enumerate(layout.dims) for axis in axes]
        return Row(self.views.of(value), shown, tuple(whys))

    def why(self, value: Value, dim: int, axis: str) -> Why:
        """Follow the cause of one axis to its annotation; other annotations on the way only hand it on."""
        links = chain(self.propagation, value, dim, axis)
        told = [link for link in links if link.cause.source is None or not _hands_on(link.cause.op)]
        return Why(dim, self.mesh.show_axes((axis,)), tuple(map(self.link, told)))

    def link(self, link: Link) -> str:
        """Return ``G of einsum, line 21: x dim 0``, or the annotation's text and place."""
        cause = link.cause
        where = place(cause.span)
        if cause.source is None or cause.op is None:
            return f"{cause.how}, {where}" if where else cause.how
        source, at = cause.source
        return f"{_by(cause.op, cause.factor)}, {where}: {self.views.names[source]} dim {at}"

    def clash(self, clash: Clash) -> dict[str, object]:
        """Return a clash as plain data."""
        source, at = clash.source
        roots = [links[-1] for a in clash.axes if (links := list(chain(self.propagation, source, at, a)))]
        view = self.views.of(clash.value)
        fields: dict[str, object] = {"value": view.name, "line": view.line, "where": view.where, "dim": clash.dim}
        fields |= {"axes": self.mesh.show_axes(clash.axes), "op": clash.op.name, "at": place(clash.op.span)}
        fields |= {"by": _by(clash.op, clash.factor), "from": self.views.names[source], "from_dim": at}
        return fields | {"because_of": [self.link(r) for r in roots], "reason": clash.reason}


def lines_of(causes: Causes, *, everything: bool) -> list[Line]:
    """Lay out layouts and clashes; without ``everything``, those inside inlined defs are counted, not shown."""
    rows = causes.rows()
    shown = [r for r in rows if everything or not r.view.inner]
    lines = table(COLUMNS, [cells for r in shown for cells in r.cells()])
    hidden = len(rows) - len(shown)
    clashes = causes.propagation.clashes
    seen = [c for c in clashes if everything or not causes.views.of(c.value).inner]
    if hidden:
        lines.append(line(f"  {hidden} values inside called defs are not shown (--all shows them)", "faint"))
    lines += [
        line(),
        line(f"  {len(clashes)} clash{'' if len(clashes) == 1 else 'es'}" if clashes else "  no clashes", "head"),
    ]
    for clash in seen:
        lines += _clash_lines(causes.clash(clash))
    if len(seen) < len(clashes):
        lines.append(line(f"  {len(clashes) - len(seen)} of them inside called defs (--all shows them)", "faint"))
    return lines


def _clash_lines(clash: dict[str, object]) -> list[Line]:
    proposed = f"{clash['axes']} proposed through {clash['by']}, {clash['at']}"
    lines = [line(f"  {clash['line']}  {clash['value']}, dim {clash['dim']}: {proposed}; {clash['reason']}")]
    roots = clash["because_of"]
    assert isinstance(roots, list)
    return lines + [line(f"      from {clash['from']} dim {clash['from_dim']} <- {root}", "faint") for root in roots]


def _hands_on(op: Op | None) -> bool:
    return op is not None and op.name in TRANSPARENT


def _by(op: Op, factor: str) -> str:
    """Name what carries an axis: a factor of an einsum, an annotation's text, or the op."""
    if op.name == "einsum":
        return f"{factor} of einsum"
    return str(op.attrs["how"]) if op.name == "annotate" else op.name
