"""What a diff compares: values and collectives of one dump, of a program or read back from saved JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gshard_ir.dump.stages import FORMAT, report
from gshard_ir.dump.traffic import Collective
from gshard_ir.errors import fail

if TYPE_CHECKING:
    from gshard_ir.program import Program

STAGES = ("partitioned", "propagated")
"""Stages that have layouts to compare."""


@dataclass(frozen=True)
class Held:
    """A value with its layout. ``local`` is empty in the propagated stage."""

    role: str
    name: str
    callee: str
    line: int
    where: str
    whole: str
    local: str

    def as_json(self) -> dict[str, object]:
        """Return the side's own facts as plain data."""
        return {"line": self.line, "where": self.where, "global": self.whole, "local": self.local}


@dataclass(frozen=True)
class Snapshot:
    """One side of a diff; ``collectives`` is None in the propagated stage, which sends nothing yet."""

    stage: str
    file: str
    entry: str
    mesh: Mapping[str, int]
    values: tuple[Held, ...]
    collectives: tuple[Collective, ...] | None

    @property
    def title(self) -> str:
        """``moe.gshard:moe``."""
        return f"{self.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{self.entry}"

    @property
    def shown_mesh(self) -> str:
        return ",".join(f"{axis}={size}" for axis, size in self.mesh.items())

    @property
    def bytes(self) -> float | None:
        """Bytes sent per device."""
        return None if self.collectives is None else sum(c.sent for c in self.collectives)

    @property
    def by_kind(self) -> dict[str, float]:
        """Bytes by kind of collective."""
        found: dict[str, float] = {}
        for c in self.collectives or ():
            found[c.kind] = found.get(c.kind, 0.0) + c.sent
        return found


def of_program(program: Program, stage: str = "partitioned") -> Snapshot:
    """Return what a program's own dump says."""
    return of_document(report(program, stage).data, program.title)


def read(text: str, label: str) -> Snapshot:
    """Read a saved dump; ``label`` is what messages call it. Raises ``GShardError`` for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise fail(f"{label} is no JSON document", suggestion="gshard dump FILE --format json") from None
    return of_document(found, label)


def of_document(document: object, label: str) -> Snapshot:
    """Take what is needed from a ``gshard-dump-1`` document; fields that are not known are passed over."""
    top = _Fields(document, label, "")
    if (format_ := top.text("format")) != FORMAT:
        raise fail(f"{label} has format {format_}, expected {FORMAT}", suggestion="gshard dump FILE --format json")
    stage = top.text("stage")
    if stage not in STAGES:
        edit = "gshard dump FILE --stage partitioned --format json"
        raise fail(f"{label} is a dump of stage {stage}, which has no layouts", suggestion=edit)
    values, collectives = [], []
    for row in top.rows("values"):
        role = row.text("role") if stage == "partitioned" else "value"
        local = row.text("local") if stage == "partitioned" else ""
        whole, where = row.text("global"), row.text("where")
        values.append(Held(role, row.text("name"), row.text("def"), row.count("line"), where, whole, local))
    for row in top.inner("traffic").rows("collectives") if stage == "partitioned" else ():
        what = row.text("kind"), row.text("axes"), row.text("detail"), row.bytes("bytes"), row.text("value")
        place = row.count("line"), row.text("where"), row.text("reason"), row.text("def")
        collectives.append(Collective(*what, *place))
    sent = tuple(collectives) if stage == "partitioned" else None
    return Snapshot(stage, top.text("file"), top.text("entry"), top.inner("mesh").counts(), tuple(values), sent)


@dataclass(frozen=True)
class _Fields:
    """An object of an untrusted document, with its place in it."""

    found: object
    label: str
    place: str

    def get(self, name: str) -> object:
        if not isinstance(self.found, dict):
            raise fail(f"{self.label} is no {FORMAT} document: {self.place or 'it'} is no object")
        if name not in self.found:
            raise fail(f"{self.label} is no {FORMAT} document: it has no {self.inside(name)}")
        found: object = self.found[name]
        return found

    def inside(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def wrong(self, name: str, what: str) -> Exception:
        return fail(f"{self.label} is no {FORMAT} document: {self.inside(name)} is no {what}")

    def text(self, name: str) -> str:
        found = self.get(name)
        if not isinstance(found, str):
            raise self.wrong(name, "string")
        return "".join(ch if ch.isprintable() else " " for ch in found)

    def count(self, name: str) -> int:
        found = self.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**63:
            raise self.wrong(name, "count")
        return found

    def bytes(self, name: str) -> float:
        found = self.get(name)
        if not isinstance(found, int | float) or isinstance(found, bool) or not 0 <= found < 2**63:
            raise self.wrong(name, "number of bytes")
        return float(found)

    def inner(self, name: str) -> _Fields:
        return _Fields(self.get(name), self.label, self.inside(name))

    def rows(self, name: str) -> Sequence[_Fields]:
        found = self.get(name)
        if not isinstance(found, list):
            raise self.wrong(name, "list")
        return [_Fields(row, self.label, f"{self.inside(name)}[{i}]") for i, row in enumerate(found)]

    def counts(self) -> dict[str, int]:
        if not isinstance(self.found, dict):
            raise fail(f"{self.label} is no {FORMAT} document: {self.place} is no object")
        shown = {"".join(ch if ch.isprintable() else " " for ch in name): self.count(name) for name in self.found}
        if any(size < 1 for size in shown.values()) or math.prod(shown.values()) >= 2**63:
            raise fail(f"{self.label} is no {FORMAT} document: {self.place} is no mesh")
        return shown
