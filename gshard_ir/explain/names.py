"""Finds the values that a reader means by ``NAME``, ``NAME@LINE`` and ``callee.NAME``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gshard_ir.data import nearest
from gshard_ir.dump.views import View, Views
from gshard_ir.errors import fail
from gshard_ir.ir import Function, Module, Value

LONGEST = 80
"""Characters of an unknown name that are compared and shown."""


@dataclass(frozen=True)
class Found:
    """The values that are meant, and the other bindings of the name as ``NAME@LINE``."""

    values: tuple[Value, ...]
    others: tuple[str, ...] = ()


class Names:
    """Looks names up in an inlined function, given the module before inlining."""

    def __init__(self, title: str, lowered: Module, function: Function) -> None:
        self.title, self.lowered, self.function = title, lowered, function
        views = Views(lowered, function)
        values = [*function.params, *(v for op in function.body.ops for v in op.results)]
        self.views = [views.of(v) for v in values]
        self.called: dict[str, list[View]] = {}
        for view in self.views:
            self.called.setdefault(view.name, []).append(view)
        results = zip(function.result_names, function.results, strict=True)
        self.results = {n: v for n, v in results if n and n not in self.called}

    @property
    def known(self) -> list[str]:
        """The names that the entry itself gives, results included."""
        return list(dict.fromkeys([*(v.name for v in self.views if v.value.hint and not v.inner), *self.results]))

    def find(self, name: str) -> Found:
        """Return the last binding of ``NAME``, or all on one line for ``NAME@LINE``.

        Raises ``GShardError`` for an unknown name, with the nearest one, and for a line that does not bind it.
        """
        asked = re.fullmatch(r"(.*?)(?:@(\d{1,9}))?", name.strip(), re.DOTALL)
        assert asked is not None
        base, line = asked[1], int(asked[2]) if asked[2] else None
        bound = self.bindings(base)
        if not bound:
            raise self.unknown(base)
        if line is None:
            last = bound[-1]
            others = dict.fromkeys(f"{base}@{_line(v)}" for v in bound[:-1])
            return Found((last.value,), tuple(others))
        here = [v for v in bound if line in (v.line, _line(v))]
        if not here:
            lines = list(dict.fromkeys(str(_line(v)) for v in bound))
            told = f"{base} is bound on line{'s' * (len(lines) > 1)} {', '.join(lines)}"
            raise fail(
                f"{self.title} does not bind {base} on line {line}", None, told, suggestion=f"{base}@{lines[-1]}"
            )
        return Found(tuple(v.value for v in here))

    def bindings(self, name: str) -> Sequence[View]:
        """Every value of that name in order: the entry's own, else inside the def before the dot, else inside any."""
        views = self.called.get(name, [])
        own = [v for v in views if not v.inner]
        if own:
            return own
        if name in self.results:
            value = self.results[name]
            return [v for v in self.views if v.value is value]
        callee, dot, inner = name.partition(".")
        inside = [v for v in self.called.get(inner, []) if _callee(v.value) == callee] if dot else []
        return inside or views or self.called.get(f"({name})", [])

    def unknown(self, name: str) -> Exception:
        """The error for a name that no value has."""
        written = {v.hint for f in self.lowered.functions.values() for op in f.body.walk() for v in op.results}
        if name and name in written:
            why = "no result depends on it, or it equals another value and is computed once, under that one's name"
            return fail(f"{self.title} does not compute {name}", None, why)
        known = self.known
        inner = [f"{_callee(v.value)}.{v.name}" for v in self.views if v.inner and v.value.hint]
        near = nearest(name.partition("@")[0][:LONGEST], [*known, *inner])
        told = f"it has {', '.join(known[:12])}{' and more' if len(known) > 12 else ''}"
        return fail(f"{self.title} has no value {_shown(name)}", None, told, suggestion=near)


def _shown(name: str) -> str:
    """A name as it may stand in one line of a diagnostic."""
    clean = "".join(ch if ch.isprintable() else " " for ch in name)
    return clean if len(clean) <= LONGEST else f"{clean[:LONGEST]}.."


def _callee(value: Value) -> str:
    return (value.span.callee or "") if value.span is not None else ""


def _line(view: View) -> int:
    """The line that a reader sees at the binding: in the def that names it."""
    return view.value.span.line if view.inner and view.value.span is not None else view.line
