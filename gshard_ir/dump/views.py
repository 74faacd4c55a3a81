"""Which values a reader knows by name, and where: the entry's own names first, inlined ones on request."""

from __future__ import annotations

from dataclasses import dataclass

from gshard_ir.ir import Function, Module, Value
from gshard_ir.reasons import names_of, short
from gshard_ir.source import Span


@dataclass(frozen=True)
class View:
    """A named value of the flat program, made in ``callee`` (empty for the entry).

    ``inner``: it lives inside that inlined def and nobody outside named it.
    """

    value: Value
    name: str
    line: int
    where: str
    inner: bool
    callee: str = ""


class Views:
    """Names and places of the values of an inlined function, given the module before inlining."""

    def __init__(self, lowered: Module, flat: Function) -> None:
        self.names = names_of(flat)
        self.returned = _returned(lowered, flat)

    def of(self, value: Value) -> View:
        """Describe one value."""
        inner = value.span is not None and value.span.caller is not None and value not in self.returned
        place = line_of(value.span), where_of(value.span), inner, callee_of(value.span)
        return View(value, self.names[value], *place)


def line_of(span: Span | None) -> int:
    """Return the line of the entry's own file that led to ``span``; 0 when unknown."""
    return span.outermost().line if span is not None else 0


def where_of(span: Span | None) -> str:
    """Return ``std/moe.gshard:31`` for a place inside an inlined def, else nothing."""
    return short(span) if span is not None and span.caller is not None else ""


def callee_of(span: Span | None) -> str:
    """Return the name of the inlined def that ``span`` lies in, else nothing."""
    return span.callee or "" if span is not None and span.caller is not None else ""


def _returned(lowered: Module, flat: Function) -> set[Value]:
    """Values that a call in the entry def returned: the last of the name that the caller gave them."""
    wanted = {(op.span, v.hint) for op in lowered.main.body.walk() if op.name == "call" for v in op.results if v.hint}
    last: dict[tuple[Span | None, str], Value] = {}
    for op in flat.body.ops:
        for value in op.results:
            if value.span is not None and value.span.caller is not None:
                key = (value.span.outermost(), value.hint)
                if key in wanted:
                    last[key] = value
    return set(last.values())
