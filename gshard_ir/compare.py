"""Ours against what XLA's own partitioner makes of the same annotations: same mesh, arguments and process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gshard_ir.agreement import Difference, difference
from gshard_ir.dump.traffic import number
from gshard_ir.opdef import Array
from gshard_ir.passes.traffic import of_module
from gshard_ir.program import Program

if TYPE_CHECKING:
    from gshard_ir.backends.jax_measure import Step

SIDES = {"ours": "jax", "jax-auto": "jax-auto"}
"""Who is compared: the name in reports and the target that is emitted."""

NARROW = {"bf16": "bf16", "f16": "f16"}
"""Element types that a backend may widen, and what XLA calls them."""


@dataclass(frozen=True)
class Side:
    """One of the two programs.

    Bytes are sent per device in one run, read from XLA's compiled text; ``by_kind`` and ``counts`` go by
    XLA's kinds of collectives. ``temp_bytes`` is memory of one device beside arguments and results.
    ``step_seconds`` is the median.
    """

    sent: float
    by_kind: dict[str, float]
    counts: dict[str, int]
    temp_bytes: int
    compile_seconds: float
    step_seconds: float

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain data."""
        fields: dict[str, object] = {"bytes": number(self.sent)}
        fields |= {"by_kind": {k: number(n) for k, n in self.by_kind.items()}, "counts": self.counts}
        fields |= {"temp_bytes": self.temp_bytes, "compile_seconds": self.compile_seconds}
        return fields | {"step_seconds": self.step_seconds}


@dataclass(frozen=True)
class Promoted:
    """Bytes of a narrow element type that the backend sends as a wider one.

    ``planned`` is what the collectives send by our plan, ``sent`` what XLA still sends as that type;
    ``collectives`` are those that are affected, if all are, else none: which ones is not known then.
    """

    dtype: str
    planned: float
    sent: float
    collectives: tuple[str, ...]

    @property
    def bytes(self) -> float:
        """Planned bytes that go as a wider type."""
        return self.planned - self.sent

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain data."""
        fields: dict[str, object] = {"dtype": self.dtype, "planned": number(self.planned), "bytes": number(self.bytes)}
        return fields | {"collectives": list(self.collectives)}


@dataclass(frozen=True)
class Comparison:
    """What was measured. ``planned`` is what our own plan says is sent; ``ratios`` are step times, ours / theirs."""

    ours: Side
    auto: Side
    planned: float
    promoted: tuple[Promoted, ...]
    ratios: tuple[float, ...]
    differences: tuple[Difference, ...]

    @property
    def step_ratio(self) -> float:
        """The median of the paired ratios."""
        return statistics.median(self.ratios)

    @property
    def agrees(self) -> bool:
        """Do both give the same values?"""
        return all(d.agrees for d in self.differences)

    def as_json(self) -> dict[str, object]:
        """Return everything as plain data."""
        fields: dict[str, object] = {"ours": self.ours.as_json(), "jax_auto": self.auto.as_json()}
        fields |= {"planned_bytes": number(self.planned), "promoted": [p.as_json() for p in self.promoted]}
        fields |= {"step_ratio": self.step_ratio, "step_ratios": list(self.ratios)}
        return fields | {"agrees": self.agrees, "outputs": [d.as_json() for d in self.differences]}


def compare(
    program: Program, args: Sequence[Array], *, runs: int = 15, tell: Callable[[str], None] = lambda _: None
) -> Comparison:
    """Compile both, check their values against each other, and time ``runs`` pairs of steps in turn.

    ``args`` are whole arrays, one per parameter; ``tell`` hears what is going on. Raises ``GShardError`` when
    jax has fewer devices than the mesh.
    """
    from gshard_ir.backends import jax_measure
    from gshard_ir.backends.jax_run import Executable

    jax_measure.warm_up()
    steps = []
    for name, target in SIDES.items():
        tell(f"compiling {name}")
        steps.append(jax_measure.prepare(Executable(program.emit(target), program.local), args))
    ours, auto = steps
    tell("comparing values")
    main = program.lowered.main
    values = zip(main.result_names, main.results, ours.results(), auto.results(), strict=True)
    differences = [difference("jax-auto", name or "result", str(v.type), a, b) for name, v, a, b in values]
    tell("timing")
    times = jax_measure.pairs(ours, auto, runs)
    first, second = zip(*times, strict=True)
    planned = program.traffic().bytes
    ratios = tuple(a / b for a, b in times)
    return Comparison(
        _side(ours, first), _side(auto, second), planned, promoted(program, ours), ratios, tuple(differences)
    )


def _side(step: Step, times: Sequence[float]) -> Side:
    moved = step.moved
    median = statistics.median(times)
    return Side(moved.sent, dict(moved.by_kind), dict(moved.counts), step.temp_bytes, step.compile_seconds, median)


def promoted(program: Program, ours: Step) -> tuple[Promoted, ...]:
    """Find what the plan sends as a narrow type and XLA's program does not."""
    moved = list(zip(of_module(program.local), program.traffic().collectives, strict=True))
    found = []
    for dtype, xla in NARROW.items():
        narrow = [(t.sent, c) for (op, t), c in moved if op.operands[0].dtype.name == dtype and t.sent]
        planned, sent = sum(n for n, _ in narrow), ours.moved.by_type.get(xla, 0.0)
        if sent < planned:
            named = [f"{c.value} (line {c.line}), {c}" for _, c in narrow] if not sent else []
            found.append(Promoted(dtype, planned, sent, tuple(named)))
    return tuple(found)
