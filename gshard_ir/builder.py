"""Build IR by hand or from a front end: every op is type-checked as it is added."""

from __future__ import annotations

from gshard_ir import opdef
from gshard_ir.ir import Attr, Op, Region, Value
from gshard_ir.source import Span
from gshard_ir.types import DType, TensorType


class Builder:
    """Collects ops in order. ``b("exp", x)`` adds an op and returns its only result."""

    def __init__(self, span: Span | None = None) -> None:
        self.ops: list[Op] = []
        self.params: list[Value] = []
        self.span = span

    def param(self, type_: TensorType, hint: str = "", span: Span | None = None) -> Value:
        """Add a parameter of the region under construction."""
        value = Value(type_, hint, span or self.span)
        self.params.append(value)
        return value

    def add(
        self,
        name: str,
        operands: tuple[Value, ...],
        *,
        hint: str = "",
        span: Span | None = None,
        types: tuple[TensorType, ...] | None = None,
        regions: tuple[Region, ...] = (),
        **attrs: Attr,
    ) -> tuple[Value, ...]:
        """Add an op and return its results; raises :class:`~gshard_ir.opdef.OpError`.

        ``types`` replaces inferred result types (a local program states layouts that inference cannot know).
        """
        span = span or self.span
        inferred = opdef.infer(name, [v.type for v in operands], attrs)
        results = tuple(Value(t, hint, span) for t in types or inferred)
        self.ops.append(Op(name, operands, results, attrs, regions, span))
        return results

    def __call__(
        self,
        name: str,
        *operands: Value,
        hint: str = "",
        span: Span | None = None,
        type: TensorType | None = None,
        **attrs: Attr,
    ) -> Value:
        (value,) = self.add(name, operands, hint=hint, span=span, types=(type,) if type else None, regions=(), **attrs)
        return value

    def constant(
        self, value: int | float | bool, dtype: DType, shape: tuple[int, ...] = (), span: Span | None = None
    ) -> Value:
        """Add a tensor filled with one number."""
        return self("constant", value=value, dtype=dtype, shape=shape, span=span)

    def region(self, *results: Value) -> Region:
        """Close the region."""
        return Region(tuple(self.params), tuple(self.ops), results)
