"""Explains a collective: who made the value, who wants it otherwise, the lines behind both, and an edit that helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gshard_ir.dump.traffic import Traffic
from gshard_ir.explain.chains import Trace, dims_with
from gshard_ir.explain.edits import Edit, Edits
from gshard_ir.explain.model import Actor, Because, Collective
from gshard_ir.explain.values import Values
from gshard_ir.ir import Op, Value
from gshard_ir.mesh import Mesh
from gshard_ir.passes.partition import Comm
from gshard_ir.passes.plan import operand_layout
from gshard_ir.pipeline import Compiled
from gshard_ir.reasons import label
from gshard_ir.sharding import Layout
from gshard_ir.source import Span
from gshard_ir.types import ShardedType, TensorType

RESULTS = 4
"""Results that are tried as the place where a pending sum is scattered."""


class Collectives:
    """Explains the collectives of one compiled program, in program order."""

    def __init__(self, compiled: Compiled, traffic: Traffic, values: Values, edits: Edits, *, suggest: bool) -> None:
        self.compiled, self.values, self.edits, self.suggest = compiled, values, edits, suggest
        self.plan, self.words, self.chains = compiled.refined.plan, values.words, values.chains
        moved = [op for op in compiled.partitioned.module.main.body.walk() if op in compiled.partitioned.comms]
        self.comms = [(op, compiled.partitioned.comms[op]) for op in moved]
        self.lines = traffic.collectives

    def all(self) -> tuple[Collective, ...]:
        """Explain every one."""
        return tuple(self.explain(i) for i in range(len(self.comms)))

    def of(self, value: Value) -> tuple[Collective, ...]:
        """Explain those that move a value, or that make what an annotation asks of it."""
        annotated = self.chains.producer.get(value)
        found = []
        for i, (_, comm) in enumerate(self.comms):
            wanted = comm.consumer is not None and comm.consumer is annotated and annotated.name == "annotate"
            if comm.value is self.plan.roots[value] or wanted:
                found.append(self.explain(i))
        return tuple(found)

    def explain(self, at: int) -> Collective:
        """Explain the collective number ``at``."""
        (op, comm), told = self.comms[at], self.lines[at]
        words = self.words
        makers = [o for o in dict.fromkeys((comm.producer, comm.consumer)) if o is not None and o.name != "annotate"]
        source, target = comm.source or _layout(op.operands[0]), comm.target or _layout(op.result)
        return Collective(
            told.kind,
            told.axes,
            told.detail,
            told.sent,
            told.value,
            words.ids[comm.value],
            words.place(op.result.span or op.span),
            self._shown(op.operands[0], source),
            self._shown(op.result, target),
            self.actor(comm.producer, comm.value, "argument"),
            self.actor(comm.consumer, self.returned(comm) or comm.value, "result"),
            told.reason,
            tuple(self.merged(self.because(comm))),
            tuple(self.values.ways.of_op(o) for o in makers if self.values.ways.changed(o)),
            self.edits.best(comm.value, self.candidates(comm)) if self.suggest else None,
        )

    def _shown(self, local: Value, layout: Layout | None) -> str:
        if layout is None:
            return str(local.type)
        whole = getattr(local.type, "whole", local.shape)
        return self.words.layout(Value(TensorType(local.dtype, whole)), layout)

    def actor(self, op: Op | None, value: Value, otherwise: str) -> Actor:
        """The op on one side of a collective, or what stands there instead of one."""
        if op is None:
            return Actor(otherwise, self.words.place(value.span))
        return Actor(self.words.op(op), self.words.place(op.span))

    def returned(self, comm: Comm) -> Value | None:
        """Which result a copy for the caller is."""
        if comm.consumer is not None:
            return None
        results = zip(self.plan.function.results, self.plan.results, strict=True)
        found = [(v, at) for v, at in results if self.plan.roots[v] is comm.value]
        return next((v for v, at in found if at == comm.target), found[0][0] if found else None)

    def merged(self, causes: Iterator[Cause]) -> Iterator[Because]:
        """One line for causes that differ in the axis alone."""
        groups: dict[tuple[str, str, Span | None], list[str]] = {}
        for cause in causes:
            groups.setdefault((cause.what, cause.text, cause.span), []).append(cause.axis)
        for (what, text, span), axes in groups.items():
            known = tuple(dict.fromkeys(a for a in axes if a))
            yield Because(f"{what} @{self.words.axes(known)}" if known else what, text, self.words.place(span))

    def because(self, comm: Comm) -> Iterator[Cause]:
        """The lines behind both layouts."""
        if comm.source is None or comm.target is None:
            assert comm.consumer is not None
            yield from self.inside(comm.consumer, comm.transfer.axes)
            return
        for axis in self.plan.mesh.order(comm.source.pending_axes - comm.target.pending_axes):
            yield from self.owing(comm.value, axis)
        lost = [(d, a) for d, a in _spots(comm.source) if a not in comm.target.dims[d]]
        gained = [(d, a) for d, a in _spots(comm.target) if a not in comm.source.dims[d]]
        home = self.plan.home[comm.value]
        for dim, axis in lost:
            if axis in home.dims[dim]:
                yield self.origin(self.chains.held(comm.value, dim, axis), comm.value, dim, axis)
        yield from self.wanted(comm, gained, lost)

    def origin(self, trace: Trace, value: Value, dim: int, axis: str) -> Cause:
        """Where the axis of a value on a dim comes from."""
        last = trace.hops[-1]
        text = last.how if trace.end == "annotation" else "nothing asked, cost decided"
        return Cause(f"{self.words.name(value)}, dim {dim}", axis, text, last.span)

    def owing(self, value: Value, axis: str) -> Iterator[Cause]:
        """The op that left a value pending, and why it was split so."""
        trace = self.chains.owed(value, axis)
        for hop, after in zip(trace.hops, (*trace.hops[1:], None), strict=True):
            if hop.rule == "reduce" and hop.op is not None and hop.factor is not None:
                rule = self.plan.rules[hop.op]
                over = label(rule, hop.op, hop.factor, self.words.views.names)
                what = f"{rule.factors[hop.factor].combine or 'sum'} over {over}"
                yield Cause(what, axis, self.words.op(hop.op), hop.span)
                if after is not None and after.dim is not None:
                    yield self.origin(trace, after.value, after.dim, axis)
                return
        last = trace.hops[-1]
        yield Cause("sum pending", axis, "nothing asked, cost decided", last.span)

    def wanted(self, comm: Comm, gained: list[tuple[int, str]], lost: list[tuple[int, str]]) -> Iterator[Cause]:
        """Why the target layout is wanted."""
        consumer = comm.consumer
        if consumer is None:
            value = self.returned(comm) or comm.value
            for dim, axis in gained:
                if axis in self.propagation_of(value).dims[dim]:
                    yield self.origin(self.chains.proposed(value, dim, axis), value, dim, axis)
            if not gained:
                what, text = ("returned whole", "nothing asked") if lost else ("returned", "a result owes nothing")
                yield Cause(what, "", text, value.span)
        elif consumer.name == "annotate":
            yield Cause("asked for", "", str(consumer.attrs["how"]), consumer.span)
        else:
            yield from self.run_so(comm, consumer, gained, lost)

    def propagation_of(self, value: Value) -> Layout:
        """Propagation's layout of a value."""
        return self.compiled.propagation.layouts[value]

    def run_so(self, comm: Comm, op: Op, gained: list[tuple[int, str]], lost: list[tuple[int, str]]) -> Iterator[Cause]:
        """Why an op runs split otherwise than its operand is."""
        rule, split = self.plan.rules[op], self.plan.strategies[op].split
        axes = list(dict.fromkeys(a for _, a in (*gained, *lost)))
        for axis in axes:
            factor = next((f for f, found in enumerate(split) if axis in found), None)
            if factor is not None:
                yield from self.along(op, factor, axis, comm.value)
                continue
            for dim in [d for d, a in lost if a == axis]:
                gather = any(rule.factors[f].mark == "gather" for f in self._factors(op, comm.value, dim))
                text = self.words.op(op)
                yield Cause(f"dim {dim} {'must be' if gather else 'is'} whole in", "", text, op.span)
        if not axes:
            yield Cause("combined for", "", self.words.op(op), op.span)

    def _factors(self, op: Op, value: Value, dim: int) -> tuple[int, ...]:
        rule = self.plan.rules[op]
        at = next(i for i, v in enumerate(op.operands) if self.plan.roots[v] is value)
        return rule.operands[at][dim]

    def along(self, op: Op, factor: int, axis: str, moved: Value) -> Iterator[Cause]:
        """Another tensor of the op that lies so and why, or the search."""
        for value, dim in dims_with(op, self.plan.rules[op], factor):
            if self.plan.roots[value] is not moved and axis in self.plan.home[value].dims[dim]:
                trace = self.chains.held(value, dim, axis)
                if trace.end == "annotation":
                    yield self.origin(trace, value, dim, axis)
                    return
        what = f"runs over {label(self.plan.rules[op], op, factor, self.words.views.names)}"
        yield Cause(what, axis, f"{self.words.op(op)}: nothing asked, cost decided", op.span)

    def inside(self, op: Op, axes: tuple[str, ...]) -> Iterator[Cause]:
        """Why an op that exchanges something within itself runs split."""
        for axis in axes:
            for factor, found in enumerate(self.plan.strategies[op].split):
                if axis in found:
                    yield from self.along(op, factor, axis, op.result)

    def candidates(self, comm: Comm) -> Iterator[Edit]:
        """Annotations that could be changed to have less to move."""
        plan, value, consumer = self.plan, comm.value, comm.consumer
        if comm.source is None and consumer is not None:
            value = consumer.operands[0]
        home = plan.home[value].settled
        wanted = self.wish(comm, value)
        owed = plan.home[value].pending_axes
        if consumer is not None and consumer.name == "annotate" and comm.source is not None:
            for layout in (home, *_scattered(plan.mesh, plan.home[consumer.result], owed)):
                if (edit := self.edits.of_annotation(consumer, layout)) is not None:
                    yield edit
        elif consumer is None:
            at = next(i for i, v in enumerate(plan.function.results) if plan.roots[v] is value)
            result = plan.function.results[at]
            for layout in (home, *_scattered(plan.mesh, plan.results[at].settled, owed)):
                yield self.edits.of_result(at, result, layout)
        for at, result in enumerate(plan.function.results[:RESULTS] if owed else ()):
            for layout in _scattered(plan.mesh, plan.results[at], owed):
                yield self.edits.of_result(at, result, layout)
        if value in plan.function.params:
            yield self.edits.of_param(value, wanted)
        elif (edit := self.edits.of_value(value, wanted)) is not None:
            yield edit
        yield from self.relaxed(comm)

    def wish(self, comm: Comm, value: Value) -> Layout:
        """The layout that would make the collective needless."""
        consumer = comm.consumer
        if comm.source is None:
            home = self.plan.home[value]
            return Layout(tuple(tuple(a for a in d if a not in comm.transfer.axes) for d in home.dims))
        if consumer is not None:
            rule, strategy = self.plan.rules[consumer], self.plan.strategies[consumer]
            at = next(i for i, v in enumerate(consumer.operands) if self.plan.roots[v] is value)
            return operand_layout(rule, strategy, at, self.plan.mesh).settled
        assert comm.target is not None
        return comm.target.settled

    def relaxed(self, comm: Comm) -> Iterator[Edit]:
        """The annotations behind the collective, each without the axis that it is about."""
        for cause in self.because(comm):
            pins = self.compiled.propagation.pins
            for value, pin in pins.items():
                if pin.how != cause.text or pin.span is not cause.span:
                    continue
                layout = self.plan.home[value]
                less = Layout(tuple(tuple(a for a in d if a != cause.axis) for d in layout.dims))
                made = self.chains.producer.get(value)
                edit = self.edits.of_param(value, less) if made is None else self.edits.of_annotation(made, less)
                if edit is not None and less != layout:
                    yield edit


@dataclass(frozen=True)
class Cause:
    """One axis of one reason; those that differ in the axis alone become one line."""

    what: str
    axis: str
    text: str
    span: Span | None


def _spots(layout: Layout) -> list[tuple[int, str]]:
    return [(d, a) for d, axes in enumerate(layout.dims) for a in axes]


def _scattered(mesh: Mesh, layout: Layout, owed: frozenset[str]) -> Iterator[Layout]:
    """The same layout with the axes of a pending sum appended to one dim."""
    settled = layout.settled
    free = tuple(a for a in mesh.names if a in owed - settled.axes)
    for dim, axes in enumerate(settled.dims if free else ()):
        yield settled.with_dim(dim, axes + free)


def _layout(local: Value) -> Layout | None:
    return local.type.layout if isinstance(local.type, ShardedType) else None
