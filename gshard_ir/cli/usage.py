"""Mistakes in the command itself, as opposed to the program that it is about."""

from __future__ import annotations

from gshard_ir.errors import Diagnostic, GShardError


class UsageError(GShardError):
    """A wrong option, file or input array: exit code 2."""


def usage(message: str, *notes: str, suggestion: str | None = None) -> UsageError:
    """Build a single-diagnostic usage error; the caller raises it."""
    return UsageError(Diagnostic(message, None, notes, suggestion))
