"""Why a value lies as it does: links from (value, dim, axis) back to an annotation, or to the search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gshard_ir.factors import Dims, Rule
from gshard_ir.ir import Op, Value, users
from gshard_ir.passes.plan import Plan
from gshard_ir.passes.propagate import Propagation
from gshard_ir.reasons import chain as propagated
from gshard_ir.source import Span

Spot = tuple[Value, int]
"""A value and one of its dims."""


@dataclass(frozen=True)
class Hop:
    """One link, in terms of the IR; the words are those of :class:`~gshard_ir.explain.model.Link`.

    ``factor`` is an index into the op's rule, None for an annotation; ``how`` is the annotation's text.
    """

    rule: str
    value: Value
    dim: int | None
    op: Op | None = None
    factor: int | None = None
    how: str = ""
    span: Span | None = None
    kept: bool = True


@dataclass(frozen=True)
class Trace:
    """The links of one axis; ``end`` is ``annotation`` or ``cost``."""

    hops: tuple[Hop, ...]
    end: str


def tensors(op: Op, rule: Rule) -> Iterator[tuple[Value, Dims]]:
    """Yield each operand and result with the factors of its dims."""
    yield from zip(op.operands, rule.operands, strict=True)
    yield from zip(op.results, rule.results, strict=True)


def dims_with(op: Op, rule: Rule, factor: int) -> Iterator[Spot]:
    """Yield the dims of the op's tensors that hold a factor."""
    for value, dims in tensors(op, rule):
        for dim, factors in enumerate(dims):
            if factor in factors:
                yield value, dim


class Chains:
    """Follows layouts to their origin in one plan and the propagation that it started from."""

    def __init__(self, propagation: Propagation, plan: Plan) -> None:
        self.propagation, self.plan, self.mesh = propagation, plan, plan.mesh
        self.producer = {v: op for op in plan.function.body.ops for v in op.results}
        self.users = users(plan.function.body)

    def proposed(self, value: Value, dim: int, axis: str) -> Trace:
        """Why propagation put an axis there."""
        hops = []
        for link in propagated(self.propagation, value, dim, axis):
            cause, kept = link.cause, axis in self.plan.home[link.value].dims[link.dim]
            if cause.source is None or cause.op is None:
                hops.append(Hop("annotation", link.value, link.dim, None, None, cause.how, cause.span, kept))
                continue
            factor = self._common(cause.op, (link.value, link.dim), cause.source, cause.factor)
            hops.append(Hop("factor", link.value, link.dim, cause.op, factor, span=cause.span, kept=kept))
        return Trace(tuple(hops), "annotation")

    def _common(self, op: Op, spot: Spot, source: Spot, name: str) -> int:
        """The factor that ties two dims of an op; the one called ``name`` where there are several."""
        rule = self.propagation.rules[op]
        found = [f for f in range(len(rule.factors)) if {spot, source} <= set(dims_with(op, rule, f))]
        return next((f for f in found if rule.factors[f].name == name), found[0])

    def held(self, value: Value, dim: int, axis: str) -> Trace:
        """Why a value has an axis on a dim in the end."""
        made = self.producer.get(value)
        if made is not None and made.name == "barrier":
            (factor,) = self.plan.rules[made].results[0][dim]
            rest = self.held(made.operands[0], dim, axis)
            return Trace((Hop("copy", value, dim, made, factor, span=made.span), *rest.hops), rest.end)
        if axis in self.propagation.layouts[value].dims[dim]:
            return self.proposed(value, dim, axis)
        return self._searched((value, dim), axis)

    def _searched(self, start: Spot, axis: str) -> Trace:
        """The shortest way to a dim that propagation split, over ops that the plan runs split alike."""
        came: dict[Spot, tuple[Spot, Op, int] | None] = {start: None}
        queue = [start]
        for spot in queue:
            value, dim = spot
            if spot != start and axis in self.propagation.layouts[value].dims[dim]:
                return self._back(spot, came, axis)
            for op, factor, other in self._beside(spot, axis):
                if other not in came:
                    came[other] = (spot, op, factor)
                    queue.append(other)
        op = self.producer[start[0]]
        held = self.plan.rules[op].results[op.results.index(start[0])][start[1]]
        factor = next(f for f in held if self._runs(op, f, axis))
        return Trace((Hop("search", *start, op, factor, span=op.span),), "cost")

    def _back(self, spot: Spot, came: dict[Spot, tuple[Spot, Op, int] | None], axis: str) -> Trace:
        hops: list[Hop] = []
        at = spot
        while (step := came[at]) is not None:
            at, op, factor = step
            hops.append(Hop("search", *at, op, factor, span=op.span))
        rest = self.proposed(*spot, axis)
        return Trace((*reversed(hops), *rest.hops), rest.end)

    def _beside(self, spot: Spot, axis: str) -> Iterator[tuple[Op, int, Spot]]:
        """Dims that the plan splits alike, through the op that makes the value, then through those that read it."""
        made = self.producer.get(spot[0])
        for op in dict.fromkeys([*([made] if made else []), *(op for op, _ in self.users.get(spot[0], ()))]):
            rule = self.plan.rules[op]
            for factor in range(len(rule.factors)):
                near = list(dims_with(op, rule, factor)) if self._runs(op, factor, axis) else []
                if spot in near:
                    for other in near:
                        if axis in self.plan.home[other[0]].dims[other[1]]:
                            yield op, factor, other

    def _runs(self, op: Op, factor: int, axis: str) -> bool:
        return axis in self.plan.strategies[op].split[factor]

    def owed(self, value: Value, axis: str) -> Trace:
        """Why a value is a pending reduction over an axis."""
        op = self.producer[value]
        rule, strategy = self.plan.rules[op], self.plan.strategies[op]
        if op.name == "barrier":
            rest = self.owed(op.operands[0], axis)
            return Trace((Hop("copy", value, None, op, span=op.span), *rest.hops), rest.end)
        for factor, (of, split) in enumerate(zip(rule.factors, strategy.split, strict=True)):
            if axis in split and of.mark in ("reduce", "lookup"):
                hop = Hop("reduce", value, None, op, factor, span=op.span)
                for source, dim in dims_with(op, rule, factor):
                    if source not in op.results and axis in self.plan.home[source].dims[dim]:
                        rest = self.held(source, dim, axis)
                        return Trace((hop, *rest.hops), rest.end)
                return Trace((hop,), "cost")
        group = next(g for a, g in strategy.linear if a == axis)
        hop = Hop("linear", value, None, op, span=op.span)
        for i in sorted(rule.linear[group]):
            if axis in self.plan.home[op.operands[i]].pending_axes:
                rest = self.owed(op.operands[i], axis)
                return Trace((hop, *rest.hops), rest.end)
        return Trace((hop,), "cost")
