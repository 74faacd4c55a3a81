"""lark trees to the dataclasses of `ast`, without recursion and with a bound on depth.

Rules that a grammar says badly are checked here: what can be assigned to, which decorators exist,
the order of arguments, statements whose value is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lark import Token, Tree

from gshard_ir.errors import GShardError, fail
from gshard_ir.frontend import ast
from gshard_ir.frontend.blocks import LAYOUT, token_span, too_deep
from gshard_ir.frontend.parser import MAX_NESTING
from gshard_ir.frontend.syntax_errors import BINARY, LITERALS
from gshard_ir.source import SourceFile, Span
from gshard_ir.types import DTYPES

DECORATORS: Final = ("remat", "manual")

# Rules that are nothing but their parts in order, and rules that are their one part or None.
_SEQUENCES: Final = frozenset(
    {
        "file", "module", "const_names", "const_values", "decorators", "sizes", "params", "dims", "axes", "forbidden",
        "body", "arguments",
    }
)  # fmt: skip
_OPTIONS: Final = frozenset({"alias", "result", "annotation", "default", "bound", "step", "group"})
_MEANT: Final = BINARY | LITERALS | {"NAME", "NOT", "TILDE", "AUGMENTED", "QUESTION", "ROUND", "SUBAXIS", "PENDING"}
_CONSTANTS: Final = {"True": True, "False": False}


@dataclass(frozen=True)
class _Made:
    """What a subtree stands for, how deep it is, and the tokens where it starts and ends (None: it is empty)."""

    value: Any
    depth: int = 0
    first: Token | None = None
    last: Token | None = None


def build(file: SourceFile, tree: Tree[Token]) -> tuple[ast.Item, ...]:
    """Return the items of the parse tree of a whole file."""
    maker = _Builder(file)
    done: dict[int, _Made] = {}
    for node in tree.iter_subtrees():  # children come before their parents
        parts = [done.pop(id(part)) if isinstance(part, Tree) else _leaf(part) for part in node.children]
        done[id(node)] = maker.make(node.data, parts)
    items: tuple[ast.Item, ...] = done[id(tree)].value
    return items


def _leaf(token: Token | None) -> _Made:
    return _Made(token) if token is None or token.type in LAYOUT else _Made(token, 0, token, token)


class _Builder:
    """One method per grammar rule: its span and the parts in order, to a node."""

    def __init__(self, file: SourceFile) -> None:
        self._file = file

    def make(self, rule: str, parts: list[_Made]) -> _Made:
        """Return what ``rule`` stands for over its parts; punctuation only widens the span."""
        first = next((part.first for part in parts if part.first is not None), None)
        last = next((part.last for part in reversed(parts) if part.last is not None), None)
        depth = max((part.depth for part in parts), default=0)
        values = [v for part in parts if not isinstance(v := part.value, Token) or v.type in _MEANT]
        if rule in _SEQUENCES:
            return _Made(tuple(values), depth, first, last)
        if rule in _OPTIONS:
            return _Made(values[0] if values else None, depth, first, last)
        assert first is not None and last is not None
        start, end = token_span(self._file, first), token_span(self._file, last)
        span = _join(start, end)
        if depth >= MAX_NESTING:
            raise GShardError(too_deep(span, "expressions and blocks"))
        return _Made(getattr(self, rule)(span, *values), depth + 1, first, last)

    def _distinct(self, parts: tuple[Any, ...], what: str, owner: str) -> None:
        seen: set[str] = set()
        for part in parts:
            if part.name in seen:
                raise fail(f"{owner}: {what} {part.name} appears twice", part.span, suggestion="rename or remove one")
            seen.add(part.name)

    # -- top level -----------------------------------------------------------------------------

    def import_decl(self, span: Span, module: tuple[Token, ...], *names: ast.ImportedName) -> ast.Import:
        return ast.Import(".".join(module), names, span=span)

    def imported(self, span: Span, name: Token, alias: Token | None) -> ast.ImportedName:
        return ast.ImportedName(str(name), str(alias or name), span=span)

    def mesh_decl(self, span: Span, *axes: ast.MeshAxis) -> ast.MeshDecl:
        self._distinct(axes, "axis", "mesh")
        return ast.MeshDecl(axes, span=span)

    def mesh_axis(self, span: Span, name: Token, size: ast.Expr) -> ast.MeshAxis:
        return ast.MeshAxis(str(name), size, span=span)

    def const_decl(self, span: Span, names: tuple[ast.Name, ...], values: tuple[ast.Expr, ...]) -> ast.ConstDecl:
        if len(names) != len(values):
            message = f"const: {_count(len(names), 'name')} and {_count(len(values), 'value')}"
            raise fail(message, _join(names[0].span, values[-1].span), suggestion="one value for each name")
        return ast.ConstDecl(names, values, span=span)

    def struct_decl(self, span: Span, name: ast.Name, *fields: ast.FieldDecl) -> ast.StructDecl:
        self._distinct(fields, "field", f"struct {name.id}")
        return ast.StructDecl(name.id, fields, name.span, span=span)

    def field(self, span: Span, name: Token, type_: ast.TypeExpr) -> ast.FieldDecl:
        return ast.FieldDecl(str(name), type_, span=span)

    def def_decl(
        self,
        span: Span,
        decorators: tuple[ast.Decorator, ...],
        name: ast.Name,
        sizes: tuple[ast.Name, ...],
        params: tuple[ast.Param, ...],
        result: ast.TypeExpr | None,
        body: tuple[ast.Stmt, ...],
    ) -> ast.Def:
        self._distinct(params, "parameter", name.id)
        optional = None
        for param in params:
            if optional and param.default is None:
                note = f"{optional} before it has one"
                edit = f"move {param.name} before {optional}"
                raise fail(f"parameter {param.name} needs a default", param.span, note, suggestion=edit)
            optional = param.name if param.default is not None else None
        return ast.Def(name.id, sizes, params, result, body, name.span, decorators, span=span)

    def decorator(self, span: Span, _at: Token, name: Token, arguments: tuple[Any, ...] = ()) -> ast.Decorator:
        if name not in DECORATORS:
            known = " and ".join(f"@{known}" for known in DECORATORS)
            raise fail(f"unknown decorator @{name}", token_span(self._file, name), suggestion=f"there are {known}")
        for argument in arguments:
            if isinstance(argument, ast.Keyword):
                raise fail(f"@{name} takes no named arguments", argument.span, suggestion="axis names alone")
        return ast.Decorator(str(name), arguments, span=span)

    def param(self, span: Span, name: Token, type_: ast.TypeExpr | None, default: ast.Expr | None) -> ast.Param:
        return ast.Param(str(name), type_, default, span=span)

    # -- types ---------------------------------------------------------------------------------

    def plain_type(self, span: Span, name: Token) -> ast.TypeExpr:
        return ast.KeyType(span=span) if name == "key" else ast.NamedType(str(name), span=span)

    def array_type(self, span: Span, name: Token, dims: tuple[ast.DimExpr, ...], *suffixes: Any) -> ast.TypeExpr:
        if name in DTYPES:
            pending = tuple(part for part in suffixes if isinstance(part, ast.PendingExpr))
            forbidden = tuple(axis for part in suffixes if isinstance(part, tuple) for axis in part)
            return ast.TensorTypeExpr(str(name), dims, pending, forbidden, span=span)
        if suffixes:
            message = f"{name} is no tensor type, so nothing follows its ]"
            raise fail(message, span, suggestion=f"annotate the fields of {name}")
        return ast.NamedType(str(name), dims, span=span)

    def tuple_type(self, span: Span, *items: ast.TypeExpr) -> ast.TupleType:
        return ast.TupleType(items, span=span)

    def dim(self, span: Span, size: ast.Expr) -> ast.DimExpr:
        return ast.DimExpr(size, span=span)

    def rest_dims(self, span: Span) -> ast.DimExpr:
        return ast.DimExpr(None, span=span)

    def split_dim(
        self,
        span: Span,
        size: ast.Expr,
        _at: Token,
        axes: tuple[ast.AxisExpr, ...],
        question: Token | None,
        round_: Token | None,
    ) -> ast.DimExpr:
        unsplit = next((axis for axis in axes if axis.name == "_"), None)
        if unsplit is not None and (len(axes) > 1 or question is not None or unsplit.size):
            message = "'_' says that the dim is not split, so it stands alone"
            raise fail(message, unsplit.span, suggestion="@_ alone, or name the axes")
        return ast.DimExpr(size, () if unsplit else axes, question is not None, self._round(round_), span=span)

    def axis(self, span: Span, name: Token, piece: Token | None) -> ast.AxisExpr:
        if piece is None:
            return ast.AxisExpr(str(name), span=span)
        pre, size = piece[2:].split(")")
        if len(piece) > 40 or int(pre) < 1 or int(size) < 2:
            message = "a sub-axis has a factor of 1 or more and a size of 2 or more"
            note = "the piece of size 2 that comes after a factor of 2 is written :(2)2"
            edit = f":({max(int(pre[:9]), 1)}){max(int(size[:9]), 2)}"
            raise fail(message, token_span(self._file, piece), note, suggestion=edit)
        return ast.AxisExpr(str(name), int(pre), int(size), span=span)

    sub_axis = axis

    def _round(self, token: Token | None) -> int:
        if token is not None and len(token) > 4:
            span = token_span(self._file, token)
            raise fail("a round is a small number: 0 is decided first, then 1", span, suggestion="!1")
        return int(token[1:]) if token else 0

    def pending(self, span: Span, opener: Token, *axes: ast.AxisExpr) -> ast.PendingExpr:
        return ast.PendingExpr(opener.strip("+{ \t") or "sum", axes, span=span)

    # -- statements ----------------------------------------------------------------------------

    def expr_stmt(self, span: Span, value: ast.Expr) -> ast.ExprStmt:
        if isinstance(value, ast.Compare) and value.op == "==" and isinstance(value.left, ast.Name):
            edit = f"{value.left.id} = {_first_line(value.right.span)}"
            raise fail("'==' compares, and the result is lost", value.op_span, suggestion=edit)
        if not isinstance(value, (ast.Call, ast.String)):
            raise fail("the value of this line is lost", value.span, suggestion=f"y = {_first_line(value.span)}")
        return ast.ExprStmt(value, span=span)

    def assign(self, span: Span, target: ast.Expr, value: ast.Expr) -> ast.Assign:
        return ast.Assign(_target(target), value, span=span)

    def augmented(self, span: Span, target: ast.Expr, token: Token, value: ast.Expr) -> ast.Assign:
        op = token[:-1]
        if not isinstance(target, ast.Name):
            raise fail(f"{token} changes one name", target.span, suggestion=f"x = x {op} ...")
        changed = ast.Binary(op, target, value, token_span(self._file, token), span=span)
        return ast.Assign(target, changed, span=span)

    def return_stmt(self, span: Span, value: ast.Expr | None) -> ast.Return:
        return ast.Return(value, span=span)

    def for_stmt(self, span: Span, target: ast.Expr, iterated: ast.Expr, body: tuple[ast.Stmt, ...]) -> ast.For:
        return ast.For(_target(target), iterated, body, span=span)

    def while_stmt(self, span: Span, cond: ast.Expr, body: tuple[ast.Stmt, ...]) -> ast.While:
        return ast.While(cond, body, span=span)

    def if_stmt(self, span: Span, cond: ast.Expr, then: tuple[ast.Stmt, ...], orelse: Any) -> ast.If:
        orelse = (orelse,) if isinstance(orelse, ast.If) else orelse or ()
        return ast.If(cond, then, orelse, span=span)

    # -- expressions ---------------------------------------------------------------------------

    def tuple_expr(self, span: Span, *items: ast.Expr) -> ast.Tuple:
        return ast.Tuple(items, span=span)

    def conditional(self, span: Span, then: ast.Expr, cond: ast.Expr, orelse: ast.Expr) -> ast.Conditional:
        return ast.Conditional(cond, then, orelse, span=span)

    def logical(self, span: Span, left: ast.Expr, op: Token, right: ast.Expr) -> ast.Logical:
        return ast.Logical(str(op), left, right, span=span)

    def compare(self, span: Span, left: ast.Expr, op: Token, right: ast.Expr) -> ast.Compare:
        return ast.Compare(str(op), left, right, token_span(self._file, op), span=span)

    def binary(self, span: Span, left: ast.Expr, op: Token, right: ast.Expr) -> ast.Binary:
        return ast.Binary(str(op), left, right, token_span(self._file, op), span=span)

    def unary(self, span: Span, op: Token, operand: ast.Expr) -> ast.Unary:
        return ast.Unary(str(op), operand, span=span)

    def attribute(self, span: Span, value: ast.Expr, name: Token) -> ast.Attribute:
        return ast.Attribute(value, str(name), token_span(self._file, name), span=span)

    def call(self, span: Span, func: ast.Expr, arguments: Any) -> ast.Call:
        keywords = [argument for argument in arguments if isinstance(argument, ast.Keyword)]
        self._distinct(tuple(keywords), "argument", func.id if isinstance(func, ast.Name) else "call")
        positional = arguments[: len(arguments) - len(keywords)]
        if any(isinstance(argument, ast.Keyword) for argument in positional):
            first = arguments.index(keywords[0])
            late = next(argument for argument in arguments[first:] if not isinstance(argument, ast.Keyword))
            message = f"an argument without a name follows {keywords[0].name}="
            raise fail(message, late.span, suggestion="put it before the named ones")
        return ast.Call(func, positional, (*keywords,), span=span)

    def keyword(self, span: Span, name: Token, value: ast.Expr) -> ast.Keyword:
        return ast.Keyword(str(name), value, span=span)

    def subscript(self, span: Span, value: ast.Expr, *items: ast.Expr) -> ast.Subscript:
        return ast.Subscript(value, items, span=span)

    def slice_expr(self, span: Span, start: ast.Expr | None, stop: ast.Expr | None, step: ast.Expr | None) -> ast.Slice:
        return ast.Slice(start, stop, step, span=span)

    def ellipsis(self, span: Span) -> ast.EllipsisLit:
        return ast.EllipsisLit(span=span)

    def name(self, span: Span, token: Token) -> ast.Name:
        return ast.Name(str(token), span=span)

    def number(self, span: Span, token: Token) -> ast.Number:
        return ast.Number(int(token) if token.type == "INT" else float(token), str(token), span=span)

    def string(self, span: Span, token: Token) -> ast.String:
        return ast.String(token[1:-1], span=span)

    def constant(self, span: Span, token: Token) -> ast.Expr:
        return ast.NoneLit(span=span) if token == "None" else ast.Bool(_CONSTANTS[token], span=span)

    def list_expr(self, span: Span, *entries: ast.Expr) -> ast.ListExpr:
        return ast.ListExpr((*map(_unsplit, entries),), span=span)

    def placeholder(self, span: Span, token: Token) -> ast.Placeholder:
        return ast.Placeholder(str(token), span=span)

    def open_pin(self, span: Span, axes: ast.Expr, _question: Token, round_: Token | None) -> ast.DimPin:
        return ast.DimPin(_pinned(axes), True, self._round(round_), span=span)

    def closed_pin(self, span: Span, axes: ast.Expr, round_: Token) -> ast.DimPin:
        return ast.DimPin(_pinned(axes), False, self._round(round_), span=span)


def _target(node: ast.Expr) -> ast.Name | ast.Tuple:
    """Check what stands left of ``=`` or after ``for``; tuples may nest."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Tuple) and part.items:
            pending += reversed(part.items)
        elif isinstance(part, ast.Attribute):
            edit = "build a new struct from its fields"
            raise fail("a struct's field cannot be changed", part.span, suggestion=edit)
        elif isinstance(part, ast.Subscript):
            raise fail("an element cannot be assigned to", part.span, suggestion="x = where(mask, new, x)")
        elif not isinstance(part, ast.Name):
            what = "a call" if isinstance(part, ast.Call) else "this"
            raise fail(f"{what} cannot be assigned to", part.span, suggestion="a name, or names separated by commas")
    assert isinstance(node, (ast.Name, ast.Tuple))
    return node


def _pinned(axes: ast.Expr) -> ast.Expr:
    """Check what carries a ``?`` or a round in a layout list."""
    for axis in axes.items if isinstance(axes, ast.Tuple) else (axes,):
        if not isinstance(axis, (ast.Name, ast.AxisExpr)):
            raise fail("only mesh axes take '?' or a round", axis.span, suggestion="data? or (data, model)!1")
    return _unsplit(axes)


def _unsplit(entry: ast.Expr) -> ast.Expr:
    """``_`` in a layout list is a placeholder, elsewhere a name."""
    return ast.Placeholder("_", span=entry.span) if isinstance(entry, ast.Name) and entry.id == "_" else entry


def _first_line(span: Span) -> str:
    """The text of an expression, cut where its first line ends."""
    line = span.file.line(span.line)
    return line[span.column - 1 : span.end_column - 1 if span.end_line == span.line else None].strip()


def _join(first: Span, last: Span) -> Span:
    return Span(first.file, first.line, first.column, last.end_line, last.end_column)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
