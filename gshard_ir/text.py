"""The text form of the IR. It prints, parses and prints the same; dumps, fixtures and tests use it.

Values are named after their hints: ``%h``, the second one ``%h#1``, nameless ones ``%0``, ``%1``.
In a global module a type shows what a signature pins (``f32[8@data,64]``); in a local one it shows
the layout, ``local f32[8]`` is plain device-local data, and what the user pinned follows ``as``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from gshard_ir.ir import Attr, Function, Module, Op, Region, Value
from gshard_ir.sharding import Layout, Sharding
from gshard_ir.source import Span
from gshard_ir.types import KEY, DType, ShardedType, TensorType

INDENT = "  "


def print_module(module: Module, *, locations: bool = True) -> str:
    """Return the whole module, ending in a newline; ``locations`` adds ``loc(...)`` with call stacks."""
    axes = ", ".join(f"{n}={s}" for n, s in zip(module.mesh.names, module.mesh.sizes, strict=True))
    lines = [f"module {_symbol(module.entry)}{' local' if module.local else ''} mesh({axes})"]
    for function in module.functions.values():
        lines += ["", print_function(function, module, locations=locations)]
    return "\n".join(lines) + "\n"


def print_function(function: Function, module: Module, *, locations: bool = True) -> str:
    """Return one function of ``module``, without a trailing newline."""
    return Printer(module, name_values(function.body), locations=locations).function(function)


def print_op(op: Op, module: Module, names: Mapping[Value, str], *, locations: bool = False) -> str:
    """Return one op, its regions included; values that ``names`` lacks are shown as ``%?``."""
    return "\n".join(Printer(module, names, locations=locations).op(op, 0))


def name_values(region: Region) -> dict[Value, str]:
    """Name every value that ``region`` defines, in order: its hint, numbered from the second one on."""
    names: dict[Value, str] = {}
    counts: dict[str, int] = {}

    def add(values: Iterable[Value]) -> None:
        for value in values:
            if value in names:
                continue
            hint = re.sub(r"[^A-Za-z0-9_.]", "_", value.hint)
            hint = f"_{hint}" if hint.isdigit() else hint
            number = counts.get(hint, 0)
            counts[hint] = number + 1
            names[value] = f"%{number}" if not hint else f"%{hint}#{number}" if number else f"%{hint}"

    def visit(inner: Region) -> None:
        add(inner.params)
        for op in inner.ops:
            add(op.results)
            for nested in op.regions:
                visit(nested)

    visit(region)
    return names


def parse_module(text: str, name: str = "<ir>") -> Module:
    """Read a module back; raises :class:`~gshard_ir.errors.GShardError` with the place in ``text``.

    ``name`` is what errors call the text. Nothing is verified beyond names being defined before use.
    """
    from gshard_ir.text_reader import read_module

    return read_module(text, name)


class Printer:
    """Prints ops of one function with fixed value names."""

    def __init__(self, module: Module, names: Mapping[Value, str], *, locations: bool) -> None:
        self.module, self.names, self.locations = module, names, locations

    def function(self, function: Function) -> str:
        params = ", ".join(
            self._param(value, name, pin)
            for value, name, pin in zip(function.params, function.param_names, function.param_shardings, strict=True)
        )
        results = ", ".join(
            f"{json.dumps(name)}: {self._pinned(value.type, pin)}"
            for value, name, pin in zip(function.results, function.result_names, function.result_shardings, strict=True)
        )
        head = f"def {_symbol(function.name)}({params}) -> ({results}){self.location(function.span)} {{"
        return "\n".join([head, *self.body(function.body, "return", 1), "}"])

    def _param(self, value: Value, name: str, pin: Sharding | None) -> str:
        shown = "" if name == value.hint else f"{json.dumps(name)} "
        return f"{shown}{self.value(value)}: {self._pinned(value.type, pin)}{self.location(value.span)}"

    def _pinned(self, type_: TensorType, pin: Sharding | None) -> str:
        if pin is None:
            return self.type(type_)
        shape = type_.whole if isinstance(type_, ShardedType) else type_.shape
        shown = pin.show(shape) + ("!{}" if pin.says_nothing else "")
        return f"{self.type(type_)} as {shown}" if self.module.local else f"{type_.dtype}{shown}"

    def body(self, region: Region, end: str, depth: int) -> list[str]:
        lines = [line for op in region.ops for line in self.op(op, depth)]
        return [*lines, INDENT * depth + f"{end} {self._values(region.results)}".rstrip()]

    def op(self, op: Op, depth: int) -> list[str]:
        targets = ", ".join(self.value(v) + ("" if v.span == op.span else self.location(v.span)) for v in op.results)
        attrs = ", ".join(f"{name}={attr_text(op.attrs[name])}" for name in sorted(op.attrs))
        types = ", ".join(self.type(v.type) for v in op.results) or "()"
        head = f"{targets} = " if targets else ""
        head += f"{op.name}({self._values(op.operands)}){f' {{{attrs}}}' if attrs else ''} : {types}"
        lines = [INDENT * depth + head]
        for region in op.regions:
            params = ", ".join(f"{self.value(v)}: {self.type(v.type)}{self.location(v.span)}" for v in region.params)
            lines[-1] += f" do ({params}) {{"
            lines += [*self.body(region, "yield", depth + 1), INDENT * depth + "}"]
        lines[-1] += self.location(op.span)
        return lines

    def _values(self, values: Sequence[Value]) -> str:
        return ", ".join(map(self.value, values))

    def value(self, value: Value) -> str:
        return self.names.get(value, "%?")

    def type(self, type_: TensorType) -> str:
        if not isinstance(type_, ShardedType):
            return f"local {type_}" if self.module.local else str(type_)
        shown = "key" if type_.dtype == KEY and str(type_) == "key[]" else str(type_)
        if not self._usual(type_):
            shown += f" holding [{','.join(map(str, type_.shape))}]"
        return shown

    def _usual(self, type_: ShardedType) -> bool:
        """Does the local shape follow from the layout?"""
        try:
            return type_.shape == type_.layout.local_shape(type_.whole, self.module.mesh)
        except ValueError:
            return False

    def location(self, span: Span | None) -> str:
        if not self.locations or span is None:
            return ""
        places = [
            f"{json.dumps(s.file.name)}:{s.line}:{s.column}-{s.end_line}:{s.end_column}"
            + (f" in {_symbol(s.callee)}" if s.callee is not None else "")
            for s in span.stack()
        ]
        return f" loc({' from '.join(places)})"


def attr_text(attr: Attr) -> str:
    """Return an attribute value as the IR text writes it; different values have different texts."""
    if isinstance(attr, str):
        return json.dumps(attr)
    if isinstance(attr, DType):
        return attr.name
    if isinstance(attr, Sharding):
        shown = attr.show(["_"] * len(attr.dims))  # type: ignore[list-item]
        return f"sharding{shown}"
    if isinstance(attr, Layout):
        return f"layout{attr}"
    if isinstance(attr, tuple):
        return f"({', '.join(map(attr_text, attr))}{',' if len(attr) == 1 else ''})"
    return repr(attr)


def _symbol(name: str) -> str:
    return f"@{name}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) else f"@{json.dumps(name)}"
