"""The partitioned program: a line per named value with its layout and shard, a line per collective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gshard_ir.dump.table import Column, Line, Segment, line, table
from gshard_ir.dump.traffic import Collective, Traffic, bytes_text, traffic_of
from gshard_ir.dump.views import View, Views
from gshard_ir.ir import Op, Value
from gshard_ir.passes.partition import Comm
from gshard_ir.pipeline import Compiled
from gshard_ir.types import ShardedType

COLUMNS = (
    Column("line", "faint", right=True),
    Column("value", "name"),
    Column("global"),
    Column("local"),
    Column("communication", "comm"),
    Column("sent", "bytes", right=True),
    Column("why"),
)


@dataclass(frozen=True)
class Row:
    """A value as one device holds it (``held`` in the local program), or a copy of it that ``collective`` makes."""

    view: View
    whole: str
    local: str
    held: Value
    collective: Collective | None = None
    role: str = "value"

    def cells(self) -> tuple[str, ...]:
        """Return the cells of :data:`COLUMNS`."""
        where = f"({self.view.where})" if self.view.where else ""
        head = (str(self.view.line or ""), self.view.name, self.whole, self.local)
        c = self.collective
        if c is None:
            return (*head, "", "", where)
        told = c.reason if self.view.where in c.reason else f"{c.reason}  {where}"
        return (*head, str(c), bytes_text(c.sent), told)

    def as_json(self) -> dict[str, object]:
        """Return the row as plain data."""
        view = self.view
        fields: dict[str, object] = {"line": view.line, "name": view.name, "role": self.role, "global": self.whole}
        fields |= {"local": self.local, "where": view.where, "def": view.callee, "inner": view.inner}
        return fields | {"collective": self.collective.as_json() if self.collective else None}


def rows_of(compiled: Compiled, traffic: Traffic) -> list[Row]:
    """Return every row in program order, those inside inlined defs included."""
    return list(_Walk(compiled, traffic).rows())


class _Walk:
    def __init__(self, compiled: Compiled, traffic: Traffic) -> None:
        self.plan, self.mesh = compiled.refined.plan, compiled.prepared.mesh
        self.views = Views(compiled.lowered, compiled.prepared.main)
        self.held, self.returned = compiled.partitioned.local, compiled.partitioned.module.main.results
        local = compiled.partitioned.module.main.body
        moved = [op for op in local.walk() if op in compiled.partitioned.comms]
        self.comms: dict[Op | None, list[tuple[Op, Comm, Collective]]] = {}
        for op, collective in zip(moved, traffic.collectives, strict=True):
            comm = compiled.partitioned.comms[op]
            self.comms.setdefault(comm.consumer, []).append((op, comm, collective))

    def rows(self) -> Iterator[Row]:
        function = self.plan.function
        for value in function.params:
            yield self.home(self.views.of(value), "param")
        for op in function.body.ops:
            yield from self.exchanges(op)
            for value in op.results:
                if value.hint and not self.shown(op, value):
                    yield self.home(self.views.of(value), "value")
        yield from self.exchanges(None)
        for value, name, held in zip(function.results, function.result_names, self.returned, strict=True):
            view = self.views.of(value)
            shown = View(value, f"-> {name}" if name else "->", view.line, view.where, False, view.callee)
            yield self.row(shown, held, None, "result")

    def shown(self, op: Op, value: Value) -> bool:
        """Does the last exchange for an annotation leave just what it asks for?"""
        last = self.comms.get(op, [])[-1:] if op.name == "annotate" else []
        return any(comm.target == self.plan.home[value] for _, comm, _ in last)

    def home(self, view: View, role: str) -> Row:
        return self.row(view, self.held[view.value], None, role)

    def row(self, view: View, held: Value, collective: Collective | None, role: str) -> Row:
        type_ = held.type
        whole = str(type_)
        if isinstance(type_, ShardedType):
            whole = f"{type_.dtype}{type_.layout.show(type_.whole, self.mesh)}"
        plain = type_.dtype.kind == "k" and not type_.shape
        return Row(view, "key" if plain else whole, _shape(type_.shape), held, collective, role)

    def exchanges(self, consumer: Op | None) -> Iterator[Row]:
        """Rows of the copies that are made for one op, or for the results."""
        for op, comm, collective in self.comms.get(consumer, ()):
            moved = self.views.of(comm.value)
            place = collective.line, collective.where, moved.inner, collective.callee
            view = View(comm.value, collective.value, *place)
            yield self.row(view, op.result, collective, "copy")


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def lines_of(rows: list[Row], traffic: Traffic, *, everything: bool) -> list[Line]:
    """Lay the rows out; without ``everything``, values inside inlined defs are counted, not shown."""
    shown = [r for r in rows if everything or r.collective is not None or not r.view.inner]
    lines = table(COLUMNS, [r.cells() for r in shown])
    if len(shown) < len(rows):
        lines.append(
            line(f"  {len(rows) - len(shown)} values inside called defs are not shown (--all shows them)", "faint")
        )
    if traffic.collectives:
        sums = ", ".join(f"{kind} {bytes_text(sent)}" for kind, sent in traffic.by_kind.items())
        lines += [
            line(),
            (Segment("  sent per device: "), Segment(sums, "bytes"), Segment(f"; in all {bytes_text(traffic.bytes)}")),
        ]
    return lines


__all__ = ["Row", "lines_of", "rows_of", "traffic_of"]
