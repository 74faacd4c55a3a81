"""The source as it was read: each line with the types of the names that it defines."""

from __future__ import annotations

from collections.abc import Iterator

from gshard_ir.dump.table import Line, Segment
from gshard_ir.ir import Module, Value
from gshard_ir.source import SourceFile


def names_by_line(module: Module, file: SourceFile) -> dict[int, dict[str, str]]:
    """Map each line of ``file`` to the names that it defines and their types; several instances of a def are joined."""
    found: dict[int, dict[str, list[str]]] = {}
    for function in module.functions.values():
        params = zip(function.param_names, function.params, strict=True)
        values = [*params, *((v.hint, v) for op in function.body.walk() for v in op.results)]
        for name, value in values:
            if name and value.span is not None and value.span.file.name == file.name:
                types = found.setdefault(value.span.line, {}).setdefault(name, [])
                types += [t] if (t := _type(value)) not in types else []
    return {at: {n: " or ".join(types) for n, types in names.items()} for at, names in sorted(found.items())}


def _type(value: Value) -> str:
    return str(value.type)


def lines_of(module: Module, file: SourceFile) -> list[Line]:
    """Number the lines of the source and write types at their ends."""
    return list(_lines(module, file))


def _lines(module: Module, file: SourceFile) -> Iterator[Line]:
    types = names_by_line(module, file)
    texts = file.text.rstrip("\n").split("\n")
    width = min(100, max((len(texts[at - 1]) for at in types if at <= len(texts)), default=0))
    for number, text in enumerate(texts, 1):
        shown = ", ".join(f"{name}: {type_}" for name, type_ in types.get(number, {}).items())
        clean = "".join(ch if ch.isprintable() else " " for ch in text)
        yield (
            Segment(f"{number:5d} | ", "faint"),
            Segment(clean.ljust(width) if shown else clean),
            Segment(f"   {shown}" if shown else "", "comm"),
        )
