"""One report per stage of the compiler: a heading, lines, and the same as plain data.

``docs/dump-format.md`` describes the JSON document, format ``gshard-dump-1``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gshard_ir.dump.table import Line, Segment, line, plain
from gshard_ir.errors import fail

if TYPE_CHECKING:
    from gshard_ir.program import Program

FORMAT = "gshard-dump-1"
FORMATS = ("text", "json", "html", "dot")


@dataclass(frozen=True)
class Report:
    """What a stage looks like: ``lines`` for people, ``data`` for programs; where there is more to see, how to draw it.

    ``annotated`` gives the body of the HTML, which is the lines as they stand without it; ``graph`` gives
    the text for Graphviz.
    """

    title: str
    lines: tuple[Line, ...]
    data: dict[str, object]
    annotated: Callable[[], str] | None = None
    graph: Callable[[], str] | None = None

    def text(self) -> str:
        """Return plain text, ending in a newline."""
        return plain(self.lines)

    def json(self) -> str:
        """Return indented JSON, ending in a newline; the same program gives the same bytes."""
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"

    def html(self) -> str:
        """Return a piece of HTML that can stand in any page."""
        from gshard_ir.dump import html

        return html.fragment(self.annotated() if self.annotated else html.preformatted(self.lines))

    def dot(self) -> str:
        """Return a graph for Graphviz; raises ``GShardError`` for a stage that is none."""
        if self.graph is None:
            raise fail(f"stage {self.data['stage']} has no graph", suggestion="--stage partitioned --format dot")
        return self.graph()

    def render(self, format: str) -> str:
        """Return one of :data:`FORMATS`, HTML as a whole page; raises ``GShardError`` for another one."""
        from gshard_ir.data import nearest
        from gshard_ir.dump.html import page

        if format not in FORMATS:
            note = f"formats are {', '.join(FORMATS)}"
            raise fail(f"unknown format {format}", None, note, suggestion=nearest(format, FORMATS))
        if format == "html":
            return page(self.title, self.html())
        return {"text": self.text, "json": self.json, "dot": self.dot}[format]()


def report(program: Program, stage: str, *, target: str = "jax", everything: bool = False) -> Report:
    """Build the report of one stage; raises ``GShardError`` for an unknown one."""
    from gshard_ir.data import nearest
    from gshard_ir.program import STAGES

    if stage not in STAGES:
        note = f"stages are {', '.join(STAGES)}"
        raise fail(f"unknown stage {stage}", None, note, suggestion=nearest(stage, STAGES))
    if stage == "source":
        return _source(program)
    if stage == "ir":
        return _ir(program)
    if stage == "propagated":
        return _propagated(program, everything)
    if stage == "partitioned":
        return _partitioned(program, everything)
    return _emitted(program, target)


def _head(program: Program, stage: str) -> dict[str, object]:
    head: dict[str, object] = {"format": FORMAT, "stage": stage, "file": program.file.name}
    return head | {"entry": program.entry, "mesh": program.mesh_sizes}


def _title(program: Program, rest: str = "") -> list[Line]:
    tail = f"    mesh {program.lowered.mesh}{f'    {rest}' if rest else ''}"
    return [(Segment(program.title, "head"), Segment(tail)), line()]


def _source(program: Program) -> Report:
    from gshard_ir.dump import source

    found = source.names_by_line(program.lowered, program.file)
    types = [{"line": at, "name": n, "type": t} for at, names in found.items() for n, t in names.items()]
    data = _head(program, "source") | {"text": program.file.text, "types": types}
    return Report(program.title, (*_title(program), *source.lines_of(program.lowered, program.file)), data)


def _ir(program: Program) -> Report:
    from gshard_ir.text import print_module

    text = print_module(program.lowered, locations=False)
    data = _head(program, "ir") | {"text": print_module(program.lowered)}
    return Report(program.title, tuple(line(t) for t in text.splitlines()), data)


def _propagated(program: Program, everything: bool) -> Report:
    from gshard_ir.dump import propagated

    causes = propagated.Causes(program.compiled)
    clashes = [causes.clash(c) for c in program.compiled.propagation.clashes]
    rows = causes.rows()
    data = _head(program, "propagated") | {"values": [r.as_json() for r in rows], "clashes": clashes}
    return Report(program.title, (*_title(program), *propagated.lines_of(causes, everything=everything)), data)


def _partitioned(program: Program, everything: bool) -> Report:
    from gshard_ir.dump import dot, html, partitioned
    from gshard_ir.text import print_module

    traffic = program.traffic()
    rows = partitioned.rows_of(program.compiled, traffic)
    data = _head(program, "partitioned") | {"traffic": traffic.as_json(), "values": [r.as_json() for r in rows]}
    data |= {"local": print_module(program.local)}
    lines = (*_title(program, traffic.summary()), *partitioned.lines_of(rows, traffic, everything=everything))
    return Report(
        program.title,
        lines,
        data,
        lambda: html.annotated(program.title, str(program.lowered.mesh), program.file, rows, traffic),
        lambda: dot.graph(program.title, program.local.main, rows, everything=everything),
    )


def _emitted(program: Program, target: str) -> Report:
    text = program.emit(target)
    data = _head(program, "emitted") | {"target": target, "text": text}
    return Report(program.title, tuple(line(t) for t in text.splitlines()), data)
