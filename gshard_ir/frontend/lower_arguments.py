"""Match the arguments of a call with parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gshard_ir.errors import fail
from gshard_ir.frontend.lower_values import nearest
from gshard_ir.source import Span

T = TypeVar("T")


def bind_arguments(
    what: str,
    names: Sequence[str],
    positional: Sequence[tuple[T, Span]],
    keywords: Mapping[str, tuple[T, Span]],
) -> dict[str, tuple[T, Span]]:
    """Return the argument given for each parameter that has one.

    Raises a diagnostic for too many arguments, an unknown name (with the nearest one) or a parameter given twice.
    """
    if len(positional) > len(names):
        extra = positional[len(names)][1]
        raise fail(
            f"{what} takes {len(names)} argument{'s' * (len(names) != 1)}, found {len(positional) + len(keywords)}",
            extra,
            f"{what}({', '.join(names)})",
        )
    found = dict(zip(names, positional, strict=False))
    for name, (value, where) in keywords.items():
        if name not in names:
            raise fail(
                f"{what} has no argument {name}",
                where,
                f"{what}({', '.join(names)})",
                suggestion=nearest(name, list(names)),
            )
        if name in found:
            raise fail(f"{what}: {name} is given twice", where, f"argument {list(names).index(name) + 1} is {name} too")
        found[name] = (value, where)
    return found
