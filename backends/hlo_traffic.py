"""Bytes that collectives send, read from XLA's compiled program text.

The independent check of :mod:`gshard_ir.passes.traffic`: same ring accounting, another source. Per device,
n = group size: all-gather (n-1)/n of its output, all-reduce 2(n-1)/n, reduce-scatter (n-1)/n of its input,
all-to-all (n-1)/n, collective-permute the buffer times the share of devices that send.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")

_BITS = {"pred": 8, "bf16": 16, "f8e5m2": 8, "f8e4m3": 8, "f8e4m3fn": 8, "c64": 64, "c128": 128}
_TYPE = re.compile(r"\b(pred|bf16|f8e\w+|[sufc]\d+)\[([\d,]*)\]")
_COMPUTATION = re.compile(r"^(ENTRY\s+)?%?([\w.\-]+)\s+\(.*\)\s+->\s+.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT\s+)?%?([\w.\-]+)\s+=\s+(.*)$")
_CALLED = re.compile(r"\b(?:body|condition|calls|to_apply)=%?([\w.\-]+)")
_EITHER = re.compile(r"\b(?:true|false)_computation=%?([\w.\-]+)")
_BRANCHES = re.compile(r"\bbranch_computations=\{([^}]*)\}")


@dataclass(frozen=True)
class Measured:
    """Bytes ``sent`` per device: in all, by kind of collective, by XLA's element type; ``counts`` as they run."""

    sent: float
    by_kind: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Instruction:
    name: str
    result: str
    opcode: str
    operands: tuple[str, ...]
    rest: str


def measure(text: str) -> Measured:
    """Read ``compiled.as_text()``. A loop body counts as often as its known trip count (once when unknown)."""
    program = _Program.parse(text)
    sent, counts = program.walk(program.entry)
    by_kind = {k: sum(n for (kind, _), n in sent.items() if kind == k) for k in KINDS if counts[k]}
    types = sorted({dtype for _, dtype in sent})
    by_type = {t: sum(n for (_, dtype), n in sent.items() if dtype == t) for t in types}
    return Measured(sum(sent.values()), by_kind, {k: counts[k] for k in KINDS if counts[k]}, by_type)


_Sent = Counter[tuple[str, str]]
"""Bytes by (kind, element type)."""


@dataclass
class _Program:
    entry: str
    devices: int
    computations: dict[str, list[_Instruction]]
    known: dict[str, tuple[_Sent, Counter[str]]] = field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> _Program:
        found = re.search(r"\bnum_partitions=(\d+)", text)
        replicas = re.search(r"\breplica_count=(\d+)", text)
        devices = int(found.group(1)) if found else int(replicas.group(1)) if replicas else 1
        computations: dict[str, list[_Instruction]] = {}
        entry, current = "", None
        for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
            head = _COMPUTATION.match(line)
            if head:
                current = computations.setdefault(head.group(2), [])
                entry = head.group(2) if head.group(1) else entry
            elif line.startswith("}"):
                current = None
            elif current is not None and (body := _instruction(line)):
                current.append(body)
        if not entry:
            raise ValueError("no ENTRY computation: this is not the text of a compiled program")
        return _Program(entry, devices, computations)

    def walk(self, name: str) -> tuple[_Sent, Counter[str]]:
        """Bytes, and counts by kind, of one run of a computation."""
        if name in self.known:
            return self.known[name]
        sent: _Sent = Counter()
        counts: Counter[str] = Counter()
        self.known[name] = (sent, counts)
        shapes = {i.name: i.result for i in self.computations[name]}
        for one in self.computations[name]:
            kind = one.opcode.removesuffix("-start")
            if kind in KINDS:
                for dtype, moved in self._bytes(kind, one, shapes).items():
                    sent[kind, dtype] += moved  # type: ignore[assignment]
                counts[kind] += 1
                continue
            if kind.endswith("-done") or kind == "async-update":
                continue  # counted where it started
            times = _trips(one)
            for inner_sent, inner_counts in self._called(one):
                for moved_as, moved in inner_sent.items():
                    sent[moved_as] += moved * times
                for inner_kind, count in inner_counts.items():
                    counts[inner_kind] += count * times
        return sent, counts

    def _called(self, one: _Instruction) -> list[tuple[_Sent, Counter[str]]]:
        """What an instruction runs: all it calls, but of a conditional's branches the one that sends most."""
        found = [self.walk(c) for c in _CALLED.findall(one.rest) if c in self.computations]
        listed = _BRANCHES.search(one.rest)
        branches = re.findall(r"[\w.\-]+", listed.group(1)) if listed else _EITHER.findall(one.rest)
        walked = [self.walk(b) for b in branches if b in self.computations]
        return [*found, max(walked, key=lambda w: sum(w[0].values()))] if walked else found

    def _bytes(self, kind: str, one: _Instruction, shapes: Mapping[str, str]) -> dict[str, float]:
        """Bytes by element type."""
        operands: Counter[str] = Counter()
        for name in one.operands:
            operands.update(_sizes(shapes.get(name, "")))
        n = _group_size(one.rest, self.devices)
        times, over = {
            "collective-permute": (self._senders(one.rest), self.devices),
            "all-gather": (n - 1, 1),
            "all-reduce": (2 * (n - 1), n),
        }.get(kind, (n - 1, n))
        return {dtype: size * times / over for dtype, size in operands.items()}

    def _senders(self, rest: str) -> int:
        pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", rest)
        found = re.findall(r"(\d+),(\d+)", pairs.group(1)) if pairs else []
        return sum(source != target for source, target in found)


