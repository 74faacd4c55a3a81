"""Why a layout is what it is, and why a collective is there, in a few words each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gshard_ir.factors import Dims, Rule
from gshard_ir.ir import Function, Op, Value
from gshard_ir.passes.partition import Comm
from gshard_ir.passes.plan import Plan, operand_layout
from gshard_ir.passes.propagate import Cause, Propagation
from gshard_ir.pipeline import Compiled
from gshard_ir.source import Span


@dataclass(frozen=True)
class Link:
    """One step of a cause chain: ``value`` has ``axis`` on ``dim`` because of ``cause``."""

    value: Value
    dim: int
    axis: str
    cause: Cause


def chain(propagation: Propagation, value: Value, dim: int, axis: str) -> Iterator[Link]:
    """Yield the causes of an axis from the value itself to the annotation where it began."""
    seen: set[tuple[Value, int]] = set()
    while (value, dim) not in seen:
        seen.add((value, dim))
        cause = propagation.causes.get((value, dim, axis))
        if cause is None:
            return
        yield Link(value, dim, axis, cause)
        if cause.source is None:
            return
        value, dim = cause.source


def root(propagation: Propagation, value: Value, dim: int, axis: str) -> Cause | None:
    """Return the annotation that an axis goes back to."""
    links = list(chain(propagation, value, dim, axis))
    return links[-1].cause if links and links[-1].cause.source is None else None


def place(span: Span | None) -> str:
    """``line 17`` in the entry's own file; ``std/moe.gshard:31`` inside a def that it calls."""
    if span is None:
        return ""
    return f"line {span.line}" if span.caller is None else short(span)


def short(span: Span) -> str:
    """``moe.gshard:17``, with the folder only for the standard library."""
    name = span.file.name.replace("\\", "/")
    return f"{name if name.startswith('std/') else name.rsplit('/', 1)[-1]}:{span.line}"


def names_of(function: Function) -> dict[Value, str]:
    """Name every value as its reader would: its name in the source, else the op that makes it, ``(einsum)``."""
    found = dict(zip(function.params, function.param_names, strict=True))
    for op in function.body.ops:
        for value in op.results:
            found[value] = value.hint or f"({op.name})"
    return found


def label(rule: Rule, op: Op, factor: int, names: Mapping[Value, str]) -> str:
    """Name a factor: an einsum's letter, else ``dim 0 of x`` by the first tensor that has it."""
    if op.name == "einsum":
        return rule.factors[factor].name
    for value, dims in zip((*op.operands, *op.results), (*rule.operands, *rule.results), strict=True):
        dim = _dim_of(dims, factor)
        if dim is not None:
            return f"dim {dim} of {title_of(value, names)}"
    return rule.factors[factor].name


def title_of(value: Value, names: Mapping[Value, str]) -> str:
    """Return a value's name in the source, else the short source text that makes it, else its op in brackets."""
    return names[value] if value.hint else _excerpt(value.span) or names[value]


def _excerpt(span: Span | None) -> str:
    """Return the source text of a short expression on one line, cut after 32 characters."""
    if span is None or span.line != span.end_line or span.end_column <= span.column:
        return ""
    text = span.file.line(span.line)[span.column - 1 : span.end_column - 1].strip()
    return f"`{text}`" if len(text) <= 32 else f"`{text[:30].rstrip()}..`"


def _dim_of(dims: Dims, factor: int) -> int | None:
    return next((d for d, factors in enumerate(dims) if factor in factors), None)


def reasons(compiled: Compiled) -> dict[Op, str]:
    """Say for every collective of the local program what it is for."""
    teller = _Teller(compiled.propagation, compiled.refined.plan)
    return {op: teller.reason(comm) for op, comm in compiled.partitioned.comms.items()}


