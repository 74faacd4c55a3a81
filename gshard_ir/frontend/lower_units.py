"""The names of a file: imports, consts, structs and defs, those of the program and those of ``std``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend import ast
from gshard_ir.frontend.lower_types import StructType
from gshard_ir.frontend.lower_values import POISON, DefRef, Item, Poison, Poisoned, nearest, text_of
from gshard_ir.source import SourceFile, Span
from gshard_ir.types import DTYPES

STD = ("moe", "nn")
"""Modules of the standard library: ``std.moe`` is the file ``moe.gshard`` in `gshard_ir.std`."""


@lru_cache(maxsize=len(STD))
def std_program(name: str) -> ast.Program:
    """Parse a module of the standard library."""
    from gshard_ir.frontend.parser import parse

    text = resources.files("gshard_ir.std").joinpath(f"{name}.gshard").read_text(encoding="utf-8")
    return parse(SourceFile(f"std/{name}.gshard", text))


@dataclass(eq=False)
class Unit:
    """The top level of one file. ``items`` holds what each name stands for once it is known."""

    program: ast.Program
    is_std: bool
    report: Callable[[GShardError], None]
    items: dict[str, Item] = field(default_factory=dict)
    structs: dict[str, ast.StructDecl] = field(default_factory=dict)
    defs: dict[str, DefRef] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    resolving: list[str] = field(default_factory=list)

    def declare(self, std: Callable[[str], Unit]) -> None:
        """Enter imports, structs and defs; ``std`` gives the unit of a module of the standard library."""
        for item in self.program.items:
            try:
                if isinstance(item, ast.Import):
                    self._import(item, std)
                elif isinstance(item, ast.StructDecl):
                    self.enter(item.name, item.name_span)
                    self.structs[item.name] = item
                elif isinstance(item, ast.Def):
                    self.enter(item.name, item.name_span)
                    self.items[item.name] = self.defs[item.name] = DefRef(self, item)
            except GShardError as error:
                self.report(error)

    def enter(self, name: str, span: Span) -> None:
        """Claim a top-level name; raise a diagnostic when it is taken."""
        if name in self.spans:
            raise GShardError(
                Diagnostic(
                    f"{name} is declared twice",
                    span,
                    also=((self.spans[name], "declared first here"),),
                    suggestion="rename one of the two",
                )
            )
        if name in DTYPES:
            raise fail(f"{name} is an element type and cannot be declared", span, suggestion=f"my_{name}")
        self.spans[name] = span

    def _import(self, node: ast.Import, std: Callable[[str], Unit]) -> None:
        for name in node.names:
            self.items[name.alias] = POISON
        first, _, module = node.module.partition(".")
        if first != "std" or module not in STD:
            likely = nearest(module, list(STD)) if module else None
            names = ", ".join(text_of(n.span) for n in node.names)
            edits = [f"from std.{m} import {names}" for m in (likely.split(" or ") if likely else STD)]
            note = "imports are of the standard library only"
            raise fail(f"there is no module {node.module}", node.span, note, suggestion=" or ".join(edits))
        unit = std(module)
        for name in node.names:
            try:
                self.enter(name.alias, name.span)
                found = unit.find(name.name)
                if found is None or name.name.startswith("_"):
                    raise fail(
                        f"{node.module} has no {name.name}",
                        name.span,
                        suggestion=nearest(name.name, list(unit.names())) or f"one of {', '.join(unit.names())}",
                    )
                self.items[name.alias] = found
            except GShardError as error:
                self.report(error)

    def names(self) -> Iterator[str]:
        """Yield the names that this file declares or imports; those that start with ``_`` are its own business."""
        found = [*self.defs, *self.structs, *(n for n, i in self.items.items() if not isinstance(i, Poison))]
        yield from (n for n in dict.fromkeys(found) if not n.startswith("_"))

    def find(self, name: str) -> Item | None:
        """Return what a top-level name stands for, None when it is unknown or ``None`` itself."""
        return self.items.get(name)

    def has(self, name: str) -> bool:
        """Tell whether the file declares or imports a name."""
        return name in self.items or name in self.structs

    def const(self, name: str) -> ast.Name | None:
        """Return where a const is declared, whether or not its value is known yet."""
        consts = (item for item in self.program.items if isinstance(item, ast.ConstDecl))
        return next((n for item in consts for n in item.names if n.id == name), None)

    def get(self, name: str) -> Item:
        """Return what a declared name stands for; raise :class:`Poisoned` when its declaration is in error."""
        item = self.items.get(name)
        if isinstance(item, Poison):
            raise Poisoned
        return item

    def struct(self, name: str, span: Span, resolve: Callable[[ast.TypeExpr], object]) -> StructType:
        """Return a struct type, resolving it at its first use; raise a diagnostic when there is none."""
        if name in self.items:
            item = self.get(name)
            if isinstance(item, StructType):
                return item
            raise fail(f"{name} is no type", span, suggestion=nearest(name, [*self.structs, *DTYPES]))
        if name not in self.structs:
            if name in DTYPES:
                raise fail(
                    f"{name} is an element type, not a tensor type",
                    span,
                    "a scalar has [ ] with no sizes",
                    suggestion=f"{name}[]",
                )
            raise fail(
                f"unknown type {name}", span, suggestion=nearest(name, [*self.structs, *DTYPES, "int", "float", "str"])
            )
        return self._resolve(name, span, resolve)

    def _resolve(self, name: str, span: Span, resolve: Callable[[ast.TypeExpr], object]) -> StructType:
        if name in self.resolving:
            cycle = [*self.resolving[self.resolving.index(name) :], name]
            note = f"the cycle is {' -> '.join(cycle)}"
            raise fail(f"struct {name} contains itself", span, note, suggestion="a tensor type, or another struct")
        node = self.structs[name]
        self.items.pop(name, None)
        self.resolving.append(name)
        fields: dict[str, object] = {}
        failed = False
        for part in node.fields:
            try:
                fields[part.name] = resolve(part.type)
            except Poisoned:
                failed = True
            except GShardError as error:
                failed = True
                self.report(error)
        self.resolving.pop()
        if failed:
            self.items[name] = POISON
            raise Poisoned
        found = StructType(name, fields)  # type: ignore[arg-type]
        self.items[name] = found
        return found
