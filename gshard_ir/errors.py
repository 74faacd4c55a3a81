"""The one diagnostic form: where, the line, a caret, what and why with numbers, one suggested edit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gshard_ir.source import Span

MAX_SITES = 8
"""Call sites that a diagnostic shows."""


@dataclass(frozen=True)
class Diagnostic:
    """One mistake, ready to print.

    ``span`` is the exact expression at fault; ``also`` are further places on the same or other
    lines (span, short label; without a label on the same line, one more caret under it); ``notes`` say
    what was expected and found; ``suggestion`` is one edit.
    """

    message: str
    span: Span | None = None
    notes: tuple[str, ...] = ()
    suggestion: str | None = None
    also: tuple[tuple[Span, str], ...] = ()
    code: str = "error"

    def render(self) -> str:
        """Return the plain-text form, without a trailing newline."""
        if self.span is None:
            lines = [f"error: {self.message}"]
        else:
            place = f"{self.span.file.name}:{self.span.line}:{self.span.column}"
            lines = [f"{place}: error: {self.message}", *self._excerpt(self.span, self._beside(self.span))]
        for span, label in self.also:
            if not label and self.span is not None and span in self._beside(self.span):
                continue
            lines += [f"  {span.file.name}:{span.line}:{span.column}: {label}", *self._excerpt(span)]
        lines += [f"   {note}" for note in self.notes]
        if self.span is not None:
            sites = list(self.span.stack())[1:]
            lines += [f"   called from {s.file.name}:{s.line}:{s.column}" for s in sites[:MAX_SITES]]
            lines += [f"   and {len(sites) - MAX_SITES} calls further out"] * (len(sites) > MAX_SITES)
        if self.suggestion:
            lines.append(f"   try: {self.suggestion}")
        return "\n".join(lines)

    def _beside(self, span: Span) -> list[Span]:
        """Places without a label that share a line with ``span``."""
        return [s for s, label in self.also if not label and s.file is span.file and s.line == span.line]

    def _excerpt(self, span: Span, beside: Iterable[Span] = ()) -> list[str]:
        text = span.file.line(span.line)
        if not text.strip():
            return []
        end = span.end_column if span.end_line == span.line else len(text) + 1
        start, width = _window(text, span.column, end)
        shown = "".join(ch if ch.isprintable() else " " for ch in text[start : start + 160])
        gutter = f"{span.line:5d} | "
        carets = [" "] * (span.column - 1 - start) + ["^"] * width
        for other in beside:
            first, past = max(other.column - 1 - start, 0), min(other.end_column - 1 - start, 160)
            carets += [" "] * (past - len(carets))
            carets[first:past] = ["^"] * (past - first)
        return [gutter + shown, " " * len(gutter) + "".join(carets)]


def _window(text: str, column: int, end: int) -> tuple[int, int]:
    """Return (first shown character, caret width): a long line is shown around its caret."""
    start = max(0, column - 80) if len(text) > 160 else 0
    width = max(1, min(end - column, 160 - (column - 1 - start)))
    return start, width


class GShardError(Exception):
    """One or more diagnostics. ``str()`` is the text a user reads."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        found = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        self.diagnostics: tuple[Diagnostic, ...] = found
        super().__init__("\n".join(d.render() for d in found))


class InternalError(Exception):
    """An invariant of the compiler does not hold: a bug of ours, never of the user's program."""


def fail(message: str, span: Span | None = None, *notes: str, suggestion: str | None = None) -> GShardError:
    """Build a single-diagnostic error; the caller raises it."""
    return GShardError(Diagnostic(message, span, notes, suggestion))
