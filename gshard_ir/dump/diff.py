"""Two dumps side by side: layouts that changed, then collectives, then bytes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gshard_ir.dump.snapshot import Held, Snapshot
from gshard_ir.dump.table import Column, Line, Segment, line, table
from gshard_ir.dump.traffic import Collective, bytes_text, number
from gshard_ir.errors import fail

T = TypeVar("T")
MOST_CELLS = 250_000
"""Pairs that are weighed for names that occur often; beyond that occurrences are paired in order."""


@dataclass(frozen=True)
class Diff:
    """What differs between ``a`` and ``b``.

    ``changed`` values have another layout or type; ``resized`` ones the same, but one device holds another
    shape, as the mesh differs. Values are matched by role, def and name, repeated names by place. A
    collective is the same if it does the same to the same value; ``repriced`` ones send other bytes.
    """

    a: Snapshot
    b: Snapshot
    changed: tuple[tuple[Held, Held], ...]
    resized: tuple[tuple[Held, Held], ...]
    added: tuple[Held, ...]
    removed: tuple[Held, ...]
    more: tuple[Collective, ...]
    fewer: tuple[Collective, ...]
    repriced: tuple[tuple[Collective, Collective], ...]

    @property
    def same_mesh(self) -> bool:
        """Do both meshes have the same axes, apart from those of size 1?"""
        meshes = [[(n, k) for n, k in side.mesh.items() if k > 1] for side in (self.a, self.b)]
        return meshes[0] == meshes[1]

    @property
    def same(self) -> bool:
        """Is there no difference at all?"""
        values = (self.changed, self.resized, self.added, self.removed)
        return self.same_mesh and not any(values) and not any((self.more, self.fewer, self.repriced))

    @property
    def increase(self) -> float | None:
        """Bytes per device that ``b`` sends more; None in a stage without collectives."""
        return None if self.a.bytes is None or self.b.bytes is None else self.b.bytes - self.a.bytes

    def as_json(self) -> dict[str, object]:
        """Return everything as plain data."""
        fields: dict[str, object] = {"same": self.same, "same_mesh": self.same_mesh, "stage": self.a.stage}
        for key, side in (("a", self.a), ("b", self.b)):
            sent = None if side.bytes is None else number(side.bytes)
            fields[key] = {"file": side.file, "entry": side.entry, "mesh": dict(side.mesh), "bytes": sent}
        layouts = {
            "changed": [_pair_json(a, b) for a, b in self.changed],
            "resized": [_pair_json(a, b) for a, b in self.resized],
            "added": [_name_json(v) | v.as_json() for v in self.added],
            "removed": [_name_json(v) | v.as_json() for v in self.removed],
        }
        collectives = {
            "added": [c.as_json() for c in self.more],
            "removed": [c.as_json() for c in self.fewer],
            "repriced": [{"a": a.as_json(), "b": b.as_json()} for a, b in self.repriced],
        }
        kinds = {
            kind: {"a": number(self.a.by_kind.get(kind, 0)), "b": number(self.b.by_kind.get(kind, 0))}
            for kind in sorted({*self.a.by_kind, *self.b.by_kind})
        }
        fields |= {"layouts": layouts, "collectives": collectives, "by_kind": kinds}
        return fields | {"increase": None if self.increase is None else number(self.increase)}


def _name_json(value: Held) -> dict[str, object]:
    return {"name": value.name, "def": value.callee, "role": value.role}


def _pair_json(a: Held, b: Held) -> dict[str, object]:
    return _name_json(b) | {"a": a.as_json(), "b": b.as_json()}


def diff(a: Snapshot, b: Snapshot) -> Diff:
    """Compare two dumps of one stage; raises ``GShardError`` when their stages differ."""
    if a.stage != b.stage:
        raise fail(f"a is a dump of stage {a.stage}, b of stage {b.stage}: only the same stages compare")
    pairs = align(a.values, b.values, _value_key, _value_likeness)
    both = [(x, y) for x, y in pairs if x is not None and y is not None]
    collectives = align(a.collectives or (), b.collectives or (), _collective_key, _collective_likeness)
    return Diff(
        a,
        b,
        tuple((x, y) for x, y in both if x.whole != y.whole),
        tuple((x, y) for x, y in both if x.whole == y.whole and x.local != y.local),
        # A copy belongs to its collective: it is listed there.
        tuple(y for x, y in pairs if x is None and y is not None and y.role != "copy"),
        tuple(x for x, y in pairs if y is None and x is not None and x.role != "copy"),
        tuple(y for x, y in collectives if x is None and y is not None),
        tuple(x for x, y in collectives if y is None and x is not None),
        tuple((x, y) for x, y in collectives if x is not None and y is not None and x.sent != y.sent),
    )


def _value_key(value: Held) -> Hashable:
    role = value.role if value.role in ("param", "result") else "value"
    return role, value.callee, value.name


def _value_likeness(a: Held, b: Held) -> int:
    return 1 + 2 * (a.line == b.line) + (a.where == b.where) + 2 * (a.whole == b.whole) + (a.role == b.role)


def _collective_key(moved: Collective) -> Hashable:
    return moved.kind, moved.axes, moved.detail, moved.callee, moved.value


def _collective_likeness(a: Collective, b: Collective) -> int:
    return 1 + 2 * (a.line == b.line) + (a.where == b.where) + (a.reason == b.reason) + (a.sent == b.sent)


def align(
    a: Sequence[T], b: Sequence[T], key: Callable[[T], Hashable], likeness: Callable[[T, T], int]
) -> list[tuple[T | None, T | None]]:
    """Match items of equal key, in order; where one side has more of them, the most alike are matched.

    Pairs come in the order of ``b``, then what only ``a`` has, in its order.
    """
    groups: dict[Hashable, tuple[list[int], list[int]]] = {}
    for side, items in enumerate((a, b)):
        for i, item in enumerate(items):
            groups.setdefault(key(item), ([], []))[side].append(i)
    partner: dict[int, int] = {}
    for ours, theirs in groups.values():
        found = _match([a[i] for i in ours], [b[j] for j in theirs], likeness)
        partner.update((theirs[j], ours[i]) for i, j in found)
    taken = set(partner.values())
    pairs: list[tuple[T | None, T | None]] = [
        (a[partner[j]] if j in partner else None, item) for j, item in enumerate(b)
    ]
    return pairs + [(item, None) for i, item in enumerate(a) if i not in taken]


def _match(a: Sequence[T], b: Sequence[T], likeness: Callable[[T, T], int]) -> list[tuple[int, int]]:
    """Pair as many as possible, in order, most alike in sum (the longest-common-subsequence recurrence)."""
    if len(a) == len(b) or len(a) * len(b) > MOST_CELLS:
        return [(i, i) for i in range(min(len(a), len(b)))]
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    like = [[likeness(x, y) for y in b] for x in a]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], best[i + 1][j + 1] + like[i][j])
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if best[i][j] == best[i + 1][j + 1] + like[i][j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    return found


VALUES = (
    Column("", "bytes"),
    Column("line", "faint", right=True),
    Column("value", "name"),
    Column("a"),
    Column("b"),
    Column(""),
)
COLLECTIVES = (
    Column("", "bytes"),
    Column("line", "faint", right=True),
    Column("value", "name"),
    Column("communication", "comm"),
    Column("sent", "bytes", right=True),
    Column("why"),
)


def lines_of(found: Diff, *, everything: bool = False) -> list[Line]:
    """Lay out a diff; without ``everything``, values with the same layout on another mesh are only counted."""
    lines = [_head("a", found.a), _head("b", found.b), line()]
    if found.same:
        return [*lines, (Segment("  "), Segment("no difference", "good"))]
    rows = [
        *(("~", _lines(x, y), y.name, x.whole, y.whole, _place(y)) for x, y in found.changed),
        *(("-", str(x.line or ""), x.name, x.whole, "", _place(x)) for x in found.removed),
        *(("+", str(y.line or ""), y.name, "", y.whole, _place(y)) for y in found.added),
    ]
    if everything:
        resized = ((x, y, f"{x.whole}: {x.local}", f"{y.whole}: {y.local}") for x, y in found.resized)
        rows += [("=", _lines(x, y), y.name, left, right, _place(y)) for x, y, left, right in resized]
    lines += table(VALUES, rows) if rows else [line("  every layout is the same")]
    if found.resized and not everything:
        n = len(found.resized)
        told = (
            "1 value keeps its layout, one device holds"
            if n == 1
            else f"{n} values keep their layout, one device holds"
        )
        lines.append(line(f"  {told} another shape of it (--all shows them)", "faint"))
    return [*lines, *_collectives(found), *_bytes(found)]


def _head(name: str, side: Snapshot) -> Line:
    sent = "" if side.bytes is None else f"    {bytes_text(side.bytes)} sent per device"
    return (Segment(f"{name}: {side.title}", "head"), Segment(f"    mesh {side.shown_mesh}{sent}"))


def _lines(a: Held | Collective, b: Held | Collective) -> str:
    return str(b.line or "") if a.line == b.line else f"{a.line} -> {b.line}"


def _place(value: Held) -> str:
    inside = f"in {value.callee}" if value.callee else ""
    return f"({', '.join(w for w in (inside, value.where) if w)})" if inside or value.where else ""


def _collectives(found: Diff) -> list[Line]:
    if found.a.collectives is None:
        return []
    rows = [
        *(("-", str(c.line or ""), c.value, str(c), bytes_text(c.sent), c.reason) for c in found.fewer),
        *(("+", str(c.line or ""), c.value, str(c), bytes_text(c.sent), c.reason) for c in found.more),
        *(
            ("~", _lines(x, y), y.value, str(y), f"{bytes_text(x.sent)} -> {bytes_text(y.sent)}", y.reason)
            for x, y in found.repriced
        ),
    ]
    return [line(), *(table(COLLECTIVES, rows) if rows else [line("  every collective is the same")])]


def _bytes(found: Diff) -> list[Line]:
    a, b, increase = found.a.bytes, found.b.bytes, found.increase
    if a is None or b is None or increase is None:
        return []
    lines = [line()]
    for kind in sorted({*found.a.by_kind, *found.b.by_kind}):
        before, after = found.a.by_kind.get(kind, 0.0), found.b.by_kind.get(kind, 0.0)
        if before != after:
            lines.append(line(f"  {kind}: {bytes_text(before)} -> {bytes_text(after)}"))
    share = f", {100 * increase / a:+.1f} %" if a else ""
    told = f"{bytes_text(a)} -> {bytes_text(b)} ({'+' if increase >= 0 else ''}{bytes_text(increase)}{share})"
    tail = f"  sent per device: {told}" if increase else f"  sent per device: {bytes_text(a)} both"
    return [*lines, line(tail, "bad" if increase > 0 else "good" if increase < 0 else "")]
