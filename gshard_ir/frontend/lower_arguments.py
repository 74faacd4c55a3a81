"""Match the arguments of a call with parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gshard_ir.errors import fail
from gshard_ir.frontend.lower_values import nearest, text_of
from gshard_ir.source import Span

T = TypeVar("T")


def bind_arguments(
    what: str,
    names: Sequence[str],
    positional: Sequence[tuple[T, Span]],
    keywords: Mapping[str, tuple[T, Span]],
    limit: int | None = None,
    usage: str = "",
) -> dict[str, tuple[T, Span]]:
    """Return the argument given for each parameter that has one.

    Only the first ``limit`` parameters may be given without a name. ``usage`` is shown with an error.
    Raises a diagnostic for too many arguments, an unknown name (with the nearest one) or a parameter given twice.
    """
    usage = usage or f"{what}({', '.join(names)})"
    most = len(names) if limit is None else limit
    if len(positional) > most:
        without = " without a name" if most < len(names) else ""
        raise fail(
            f"{what} takes {most} argument{'s' * (most != 1)}{without}, found {len(positional)}",
            positional[most][1],
            usage,
            suggestion=f"{names[most]}={text_of(positional[most][1])}" if most < len(names) else "remove it",
        )
    found = dict(zip(names, positional, strict=False))
    for name, (value, where) in keywords.items():
        if name not in names:
            near = nearest(name, list(names))
            edit = near and f"{near}={text_of(where).partition('=')[2].strip()}"
            raise fail(f"{what} has no argument {name}", where, usage, suggestion=edit)
        if name in found:
            note = f"argument {list(names).index(name) + 1} is {name} too"
            raise fail(f"{what}: {name} is given twice", where, note, suggestion="remove it")
        found[name] = (value, where)
    return found
