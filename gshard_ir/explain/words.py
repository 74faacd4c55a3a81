"""How ops, values, layouts and places are written in explanations."""

from __future__ import annotations

from gshard_ir.dump.traffic import bytes_text
from gshard_ir.dump.views import Views
from gshard_ir.explain.chains import Hop, Trace, tensors
from gshard_ir.explain.model import Chain, Link, Place
from gshard_ir.ir import Op, Value
from gshard_ir.passes.plan import Plan, Strategy
from gshard_ir.pipeline import Compiled
from gshard_ir.reasons import label, short, title_of
from gshard_ir.sharding import Layout
from gshard_ir.source import Span


class Words:
    """Names and numbers the parts of one compiled program."""

    def __init__(self, compiled: Compiled) -> None:
        self.plan: Plan = compiled.refined.plan
        self.mesh = self.plan.mesh
        function = self.plan.function
        self.values = (*function.params, *(v for op in function.body.ops for v in op.results))
        self.ids = {v: i for i, v in enumerate(self.values)}
        self.op_ids = {op: i for i, op in enumerate(function.body.ops)}
        self.results = dict(zip(function.results, function.result_names, strict=True))
        self.views = Views(compiled.lowered, function)
        einsums = [op for op in function.body.ops if op.name == "einsum"]
        self.makers = {v: op for op in einsums for v in op.results}
        self.readers = {v: op for op in reversed(einsums) for v in op.operands}

    def name(self, value: Value) -> str:
        """The name of a value, else its short source text, else the op in brackets."""
        return title_of(value, self.views.names)

    def title(self, value: Value) -> str:
        """The name of a value, or of the result that it is, else what :meth:`name` says."""
        return self.name(value) if value.hint else self.results.get(value, self.name(value))

    def op(self, op: Op) -> str:
        """``einsum "GSM,ME->GSE"``, the text of an annotation, or the op's name."""
        if op.name == "einsum":
            return f'einsum "{op.attrs["spec"]}"'
        return str(op.attrs["how"]) if op.name == "annotate" else op.name

    def place(self, span: Span | None) -> Place:
        """The innermost place and the entry's own line."""
        return Place("", 0) if span is None else Place(short(span), span.outermost().line)

    def axes(self, axes: tuple[str, ...]) -> str:
        """Axes in the language's notation."""
        return self.mesh.show_axes(axes) if axes else ""

    def layout(self, value: Value, layout: Layout) -> str:
        """``f32[8, 8@expert, 16, 256]``."""
        if value.dtype.kind == "k" and not value.type.rank:
            return "key"
        body = ", ".join(
            f"{n}@{self.axes(axes)}" if axes else f"{n}" for n, axes in zip(value.shape, layout.dims, strict=True)
        )
        owed = layout.show(value.shape, self.mesh).partition("]")[2]
        return f"{value.dtype}[{body}]{owed}"

    def local(self, value: Value, layout: Layout) -> str:
        """``[8, 1, 16, 256]``, the shape on one device."""
        return str(list(layout.local_shape(value.shape, self.mesh)))

    def bytes(self, count: float) -> str:
        """``114,688 B``."""
        return bytes_text(count)

    def split(self, op: Op, strategy: Strategy) -> str:
        """``over G@expert``: the factors that an op is split over; ``whole`` for none."""
        rule = self.plan.rules[op]
        gap = "" if op.name == "einsum" else " "
        parts = [
            f"{label(rule, op, f, self.views.names)}{gap}@{self.axes(axes)}"
            for f, axes in enumerate(strategy.split)
            if axes
        ]
        owed = tuple(a for a, _ in strategy.linear)
        parts += [f"sums pending over {self.axes(owed)}"] if owed else []
        return f"over {', '.join(parts)}" if parts else "whole"

    def letter(self, value: Value, dim: int) -> str:
        """The letter that an einsum has for a dim: the one that makes the value, else the first that reads it."""
        op = self.makers.get(value, self.readers.get(value))
        if op is None:
            return ""
        rule = self.plan.rules[op]
        return next(rule.factors[dims[dim][0]].name for v, dims in tensors(op, rule) if v is value)

    def chain(self, trace: Trace, names: tuple[str, ...]) -> Chain:
        """Put a trace into words."""
        return Chain(self.axes(names), names, tuple(map(self.link, trace.hops)), trace.end)

    def link(self, hop: Hop) -> Link:
        """Put one link into words."""
        factor = "" if hop.op is None or hop.factor is None else self.plan.rules[hop.op].factors[hop.factor].name
        return Link(
            hop.rule,
            self.name(hop.value),
            self.ids[hop.value],
            hop.dim,
            factor,
            self.op(hop.op) if hop.op is not None else hop.how,
            self.op_ids[hop.op] if hop.op is not None else None,
            self.place(hop.span),
            hop.kept,
        )