class _Teller:
    def __init__(self, propagation: Propagation, plan: Plan) -> None:
        self.propagation, self.plan = propagation, plan
        self.names = names_of(plan.function)
        self.producer = {v: op for op in plan.function.body.ops for v in op.results}

    def reason(self, comm: Comm) -> str:
        if comm.note:
            return comm.note
        asked = _asked(comm.consumer)
        if comm.transfer.kind in ("all_reduce", "reduce_scatter"):
            settled = self.settled(comm)
            return f"{settled}, for {asked}" if asked else settled
        if asked:
            return asked
        if comm.consumer is None:
            return self.returned(comm)
        return self.wanted(comm, comm.consumer)

    def settled(self, comm: Comm) -> str:
        """``sum over E, line 24``: which factor of which op left the value partial."""
        assert comm.source is not None
        kind, axes = next((k, a) for k, a in comm.source.pending if set(a) & set(comm.transfer.axes))
        op, over = self.partial(comm.value, axes)
        where = place(op.span) if op is not None else ""
        return ", ".join(w for w in (f"{kind} over {over}" if over else f"partial {kind}", where) if w)

    def partial(self, value: Value, axes: tuple[str, ...]) -> tuple[Op | None, str]:
        """Find the op whose split factor made a value partial, through ops that are linear in it."""
        op = self.producer.get(value)
        while op is not None:
            rule, strategy = self.plan.rules[op], self.plan.strategies[op]
            over = [
                label(rule, op, f, self.names)
                for f, (factor, split) in enumerate(zip(rule.factors, strategy.split, strict=True))
                if factor.mark in ("reduce", "lookup") and set(split) & set(axes)
            ]
            if over:
                return op, ", ".join(over)
            through = [i for axis, group in strategy.linear if axis in axes for i in sorted(rule.linear[group])]
            op = self.producer.get(op.operands[through[0]]) if through else None
        return None, ""

    def returned(self, comm: Comm) -> str:
        """The boundary asks for a layout."""
        results = zip(self.plan.function.results, self.plan.results, strict=True)
        value = next((v for v, at in results if self.plan.roots[v] is comm.value and at == comm.target), comm.value)
        gained = _gained(comm)
        cause = root(self.propagation, value, *gained[0]) if gained else None
        if cause is not None:
            return f"returned as {cause.how}, {place(cause.span)}"
        return "returned whole" if not gained else f"returned split over {', '.join(a for _, a in gained)}"

    def wanted(self, comm: Comm, consumer: Op) -> str:
        """An op runs split in a way that its operand is not."""
        rule, strategy = self.plan.rules[consumer], self.plan.strategies[consumer]
        dims = rule.operands[self.operand(comm, consumer)]
        for dim, axis in _gained(comm):
            factor = next((f for f in dims[dim] if axis in strategy.split[f]), None)
            if factor is not None:
                return self.split_because(consumer, rule, factor, axis, comm.value)
        for dim, axis in _lost(comm):
            if any(rule.factors[f].mark == "gather" for f in dims[dim]):
                return f"{consumer.name} needs dim {dim} whole"
            taken = next((f for f, split in enumerate(strategy.split) if axis in split), None)
            if taken is not None:
                return self.split_because(consumer, rule, taken, axis, comm.value)
            return f"{consumer.name} runs with dim {dim} whole, {place(consumer.span)}"
        return f"for {consumer.name}, {place(consumer.span)}"

    def operand(self, comm: Comm, consumer: Op) -> int:
        """Which operand of the consumer the moved value is."""
        rule, strategy = self.plan.rules[consumer], self.plan.strategies[consumer]
        at = [i for i, v in enumerate(consumer.operands) if self.plan.roots[v] is comm.value]
        wanted = [i for i in at if operand_layout(rule, strategy, i, self.plan.mesh) == comm.target]
        return (wanted or at)[0]

    def split_because(self, op: Op, rule: Rule, factor: int, axis: str, moved: Value) -> str:
        """``combine is split over G, line 17``: another tensor of the op that has the axis there, and its origin."""
        over = label(rule, op, factor, self.names)
        for value, dims in zip((*op.operands, *op.results), (*rule.operands, *rule.results), strict=True):
            dim = _dim_of(dims, factor)
            if self.plan.roots[value] is moved or dim is None or axis not in self.plan.home[value].dims[dim]:
                continue
            cause = root(self.propagation, value, dim, axis)
            if cause is None or cause.span is None:
                continue  # the search put it there: no annotation to point at
            name, shown = self.names[value], over if op.name == "einsum" else f"dim {dim}"
            what = op.name if name.startswith("(") else name
            return f"{what} is split over {shown}, {place(cause.span)}"
        return f"{op.name} runs split over {over}, {place(op.span)}"


def _asked(consumer: Op | None) -> str:
    """Return the text of the annotation that wants the copy; for a result its name, as its layout stands beside it."""
    if consumer is None or consumer.name != "annotate":
        return ""
    how = str(consumer.attrs["how"])
    return how.partition(":")[0] if how.startswith(("result ", "return:")) else how


def _gained(comm: Comm) -> list[tuple[int, str]]:
    """(dim, axis) that the target layout has and the source has not."""
    assert comm.source is not None and comm.target is not None
    return [
        (d, a)
        for d, (old, new) in enumerate(zip(comm.source.dims, comm.target.dims, strict=True))
        for a in new
        if a not in old
    ]


def _lost(comm: Comm) -> list[tuple[int, str]]:
    assert comm.source is not None and comm.target is not None
    return [
        (d, a)
        for d, (old, new) in enumerate(zip(comm.source.dims, comm.target.dims, strict=True))
        for a in old
        if a not in new
    ]
