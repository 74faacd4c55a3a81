"""Read the text form of the IR: the other half of :mod:`gshard_ir.text`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

from gshard_ir.errors import GShardError, fail
from gshard_ir.ir import Attr, Function, Module, Op, Region, Value
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.sharding import REDUCTIONS, DimSharding, Layout, Sharding
from gshard_ir.source import SourceFile, Span
from gshard_ir.types import DTYPES, DType, ShardedType, TensorType

Node = Tree[Token]
Child = Node | Token | None
WORDS: dict[str, Attr] = {
    "True": True, "False": False, "None": None, "inf": float("inf"), "nan": float("nan"), **DTYPES
}  # fmt: skip


def grammar() -> str:
    """Return the text of ``ir.lark``."""
    return files("gshard_ir.grammar").joinpath("ir.lark").read_text(encoding="utf-8")


@cache
def parser() -> Lark:
    """Return the parser, built once per process."""
    return Lark(grammar(), parser="lalr", propagate_positions=True, maybe_placeholders=True)


def read_module(text: str, name: str) -> Module:
    """Parse ``text``, called ``name`` in errors; see :func:`gshard_ir.text.parse_module`."""
    file = SourceFile(name, text)
    try:
        tree = parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(error, file) from None
    return _Reader(file).module(tree)


def _syntax_error(error: UnexpectedInput, file: SourceFile) -> GShardError:
    token = getattr(error, "token", None)
    found, line, column = "this", error.line, error.column
    if token is not None and token.type == "$END":
        lines = file.text.rstrip().split("\n")
        found, line, column = "the end of the text", len(lines), len(lines[-1]) + 1
    end = column + max(1, len(token or ""))
    wanted = sorted(getattr(error, "accepts", None) or getattr(error, "allowed", None) or ())
    shown = ", ".join(map(_terminal, wanted[:8]))
    return fail(f"IR text: {found} is not expected here", Span(file, line, column, line, end), f"expected {shown}")


def _terminal(name: str) -> str:
    """Return a terminal as a reader writes it: ``LPAR`` is ``"("``."""
    pattern = parser().get_terminal(name).pattern if name != "$END" else None
    if pattern is None:
        return "the end"
    return f'"{pattern.value}"' if pattern.type == "str" else name.lower()


@dataclass(frozen=True)
class _Brackets:
    """What stands behind a dtype: sizes (0 for ``_``), and the sharding that they carry."""

    sizes: tuple[int, ...]
    sharding: Sharding
    plain: bool
    """Nothing was said about sharding at all."""

    def layout(self) -> Layout:
        dims = tuple(tuple(map(str, d.axes)) for d in self.sharding.dims)
        return Layout(dims, tuple((kind, tuple(map(str, axes))) for kind, axes in self.sharding.pending))


class _Reader:
    """Turns the tree of one text into IR. ``scope`` maps value names to values."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.sources: dict[str, SourceFile] = {}
        self.mesh = Mesh((), ())
        self.local = False
        self.scope: dict[str, Value] = {}

    # Errors and positions

    def error(self, at: Child, message: str, *notes: str) -> GShardError:
        return fail(f"IR text: {message}", self.here(at), *notes)

    def here(self, at: Child) -> Span:
        meta: Any = at.meta if isinstance(at, Tree) else at
        return Span(self.file, meta.line, meta.column, meta.end_line, meta.end_column)

    # Module and functions

    def module(self, tree: Node) -> Module:
        entry, local, *rest = _parts(tree)
        self.local = local is not None
        axes = [(str(_token(n.children[0])), int(_token(n.children[1]))) for n in _trees(rest, "axis")]
        parents = tuple(_axis_ref(name) for name, _ in axes)
        self.mesh = Mesh(tuple(n for n, _ in axes), tuple(s for _, s in axes), parents)
        functions: dict[str, Function] = {}
        for node in _trees(rest, "function"):
            function = self.function(node)
            if function.name in functions:
                raise self.error(node.children[0], f"@{function.name} is defined twice")
            functions[function.name] = function
        name = _symbol(_tree(entry))
        if name not in functions:
            raise self.error(entry, f"there is no function @{name}")
        return Module(self.mesh, functions, name, self.local)

    def function(self, tree: Node) -> Function:
        symbol, params, results, loc, ops, values = _parts(tree)
        self.scope = {}
        names, shardings, arguments = [], [], []
        for node in _trees(_tree(params).children, "param"):
            name, value, pinned, place = _parts(node)
            type_, pin = self.pinned(_tree(pinned))
            arguments.append(self.define(_token(value), type_, self.location(place)))
            names.append(json.loads(name) if isinstance(name, Token) else arguments[-1].hint)
            shardings.append(pin)
        outs = [(json.loads(_token(n.children[0])), n) for n in _trees(_tree(results).children, "result")]
        pins = [self.pinned(_tree(n.children[1])) for _, n in outs]
        body = self.region(tuple(arguments), _tree(ops), _tree(values))
        self.check_results(_tree(values), body.results, [t for t, _ in pins])
        return Function(
            _symbol(_tree(symbol)),
            body,
            tuple(names),
            tuple(name for name, _ in outs),
            tuple(shardings),
            tuple(pin for _, pin in pins),
            self.location(loc),
        )

    def check_results(self, node: Node, found: tuple[Value, ...], wanted: list[TensorType]) -> None:
        if len(found) != len(wanted):
            raise self.error(node, f"{len(found)} values are returned", f"the signature has {len(wanted)}")
        for token, value, type_ in zip(node.children, found, wanted, strict=True):
            if value.type != type_:
                raise self.error(token, f"{token} is {value.type}", f"the signature says {type_}")

    def pinned(self, tree: Node) -> tuple[TensorType, Sharding | None]:
        """Read a type in a signature: in a global module its own sharding is the pin."""
        node, pin = _parts(tree)
        if self.local:
            return self.type(_tree(node)), self.brackets(_tree(pin)).sharding if pin is not None else None
        _, name, brackets, _ = _parts(_tree(node))
        if brackets is None:
            return TensorType(self.dtype(_token(name)), ()), None
        read = self.brackets(_tree(brackets))
        return TensorType(self.dtype(_token(name)), read.sizes), None if read.plain else read.sharding

    def region(self, params: tuple[Value, ...], ops: Node, results: Node) -> Region:
        made = tuple(self.op(_tree(node)) for node in ops.children)
        return Region(params, made, self.values(results))

    # Ops

    def op(self, tree: Node) -> Op:
        targets, name, operands, attrs, types, regions, loc = _parts(tree)
        span = self.location(loc)
        inputs = self.values(_tree(operands))
        inner = tuple(self.nested(_tree(node)) for node in _tree(regions).children)
        attributes = {
            str(_token(n.children[0])): self.attr(_tree(n.children[1])) for n in _trees(_tree(attrs).children)
        }
        result_types = [self.type(node) for node in _trees(_tree(types).children)]
        outs = list(_trees(targets.children)) if isinstance(targets, Tree) else []
        if len(outs) != len(result_types):
            raise self.error(name, f"{name} has {len(outs)} results and {len(result_types)} types")
        results = tuple(
            self.define(_token(node.children[0]), type_, self.location(node.children[1]) or span)
            for node, type_ in zip(outs, result_types, strict=True)
        )
        return Op(str(name), inputs, results, attributes, inner, span)

    def nested(self, tree: Node) -> Region:
        arguments, ops, values = _parts(tree)
        outer = dict(self.scope)
        params = []
        for node in _trees(_tree(arguments).children):
            value, type_, loc = _parts(node)
            params.append(self.define(_token(value), self.type(_tree(type_)), self.location(loc)))
        region = self.region(tuple(params), _tree(ops), _tree(values))
        self.scope = outer
        return region

    def values(self, tree: Node) -> tuple[Value, ...]:
        found = []
        for token in tree.children:
            value = self.scope.get(str(token))
            if value is None:
                raise self.error(token, f"{token} is not defined before this use")
            found.append(value)
        return tuple(found)

    def define(self, token: Token, type_: TensorType, span: Span | None) -> Value:
        if token in self.scope:
            raise self.error(token, f"{token} is defined twice")
        hint = token[1:].split("#")[0]
        value = Value(type_, "" if hint.isdigit() else hint, span)
        self.scope[str(token)] = value
        return value

    # Types and attributes

    def dtype(self, token: Token) -> DType:
        if token not in DTYPES:
            raise self.error(token, f"there is no element type {token}", f"there are {', '.join(DTYPES)}")
        return DTYPES[token]

    def type(self, tree: Node) -> TensorType:
        scratch, name, brackets, held = _parts(tree)
        dtype = self.dtype(_token(name))
        read = self.brackets(_tree(brackets)) if brackets is not None else _Brackets((), Sharding(()), True)
        if not self.local or scratch is not None:
            if not read.plain:
                raise self.error(brackets, "a type that is no ShardedType says how it is sharded")
            return TensorType(dtype, read.sizes)
        layout = read.layout()
        if held is not None:
            shape = tuple(int(_token(size)) for size in _tree(held).children if size is not None)
        elif unknown := sorted(layout.axes - set(self.mesh.names)):
            raise self.error(brackets, f"the mesh has no axis {unknown[0]}")
        else:
            shape = layout.local_shape(read.sizes, self.mesh)
        return ShardedType(dtype, shape, read.sizes, layout)

    def brackets(self, tree: Node) -> _Brackets:
        dims, pendings, forbidden = _parts(tree)
        read = [self.dim(node) for node in _trees(_tree(dims).children)]
        pending = tuple(self.pending(node) for node in _trees(_tree(pendings).children))
        banned = tuple(_refs(_tree(forbidden))) if forbidden is not None else ()
        sharding = Sharding(tuple(dim for _, dim in read), banned, pending)
        return _Brackets(tuple(size for size, _ in read), sharding, sharding.says_nothing and forbidden is None)

    def dim(self, tree: Node) -> tuple[int, DimSharding]:
        size, axes, open_, round_ = tree.children if len(tree.children) == 4 else (None, *tree.children)
        refs = tuple(_refs(axes)) if isinstance(axes, Tree) and axes.data == "axes" else ()
        number = int(round_[1:]) if isinstance(round_, Token) else 0
        return int(size) if isinstance(size, Token) else 0, DimSharding(refs, axes is None or open_ is not None, number)

    def pending(self, tree: Node) -> tuple[str, tuple[AxisRef, ...]]:
        kind = tree.children[0]
        if kind is not None and kind not in REDUCTIONS:
            raise self.error(kind, f"there is no reduction {kind}", f"there are {', '.join(REDUCTIONS)}")
        axes = Tree("axes", tree.children[1:])
        return str(kind or "sum"), tuple(_refs(axes))

    def attr(self, tree: Node) -> Attr:
        if tree.data == "tuple":
            return tuple(self.attr(node) for node in tree.children if isinstance(node, Tree))
        if tree.data in ("sharding", "layout"):
            read = self.brackets(_tree(tree.children[0]))
            return read.sharding if tree.data == "sharding" else read.layout()
        token = _token(tree.children[0])
        if tree.data == "text":
            return str(json.loads(token))
        if tree.data == "number":
            return int(token) if re.fullmatch(r"-?\d+", token) else float(token)
        if token not in WORDS:
            raise self.error(token, f"{token} is no attribute value", f"there are {', '.join(WORDS)}")
        return WORDS[token]

    # Locations

    def location(self, tree: Child) -> Span | None:
        """Read ``loc(inner from call site from ...)``, innermost first; the sources have names but no text."""
        if tree is None:
            return None
        span: Span | None = None
        for place in reversed(_tree(tree).children):
            name, *numbers, callee = _parts(_tree(place))
            file = self.sources.setdefault(json.loads(_token(name)), SourceFile(json.loads(_token(name)), ""))
            line, column, end_line, end_column = (int(_token(n)) for n in numbers)
            inside = _symbol(callee) if isinstance(callee, Tree) else None
            span = Span(file, line, column, end_line, end_column, span, inside)
        return span


def _tree(child: Child) -> Node:
    if not isinstance(child, Tree):
        raise TypeError(f"expected a subtree, found {child!r}")
    return child


def _parts(tree: Node) -> list[Any]:
    """Children, None where an optional one is missing (lark's own annotation forgets those)."""
    return list(tree.children)


def _token(child: Child) -> Token:
    if not isinstance(child, Token):
        raise TypeError(f"expected a token, found {child!r}")
    return child


def _trees(children: list[Any], data: str | None = None) -> Iterator[Node]:
    for child in children:
        if isinstance(child, Tree) and data in (None, child.data):
            yield child


def _symbol(tree: Node) -> str:
    text = str(tree.children[0])[1:]
    return str(json.loads(text)) if text.startswith('"') else text


def _axis_ref(text: str) -> AxisRef:
    if match := re.fullmatch(r"(\w+):\((\d+)\)(\d+)", text):
        return AxisRef(match[1], int(match[2]), int(match[3]))
    return AxisRef(text)


def _refs(tree: Node) -> Iterator[AxisRef]:
    for token in tree.children:
        if token is not None:
            yield _axis_ref(str(token))
