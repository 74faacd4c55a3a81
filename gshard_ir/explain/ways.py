"""What other ways to run an op would have cost: priced by the search, counted by partitioning them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gshard_ir.explain.model import Decision, Way
from gshard_ir.explain.words import Words
from gshard_ir.factors import consistent, project
from gshard_ir.ir import Op, Value
from gshard_ir.opdef import opdef
from gshard_ir.passes.partition import partition
from gshard_ir.passes.plan import Strategy, local_space, result_layout
from gshard_ir.passes.refine import Alternative
from gshard_ir.passes.traffic import of_module
from gshard_ir.pipeline import Compiled

SHOWN = 3
"""Ways that a decision lists beside propagation's own."""


@dataclass(frozen=True)
class Count:
    """Bytes that a device sends and collectives that it launches."""

    bytes: float
    collectives: int


class Ways:
    """Compares ways to run single ops of a compiled program, all other ops as planned."""

    def __init__(self, compiled: Compiled, words: Words) -> None:
        self.compiled, self.words = compiled, words
        self.plan, self.propagation = compiled.refined.plan, compiled.propagation
        self.mesh = self.plan.mesh
        self.found: dict[Op, tuple[Alternative, ...]] = {}
        self.counts: dict[tuple[Op, Strategy], Count] = {}
        sent = [t.sent for _, t in of_module(compiled.partitioned.module)]
        self.planned = Count(sum(sent), len(sent))

    def alternatives(self, op: Op) -> tuple[Alternative, ...]:
        """Every other way that the search could have taken, cheapest first."""
        if op not in self.found:
            self.found[op] = self.compiled.refined.alternatives(op)
        return self.found[op]

    def count(self, op: Op, strategy: Strategy) -> Count:
        """Count what the whole program sends when ``op`` runs as ``strategy``."""
        if (op, strategy) not in self.counts:
            plan = replace(self.plan, strategies={**self.plan.strategies, op: strategy})
            sent = [t.sent for _, t in of_module(partition(self.compiled.prepared, plan).module)]
            self.counts[op, strategy] = Count(sum(sent), len(sent))
        return self.counts[op, strategy]

    def decision(self, value: Value, op: Op) -> Decision | None:
        """Say why the op that makes ``value`` does not leave it as propagation laid it out; None when it does."""
        home, proposed = self.plan.home[value], self.propagation.layouts[value]
        moved = home.dims != proposed.dims or (home.pending and self.changed(op))
        return self.of_op(op) if op.name != "barrier" and moved else None

    def changed(self, op: Op) -> bool:
        """Has the search found a better way to run an op than propagation's?"""
        return self.compiled.refined.first[op] != self.plan.strategies[op]

    def of_op(self, op: Op) -> Decision:
        """Say why ``op`` runs as it does."""
        first, chosen = self.compiled.refined.first[op], self.plan.strategies[op]
        others = self.alternatives(op)
        shown = [a for a in others if a.strategy == first]
        shown += [a for a in others if a.strategy != first][:SHOWN]
        return Decision(
            self.words.op(op),
            self.words.place(op.span),
            self.words.split(op, chosen),
            self.words.split(op, first),
            tuple(self.way(op, a) for a in shown),
            len(others) - len(shown),
        )

    def way(self, op: Op, alternative: Alternative) -> Way:
        """Put one alternative into numbers and words."""
        strategy = alternative.strategy
        counted = self.count(op, strategy)
        why, detail = self._why_not(alternative, counted)
        return self._way(op, strategy, counted, why, detail)

    def _way(self, op: Op, strategy: Strategy, counted: Count, why: str, detail: str) -> Way:
        rule = self.plan.rules[op]
        work = local_space(rule, strategy.split, self.mesh) - local_space(
            rule, self.plan.strategies[op].split, self.mesh
        )
        return Way(
            self.words.split(op, strategy),
            counted.bytes - self.planned.bytes,
            counted.collectives - self.planned.collectives,
            work,
            why,
            detail,
            strategy == self.compiled.refined.first[op],
        )

    def _why_not(self, alternative: Alternative, counted: Count) -> tuple[str, str]:
        if alternative.obstacle:
            return ("memory" if alternative.obstacle.startswith("a peak") else "work"), alternative.obstacle
        price = round(alternative.price, 6)
        if price > 0:
            more = counted.collectives - self.planned.collectives
            launch = f"each collective counts as {self.words.bytes(self.plan.launch_bytes)}"
            return "price", launch if more and counted.bytes <= self.planned.bytes else ""
        if price < 0 or alternative.work < 0:
            return "off", ""
        return ("work", "as many bytes") if alternative.work > 0 else ("even", "")

    def towards(self, value: Value, op: Op, dim: int, axes: tuple[str, ...]) -> Way | None:
        """The cheapest way to run ``op`` so that dim ``dim`` of its result ``value`` is split over ``axes``."""
        rule, i = self.plan.rules[op], op.results.index(value)
        asked = [a for a in self.alternatives(op) if project(rule.results[i], a.strategy.split)[dim] == axes]
        if asked:
            return self.way(op, next((a for a in asked if not a.obstacle), asked[0]))
        return self._closed(value, op, dim, axes)

    def _closed(self, value: Value, op: Op, dim: int, axes: tuple[str, ...]) -> Way | None:
        """A way that the search may not take: the op as planned, but for these axes on this dim."""
        rule, now, i = self.plan.rules[op], self.plan.strategies[op], op.results.index(value)
        (factor, *others) = rule.results[i][dim]
        if op.name in ("annotate", "like", "barrier") or others:
            return None
        split = tuple(
            axes if f == factor else tuple(a for a in old if a not in axes) for f, old in enumerate(now.split)
        )
        strategy = Strategy(split, tuple((a, g) for a, g in now.linear if a not in axes))
        if not consistent(rule, split, self.mesh) or result_layout(rule, strategy, i, self.mesh).dims[dim] != axes:
            return None
        points, before = local_space(rule, split, self.mesh), local_space(rule, now.split, self.mesh)
        why, detail = "uneven", ""
        if opdef(op.name).family == "contraction" and points > before:
            why, detail = "work", f"{points:,} points of the contraction on each device instead of {before:,}"
        return self._way(op, strategy, self.count(op, strategy), why, detail)
