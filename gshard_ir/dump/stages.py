"""One report per stage of the compiler: a heading, lines, and the same as plain data.

The JSON document, format ``gshard-dump-1``, has ``format stage file entry mesh`` and then, by stage:

- source: ``text``; ``types`` of ``{line name type}``
- ir: ``text``, the IR with locations
- propagated: ``values`` of ``{line name global where inner why}``, ``why`` of ``{dim axis causes}`` from the nearest
  cause to the annotation; ``clashes`` of ``{value line where dim axes op at by from from_dim because_of reason}``
- partitioned: ``traffic`` of ``{bytes by_kind counts collectives}``; ``values`` of ``{line name role global local
  where inner collective}`` in program order, ``role`` one of ``param value copy result``; ``local``, the IR text
- emitted: ``target``, ``text``

A collective is ``{kind axes detail bytes value line where reason}``. Bytes are sent per device; lines are those of the
entry's file; ``where`` is the place inside a called def, and ``inner`` tells that only that def names the value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gshard_ir.dump.table import Line, Segment, line, plain
from gshard_ir.errors import fail

if TYPE_CHECKING:
    from gshard_ir.program import Program

FORMAT = "gshard-dump-1"


@dataclass(frozen=True)
class Report:
    """What a stage looks like: ``lines`` for people, ``data`` for programs."""

    lines: tuple[Line, ...]
    data: dict[str, object]

    def text(self) -> str:
        """Return plain text, ending in a newline."""
        return plain(self.lines)

    def json(self) -> str:
        """Return indented JSON, ending in a newline; the same program gives the same bytes."""
        return json.dumps(self.data, indent=1, ensure_ascii=False) + "\n"


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
    return Report((*_title(program), *source.lines_of(program.lowered, program.file)), data)


def _ir(program: Program) -> Report:
    from gshard_ir.text import print_module

    text = print_module(program.lowered, locations=False)
    data = _head(program, "ir") | {"text": print_module(program.lowered)}
    return Report(tuple(line(t) for t in text.splitlines()), data)


def _propagated(program: Program, everything: bool) -> Report:
    from gshard_ir.dump import propagated

    causes = propagated.Causes(program.compiled)
    clashes = [causes.clash(c) for c in program.compiled.propagation.clashes]
    rows = causes.rows()
    data = _head(program, "propagated") | {"values": [r.as_json() for r in rows], "clashes": clashes}
    return Report((*_title(program), *propagated.lines_of(causes, everything=everything)), data)


def _partitioned(program: Program, everything: bool) -> Report:
    from gshard_ir.dump import partitioned
    from gshard_ir.text import print_module

    traffic = program.traffic()
    rows = partitioned.rows_of(program.compiled, traffic)
    data = _head(program, "partitioned") | {"traffic": traffic.as_json(), "values": [r.as_json() for r in rows]}
    data |= {"local": print_module(program.local)}
    lines = partitioned.lines_of(rows, traffic, everything=everything)
    return Report((*_title(program, traffic.summary()), *lines), data)


def _emitted(program: Program, target: str) -> Report:
    text = program.emit(target)
    data = _head(program, "emitted") | {"target": target, "text": text}
    return Report(tuple(line(t) for t in text.splitlines()), data)