def _instruction(line: str) -> _Instruction | None:
    found = _INSTRUCTION.match(line)
    if not found:
        return None
    name, text = found.groups()
    end = _closing(text, 0) + 1 if text.startswith("(") else text.index(" ") if " " in text else len(text)
    result, tail = text[:end], text[end:].lstrip()
    opening = tail.find("(")
    if opening < 0:
        return None
    closing = _closing(tail, opening)
    operands = tuple(re.findall(r"%?([\w.\-]+)(?=,|$)", _without_types(tail[opening + 1 : closing])))
    return _Instruction(name, result, tail[:opening], operands, tail[closing + 1 :])


def _without_types(text: str) -> str:
    """Operand names alone: drop types, layouts and spaces, whatever the printer put beside the names."""
    return re.sub(r"\s+", "", re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:pred|bf16|f8e\w+|[sufc]\d+)(?=\[)", "", text))


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text) - 1


def _sizes(type_text: str) -> Counter[str]:
    """Bytes of a type by element type, the sums over a tuple's elements."""
    sizes: Counter[str] = Counter()
    for dtype, dims in _TYPE.findall(type_text):
        bits = _BITS.get(dtype) or int(dtype[1:])
        count = 1
        for n in dims.split(","):
            count *= int(n) if n else 1
        sizes[dtype] += count * bits // 8
    return sizes


def _group_size(rest: str, devices: int) -> int:
    """Devices per group: listed, as ``[groups,size]<=[...]``, or as axes of a mesh; all when nothing is said."""
    named = re.search(r"replica_groups=@?mesh\[([^\]]*)\][^{]*\{([^}]*)\}", rest)
    if named:
        sizes = dict(re.findall(r"'([^']+)'=(\d+)", named.group(1)))
        axes = re.findall(r"'([^']+)'(?::\(\d+\)(\d+))?", named.group(2))
        return math.prod(int(piece or sizes[axis]) for axis, piece in axes)
    iota = re.search(r"replica_groups=\[(\d+),(\d+)\]", rest)
    if iota:
        return int(iota.group(2))
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    return len(listed.group(1).split(",")) if listed else devices


def _trips(one: _Instruction) -> int:
    found = re.search(r'"known_trip_count":\{"n":"(\d+)"', one.rest)
    return int(found.group(1)) if one.opcode == "while" and found else 1
