"""What a name can stand for while a program is lowered: tensors, compile-time values, structs, defs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, Union

from gshard_ir.frontend import ast
from gshard_ir.ir import Value
from gshard_ir.mesh import AxisRef
from gshard_ir.source import Span
from gshard_ir.types import DType

if TYPE_CHECKING:
    from gshard_ir.frontend.lower_types import StructType
    from gshard_ir.frontend.lower_units import Unit

Static: TypeAlias = int | float | bool | str | None


@dataclass(frozen=True)
class StructValue:
    """A struct whose leaves are tensors. ``stack`` are the leading dims that every leaf gained from ``T[n]``."""

    type: StructType
    fields: Mapping[str, Item]
    stack: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class DefRef:
    """A def of the program or of ``std``."""

    unit: Unit = field(repr=False)
    node: ast.Def = field(repr=False)


@dataclass(frozen=True)
class BuiltinRef:
    """An operation that the language itself provides."""

    name: str


@dataclass(frozen=True)
class Unrolled:
    """``unroll(n)``: what a ``for`` statement may run over at compile time."""

    items: tuple[Item, ...]


class Poison:
    """Stands for a name whose definition was in error: using it is silent."""


POISON = Poison()


class Poisoned(Exception):  # noqa: N818  (control flow, never shown)
    """Raised when a statement uses a name whose definition was in error."""


class Stopped(Exception):  # noqa: N818  (control flow, never shown)
    """Raised when lowering must end after an error that is already reported."""


Item = Union[
    Value, Static, DType, AxisRef, tuple["Item", ...], StructValue, "StructType", DefRef, BuiltinRef, Unrolled, Poison
]


def is_number(item: Item) -> bool:
    """Tell whether an item is a compile-time integer or float."""
    return isinstance(item, int | float) and not isinstance(item, bool)


def is_static(item: Item) -> bool:
    """Tell whether an item is known at compile time, all through."""
    if isinstance(item, tuple):
        return all(is_static(i) for i in item)
    return item is None or isinstance(item, int | float | str | DType | AxisRef | DefRef | BuiltinRef)


def describe(item: Item) -> str:
    """Say what an item is, for messages."""
    if isinstance(item, Value):
        return str(item.type)
    if item is None or isinstance(item, int | float | str):
        return _describe_static(item)
    if isinstance(item, tuple):
        parts = ["(..)" if isinstance(i, tuple) else describe(i) for i in item[:4]]
        return f"({', '.join(parts)}{', ..' * (len(item) > 4)})" if item else "an empty tuple"
    if isinstance(item, StructValue):
        return f"struct {item.type.name}" + "".join(f"[{n}]" for n in item.stack)
    if isinstance(item, DType):
        return f"the element type {item}"
    if isinstance(item, AxisRef):
        return f"the mesh axis {item}"
    if isinstance(item, DefRef):
        return f"the def {item.node.name}"
    if isinstance(item, BuiltinRef):
        return f"the operation {item.name}"
    if isinstance(item, Unrolled):
        return "unroll(..)"
    return f"the struct type {item.name}" if hasattr(item, "name") else "a value in error"


def _describe_static(item: Static) -> str:
    if isinstance(item, bool) or item is None:
        return str(item)
    if isinstance(item, str):
        return f'the string "{item}"'
    return f"the {type(item).__name__.replace('int', 'integer')} {item}"


def key_of(item: Item) -> object:
    """Return what distinguishes instances of a def: types of tensors, values of everything else."""
    if isinstance(item, Value):
        return item.type
    if isinstance(item, tuple):
        return ("tuple", *(key_of(i) for i in item))
    if isinstance(item, StructValue):
        return ("struct", id(item.type), item.stack, *(key_of(i) for i in item.fields.values()))
    if isinstance(item, float | int | str | bool) or item is None:
        return (type(item).__name__, repr(item))
    return item


def count(item: Item, limit: int) -> int:
    """Count the parts of nested tuples and structs, giving up past ``limit``: shared parts count each time."""
    if isinstance(item, StructValue):
        return item.type.tensors
    if not isinstance(item, tuple):
        return 1
    total = 0
    for part in item:
        total += count(part, limit - total)
        if total > limit:
            break
    return total


def leaves(item: Item, path: str = "") -> Iterator[tuple[str, Value]]:
    """Yield every tensor in an item with its dotted path; compile-time parts have none."""
    if isinstance(item, Value):
        yield path, item
    elif isinstance(item, tuple):
        for i, part in enumerate(item):
            yield from leaves(part, f"{path}.{i}" if path else str(i))
    elif isinstance(item, StructValue):
        for name, part in item.fields.items():
            yield from leaves(part, f"{path}.{name}" if path else name)


def map_leaves(item: Item, change: Callable[[Value], Value]) -> Item:
    """Return a copy of an item with every tensor replaced."""
    if isinstance(item, Value):
        return change(item)
    if isinstance(item, tuple):
        return tuple(map_leaves(i, change) for i in item)
    if isinstance(item, StructValue):
        return StructValue(item.type, {n: map_leaves(i, change) for n, i in item.fields.items()}, item.stack)
    return item


def text_of(span: Span) -> str:
    """Return the source text of a span on one line, runs of white space as one blank."""
    if span.line == span.end_line:
        return " ".join(span.file.line(span.line)[span.column - 1 : span.end_column - 1].split())
    first = span.file.line(span.line)[span.column - 1 :]
    middle = [span.file.line(n) for n in range(span.line + 1, span.end_line)]
    last = span.file.line(span.end_line)[: span.end_column - 1]
    text = " ".join(line.split("#")[0].strip() for line in (first, *middle, last))
    return (
        " ".join(text.split())
        .replace("( ", "(")
        .replace(" )", ")")
        .replace(",)", ")")
        .replace("[ ", "[")
        .replace(" ]", "]")
    )


def nearest(name: str, known: Iterator[str] | list[str]) -> str | None:
    """Return the known names that look like ``name``, ready to be a suggestion."""
    import difflib

    found = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.6)
    return " or ".join(found) if found else None
