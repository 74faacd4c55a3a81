"""Source text and positions in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SourceFile:
    """A named text. ``name`` is what diagnostics show; it is never opened again."""

    name: str
    text: str = field(repr=False)

    def line(self, number: int) -> str:
        """Return line ``number`` (1-based) without its newline, or ``""`` past the end."""
        lines = self.text.split("\n")
        return lines[number - 1] if 1 <= number <= len(lines) else ""


@dataclass(frozen=True)
class Span:
    """A half-open range of characters; lines and columns are 1-based.

    ``caller`` is the call site when the code was reached through a call (outermost last), so a
    span is also a call stack. ``callee`` names the def that the code belongs to.
    """

    file: SourceFile = field(repr=False)
    line: int
    column: int
    end_line: int
    end_column: int
    caller: Span | None = None
    callee: str | None = None

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"

    def stack(self) -> Iterator[Span]:
        """Yield this span, then each call site outwards."""
        span: Span | None = self
        while span is not None:
            yield span
            span = span.caller

    def outermost(self) -> Span:
        """Return the span in the entry def that led here."""
        *_, last = self.stack()
        return last

    def called_from(self, call: Span, callee: str) -> Span:
        """Return this span as seen from an additional outermost call site ``call``."""
        if self.caller is None:
            return Span(self.file, self.line, self.column, self.end_line, self.end_column, call, callee)
        outer = self.caller.called_from(call, callee)
        return Span(self.file, self.line, self.column, self.end_line, self.end_column, outer, self.callee)
