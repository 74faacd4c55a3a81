"""Trees to text and back: whatever a tree can hold, the grammar can say, and says it in one way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gshard_ir.frontend import ast
from gshard_ir.frontend.parser import parse
from gshard_ir.source import SourceFile, Span

HERE = Span(SourceFile("", ""), 1, 1, 1, 1)
FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "syntax").glob("*.gshard"))


# -- writing a tree, with every compound expression in parentheses -----------------------------------


def write(node: Any) -> str:
    return WRITERS[type(node)](node)


def commas(parts: tuple[Any, ...]) -> str:
    return ", ".join(map(write, parts))


def after(sign: str, part: Any) -> str:
    return "" if part is None else f"{sign}{write(part)}"


def body(statements: tuple[Any, ...]) -> str:
    return "\n" + "\n".join("    " + line for part in statements for line in write(part).split("\n"))


def suffix(node: Any, closed: bool) -> str:
    return "?" * node.open + (f"!{node.round}" if node.round or (closed and not node.open) else "")


def infix(node: Any) -> str:
    return f"({write(node.left)} {node.op} {write(node.right)})"


def sequence(node: Any) -> str:
    return f"({commas(node.items)}{',' * (len(node.items) == 1)})"


def dim(node: ast.DimExpr) -> str:
    if node.size is None:
        return "..."
    if not node.axes:
        return write(node.size) + ("" if node.open else f"@_{suffix(node, False)}")
    axes = write(node.axes[0]) if len(node.axes) == 1 else f"({commas(node.axes)})"
    return f"{write(node.size)}@{axes}{suffix(node, False)}"


def tensor(node: ast.TensorTypeExpr) -> str:
    text = f"{node.dtype}[{commas(node.dims)}]" + "".join(map(write, node.pending))
    return text + (f"!{{{commas(node.forbidden)}}}" if node.forbidden else "")


def conditional_block(node: ast.If) -> str:
    text = f"if {write(node.cond)}:{body(node.then)}"
    if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        return f"{text}\nel{write(node.orelse[0])}"
    return text + (f"\nelse:{body(node.orelse)}" if node.orelse else "")


def definition(node: ast.Def) -> str:
    above = "".join(map(write, node.decorators))
    sizes = f"[{commas(node.sizes)}]" if node.sizes else ""
    return f"{above}def {node.name}{sizes}({commas(node.params)}){after(' -> ', node.result)}:{body(node.body)}"


WRITERS: dict[type, Callable[[Any], str]] = {
    ast.Name: lambda n: n.id,
    ast.Placeholder: lambda n: n.kind,
    ast.Number: lambda n: repr(n.value),
    ast.Bool: lambda n: repr(n.value),
    ast.NoneLit: lambda _: "None",
    ast.EllipsisLit: lambda _: "...",
    ast.String: lambda n: f"'{n.value}'" if '"' in n.value else f'"{n.value}"',
    ast.AxisExpr: lambda n: f"{n.name}:({n.pre}){n.size}" if n.size else n.name,
    ast.DimPin: lambda n: write(n.axes) + suffix(n, True),
    ast.Tuple: sequence,
    ast.ListExpr: lambda n: f"[{commas(n.items)}]",
    ast.Unary: lambda n: f"({n.op} {write(n.operand)})",
    ast.Binary: infix,
    ast.Compare: infix,
    ast.Logical: infix,
    ast.Conditional: lambda n: f"({write(n.then)} if {write(n.cond)} else {write(n.orelse)})",
    ast.Call: lambda n: f"({write(n.func)})({commas((*n.args, *n.keywords))})",
    ast.Keyword: lambda n: f"{n.name}={write(n.value)}",
    ast.Attribute: lambda n: f"({write(n.value)}).{n.name}",
    ast.Slice: lambda n: f"{after('', n.start)} : {after('', n.stop)}{after(' : ', n.step)}",
    ast.Subscript: lambda n: f"({write(n.value)})[{commas(n.items)}]",
    ast.DimExpr: dim,
    ast.PendingExpr: lambda n: f"+{n.kind if n.kind != 'sum' else ''}{{{commas(n.axes)}}}",
    ast.TensorTypeExpr: tensor,
    ast.NamedType: lambda n: n.name + (f"[{commas(n.stack)}]" if n.stack else ""),
    ast.KeyType: lambda _: "key",
    ast.TupleType: sequence,
    ast.Assign: lambda n: f"{write(n.target)} = {write(n.value)}",
    ast.ExprStmt: lambda n: write(n.value),
    ast.Return: lambda n: "return" + after(" ", n.value),
    ast.For: lambda n: f"for {write(n.target)} in {write(n.iter)}:{body(n.body)}",
    ast.While: lambda n: f"while {write(n.cond)}:{body(n.body)}",
    ast.If: conditional_block,
    ast.ImportedName: lambda n: n.name if n.name == n.alias else f"{n.name} as {n.alias}",
    ast.Import: lambda n: f"from {n.module} import {commas(n.names)}",
    ast.MeshAxis: lambda n: f"{n.name}={write(n.size)}",
    ast.MeshDecl: lambda n: f"mesh({commas(n.axes)})",
    ast.ConstDecl: lambda n: f"const {commas(n.names)} = {commas(n.values)}",
    ast.FieldDecl: lambda n: f"    {n.name}: {write(n.type)}",
    ast.StructDecl: lambda n: "\n".join([f"struct {n.name}:", *map(write, n.fields)]),
    ast.Param: lambda n: n.name + after(": ", n.type) + after(" = ", n.default),
    ast.Decorator: lambda n: f"@{n.name}({commas(n.args)})\n",
    ast.Def: definition,
}


# -- drawing a tree ----------------------------------------------------------------------------------

WORDS = ["a", "b", "x1", "data", "model", "E", "_x", "f32", "keys"]


class Draw:
    """Random trees; ``depth`` bounds how far each may still grow."""

    def __init__(self, seed: int) -> None:
        self.of = random.Random(seed)

    def word(self) -> str:
        return self.of.choice(WORDS)

    def name(self) -> ast.Name:
        return ast.Name(self.word(), span=HERE)

    def some(self, make: Callable[[], Any], low: int = 0, high: int = 3) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.of.randint(low, high)))

    def words(self, low: int = 0) -> list[str]:
        return self.of.sample(WORDS, self.of.randint(low, 3))

    def flip(self) -> bool:
        return self.of.random() < 0.5

    def number(self) -> ast.Number:
        return ast.Number(self.of.choice([0, 7, 2**70, self.of.randrange(10**6)]), span=HERE)

    def axis(self) -> ast.AxisExpr:
        return ast.AxisExpr(
            self.word(), *((self.of.randint(1, 8), self.of.randint(2, 8)) if self.flip() else ()), span=HERE
        )

    def leaf(self) -> Any:
        return self.of.choice(
            [
                self.name,
                self.number,
                lambda: ast.Number(self.of.choice([0.0, 1e-9, 2.5, 1e300, 5e-324, self.of.random()]), span=HERE),
                lambda: ast.Bool(self.flip(), span=HERE),
                lambda: ast.NoneLit(span=HERE),
                lambda: ast.String(
                    self.of.choice(["", "ab,bc->ac", "it's # no comment", 'a "b"', "\u00e9\u2192", "\t"]), span=HERE
                ),
                lambda: ast.AxisExpr(self.word(), 2, 4, span=HERE),
            ]
        )()

    def expr(self, depth: int = 4) -> Any:
        if depth == 0 or self.of.random() < 0.2:
            return self.leaf()
        d = depth - 1

        def inner() -> Any:
            return self.expr(d)

        def infix(kind: Any, ops: str) -> Any:
            extra = {} if kind is ast.Logical else {"op_span": HERE}
            return kind(self.of.choice(ops.split()), inner(), inner(), **extra, span=HERE)

        return self.of.choice(
            [
                lambda: ast.Tuple(self.some(inner), span=HERE),
                lambda: ast.ListExpr(self.some(lambda: self.entry(d)), span=HERE),
                lambda: ast.Unary(self.of.choice(["-", "+", "~", "not"]), inner(), span=HERE),
                lambda: infix(ast.Binary, "+ - * / // % ** @ & | ^"),
                lambda: infix(ast.Compare, "== != < <= > >="),
                lambda: infix(ast.Logical, "and or"),
                lambda: ast.Conditional(inner(), inner(), inner(), span=HERE),
                lambda: ast.Call(inner(), self.some(inner), self.keywords(d), span=HERE),
                lambda: ast.Attribute(inner(), self.word(), HERE, span=HERE),
                lambda: ast.Subscript(inner(), self.some(lambda: self.index(d), 1), span=HERE),
            ]
        )()

    def keywords(self, depth: int) -> tuple[ast.Keyword, ...]:
        return tuple(ast.Keyword(word, self.expr(depth), span=HERE) for word in self.words())

    def entry(self, depth: int) -> Any:
        kind = self.of.randrange(4)
        if kind == 0:
            return ast.Placeholder(self.of.choice("_?"), span=HERE)
        if kind == 1:
            axes = self.of.choice(
                [self.name, self.axis_value, lambda: ast.Tuple(self.some(self.axis_value, 1), span=HERE)]
            )()
            return ast.DimPin(axes, self.flip(), self.of.randint(0, 9), span=HERE)
        return self.expr(depth)

    def axis_value(self) -> Any:
        return self.name() if self.flip() else ast.AxisExpr(self.word(), 3, 2, span=HERE)

    def index(self, depth: int) -> Any:
        kind = self.of.randrange(4)
        if kind == 0:
            return ast.EllipsisLit(span=HERE)
        if kind == 1:
            return ast.Slice(*(self.expr(depth) if self.flip() else None for _ in range(3)), span=HERE)
        return self.expr(depth)

    def size(self, depth: int = 3) -> Any:
        if depth == 0 or self.of.random() < 0.4:
            return self.name() if self.flip() else self.number()
        if self.of.random() < 0.3:
            return ast.Unary(self.of.choice("+-"), self.size(depth - 1), span=HERE)
        op = self.of.choice(["+", "-", "*", "//", "%", "**"])
        return ast.Binary(op, self.size(depth - 1), self.size(depth - 1), HERE, span=HERE)

    def dim(self) -> ast.DimExpr:
        kind, round_ = self.of.randrange(4), self.of.choice([0, 0, 1, 12])
        if kind == 0:
            return ast.DimExpr(self.size() if self.flip() else None, span=HERE)
        if kind == 1:
            return ast.DimExpr(self.size(), (), False, round_, span=HERE)
        return ast.DimExpr(self.size(), self.some(self.axis, 1), self.flip(), round_, span=HERE)

    def pending(self) -> ast.PendingExpr:
        return ast.PendingExpr(self.of.choice(["sum", "max", "min", "prod"]), self.some(self.axis, 1), span=HERE)

    def type(self, depth: int = 2) -> Any:
        kind = self.of.randrange(5 if depth else 4)
        if kind == 4:
            return ast.TupleType(self.some(lambda: self.type(depth - 1)), span=HERE)
        if kind == 3:
            return ast.KeyType(span=HERE)
        if kind == 2:
            return ast.NamedType(self.of.choice(["Moe", "int"]), self.some(self.dim, 0, 1), span=HERE)
        parts = self.some(self.dim), self.some(self.pending, 0, 2), self.some(self.axis, 0, 2)
        return ast.TensorTypeExpr(self.of.choice(["f32", "bf16", "bool"]), *parts, span=HERE)

    def target(self, depth: int = 2) -> Any:
        if depth == 0 or self.flip():
            return self.name()
        return ast.Tuple(self.some(lambda: self.target(depth - 1), 1), span=HERE)

    def statement(self, depth: int = 2) -> Any:
        return self.of.choice(
            [
                lambda: ast.Assign(self.target(), self.expr(), span=HERE),
                lambda: ast.Return(self.expr() if self.flip() else None, span=HERE),
                lambda: ast.ExprStmt(ast.Call(self.name(), self.some(self.leaf), span=HERE), span=HERE),
                lambda: ast.For(self.target(), self.expr(2), self.body(depth), span=HERE),
                lambda: ast.While(self.expr(2), self.body(depth), span=HERE),
                lambda: ast.If(self.expr(2), self.body(depth), self.body(depth) if self.flip() else (), span=HERE),
            ][: 6 if depth else 3]
        )()

    def body(self, depth: int = 3) -> tuple[Any, ...]:
        return self.some(lambda: self.statement(depth - 1), 1, 2)

    def params(self) -> tuple[ast.Param, ...]:
        names = self.words()
        required = self.of.randint(0, len(names))
        return tuple(
            ast.Param(name, self.type() if self.flip() else None, self.expr(2) if i >= required else None, span=HERE)
            for i, name in enumerate(names)
        )

    def decorator(self) -> ast.Decorator:
        return ast.Decorator(self.of.choice(["remat", "manual"]), self.some(self.name), span=HERE)

    def item(self) -> Any:
        kind = self.of.randrange(7)
        if kind == 0:
            names = self.some(lambda: ast.ImportedName(self.word(), self.word(), span=HERE), 1)
            return ast.Import(self.of.choice(["std", "std.moe", "a.b.c"]), names, span=HERE)
        if kind == 1:
            return ast.MeshDecl(tuple(ast.MeshAxis(w, self.expr(2), span=HERE) for w in self.words()), span=HERE)
        if kind == 2:
            names = self.some(self.name, 1)
            return ast.ConstDecl(names, tuple(self.expr() for _ in names), span=HERE)
        if kind == 3:
            fields = tuple(ast.FieldDecl(w, self.type(), span=HERE) for w in self.words(1))
            return ast.StructDecl(self.word(), fields, HERE, span=HERE)
        result = self.type() if self.flip() else None
        sizes, decorators = self.some(self.name), self.some(self.decorator, 0, 2)
        return ast.Def(self.word(), sizes, self.params(), result, self.body(), HERE, decorators, span=HERE)


@pytest.mark.parametrize("seed", range(40))
def test_a_tree_survives_being_written_and_parsed(seed: int) -> None:
    draw = Draw(seed)
    program = draw.some(draw.item, 1, 8)
    text = "\n".join(map(write, program))
    assert parse(SourceFile("t", text)).items == program


def test_the_draws_reach_every_class() -> None:
    found: set[type] = set()
    pending: list[Any] = [Draw(seed).item() for seed in range(120)]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Node):
            found.add(type(part))
            pending += [getattr(part, name) for name in part.__dataclass_fields__]
        elif isinstance(part, tuple):
            pending += part
    assert found == set(WRITERS)


@pytest.mark.parametrize("path", FIXTURES, ids=[p.stem for p in FIXTURES])
def test_a_program_survives_being_parsed_and_written(path: Path) -> None:
    program = parse(SourceFile(path.name, path.read_text(encoding="utf-8"))).items
    text = "\n".join(map(write, program))
    assert parse(SourceFile("t", text)).items == program
