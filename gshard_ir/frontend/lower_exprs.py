"""Evaluate expressions: tensors become ops, everything else is computed at compile time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gshard_ir.errors import fail
from gshard_ir.frontend import ast, lower_builtins
from gshard_ir.frontend import lower_consts as consts
from gshard_ir.frontend.lower_annotations import SPECIAL
from gshard_ir.frontend.lower_arguments import bind_arguments
from gshard_ir.frontend.lower_arith import Term, binary, unary
from gshard_ir.frontend.lower_axes import resolve_axis
from gshard_ir.frontend.lower_einsum import matmul
from gshard_ir.frontend.lower_emit import Emitter
from gshard_ir.frontend.lower_index import Cut, Entry, Rest, index_tuple, subscript
from gshard_ir.frontend.lower_types import StructType, conform
from gshard_ir.frontend.lower_values import (
    BuiltinRef,
    DefRef,
    Item,
    Poison,
    Poisoned,
    StructValue,
    Unrolled,
    count,
    describe,
    nearest,
    text_of,
)
from gshard_ir.ir import Value
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.source import Span
from gshard_ir.types import DTYPES, KEY

if TYPE_CHECKING:
    from gshard_ir.frontend.lower_defs import Lowering
    from gshard_ir.frontend.lower_units import Unit

MAX_UNROLL = 10_000
MAX_PARTS = 100_000
_FACTS = {"length": "shape[0]", "rank": "ndim", "dims": "shape", "type": "dtype", "dtypes": "dtype"}
"""What other libraries call the facts of a tensor."""


class Evaluator:
    """Evaluates expressions of one def (or of the top level) with the names that it can see."""

    def __init__(self, lowering: Lowering, unit: Unit, emit: Emitter) -> None:
        self.lowering, self.unit, self.emit = lowering, unit, emit
        self.locals: dict[str, Item] = emit.locals

    @property
    def mesh(self) -> Mesh:
        return self.lowering.mesh

    def eval(self, node: ast.Expr) -> Item:
        """Return what an expression stands for; raises a diagnostic, or Poisoned for a name in error."""
        handler: Callable[[Any], Item] | None = getattr(self, f"_{type(node).__name__.lower()}", None)
        if handler is None:
            raise fail("this stands in annotations only", node.span, suggestion="shard(x, [expert, _, ?])")
        return handler(node)

    def term(self, node: ast.Expr) -> Term:
        return Term(self.eval(node), node.span)

    # ---- names and literals

    def lookup(self, name: str) -> Item:
        """Return a local or top-level name, None when there is none; raises Poisoned for one in error."""
        if name in self.locals:
            item = self.locals[name]
            if isinstance(item, Poison):
                raise Poisoned
            return item
        if name in self.unit.structs and name not in self.unit.items:
            return self.lowering.struct(self.unit, name, self.unit.structs[name].name_span)
        return self.unit.get(name)

    def _name(self, node: ast.Name) -> Item:
        name = node.id
        if name in self.locals or self.unit.has(name):
            return self.lookup(name)
        if name in lower_builtins.table() or name in SPECIAL or name == "unroll":
            return BuiltinRef(name)
        if name in lower_builtins.PRELUDE:
            return self.lowering.std("nn").get(name)
        if name in DTYPES:
            return DTYPES[name]
        if name in lower_builtins.NUMBERS:
            return lower_builtins.NUMBERS[name]
        if name in self.mesh.names:
            return AxisRef(name)
        if name in lower_builtins.NOT_YET:
            instead = lower_builtins.NOT_YET[name]
            raise fail(f"{name} is not supported yet", node.span, suggestion=instead)
        if (const := self.unit.const(name)) is not None:
            note = f"its value is computed on line {const.span.line}"
            edit = "a value of its own" if const.span.line == node.span.line else f"move const {name} above this line"
            raise fail(f"{name} is used before its value is known", node.span, note, suggestion=edit)
        raise fail(f"unknown name {name}", node.span, suggestion=nearest(name, self._known()))

    def _known(self) -> list[str]:
        own = [*self.locals, *self.unit.items, *self.unit.structs]
        return [*own, *lower_builtins.table(), *SPECIAL, *lower_builtins.PRELUDE, *DTYPES, *self.mesh.names]

    def _number(self, node: ast.Number) -> Item:
        if isinstance(node.value, int) and node.value > consts.LIMIT:
            raise fail("this integer is too large", node.span, f"integers go up to 2**63 - 1 = {consts.LIMIT:,}")
        return node.value

    def _bool(self, node: ast.Bool) -> Item:
        return node.value

    def _nonelit(self, _: ast.NoneLit) -> Item:
        return None

    def _string(self, node: ast.String) -> Item:
        return node.value

    def _axisexpr(self, node: ast.AxisExpr) -> Item:
        return resolve_axis(self.mesh, node.name, node.span, node.pre, node.size)

    def _tuple(self, node: ast.Tuple | ast.ListExpr) -> Item:
        item = tuple(self.eval(i) for i in node.items)
        if count(item, MAX_PARTS) > MAX_PARTS:
            raise fail(f"a tuple of more than {MAX_PARTS:,} parts", node.span)
        return item

    _listexpr = _tuple

    # ---- operators

    def _unary(self, node: ast.Unary) -> Item:
        return unary(self.emit, node.op, self.term(node.operand), node.span)

    def _binary(self, node: ast.Binary) -> Item:
        a, b = self.term(node.left), self.term(node.right)
        if node.op == "@":
            return matmul(self.emit, a, b, node.span)
        return binary(self.emit, node.op, a, b, node.span)

    def _compare(self, node: ast.Compare) -> Item:
        return binary(self.emit, node.op, self.term(node.left), self.term(node.right), node.span)

    def _logical(self, node: ast.Logical) -> Item:
        left = self._truth(node.left, node)
        return left if left == (node.op == "or") else self._truth(node.right, node)

    def _truth(self, part: ast.Expr, node: ast.Logical) -> bool:
        item = self.eval(part)
        if isinstance(item, Value):
            sign = "&" if node.op == "and" else "|"
            raise fail(
                f"{node.op} applies to compile-time values; {text_of(part.span)} is {describe(item)}",
                node.span,
                suggestion=f"({text_of(node.left.span)}) {sign} ({text_of(node.right.span)})",
            )
        return consts.truth(item, part.span)

    def _conditional(self, node: ast.Conditional) -> Item:
        return self.eval(node.then if consts.truth(self.eval(node.cond), node.cond.span) else node.orelse)

    # ---- parts

    def _attribute(self, node: ast.Attribute) -> Item:
        item = self.eval(node.value)
        if isinstance(item, StructValue):
            if node.name in item.fields:
                return item.fields[node.name]
            raise fail(
                f"struct {item.type.name} has no field {node.name}",
                node.name_span,
                f"its fields are {', '.join(item.fields)}",
                suggestion=nearest(node.name, list(item.fields)),
            )
        if isinstance(item, Value):
            facts: dict[str, Item] = {
                "shape": item.shape, "ndim": item.type.rank, "size": item.type.size, "dtype": item.dtype,
            }  # fmt: skip
            if node.name in facts:
                return facts[node.name]
            message, note = f"a tensor has no {node.name}", "it has shape, ndim, size and dtype"
            called = "transpose" if node.name == "T" else node.name
            if called in lower_builtins.table():
                raise fail(message, node.span, note, suggestion=f"{called}({text_of(node.value.span)})")
            edit = _FACTS.get(node.name) or nearest(node.name, list(facts))
            raise fail(message, node.name_span, note, suggestion=edit)
        edit = "an index in [ ]" if isinstance(item, tuple) else None
        raise fail(f"{describe(item)} has no parts with names", node.name_span, suggestion=edit)

    def _subscript(self, node: ast.Subscript) -> Item:
        item, text = self.eval(node.value), text_of(node.value.span)
        entries = [self._entry(e) for e in node.items]
        if isinstance(item, tuple):
            if len(entries) != 1:
                edit = f"{text}[{text_of(node.items[0].span) if node.items else 0}]"
                raise fail(f"{text} is a tuple: it takes one integer or slice", node.span, suggestion=edit)
            return index_tuple(item, entries[0], text)
        if isinstance(item, StructValue):
            return self._unstacked(node, item, entries, text)
        if not isinstance(item, Value):
            raise fail(f"{describe(item)} cannot be indexed", node.span)
        if item.dtype == KEY:
            edit = f"fold_in({text}, {text_of(node.items[0].span) if node.items else 0})"
            raise fail("a random key cannot be indexed", node.span, suggestion=edit)
        return subscript(self.emit, item, text, entries, node.span)

    def _unstacked(self, node: ast.Subscript, item: StructValue, entries: Sequence[Entry], text: str) -> Item:
        """Take one struct out of a stack: every leaf loses its leading dim."""
        if not item.stack:
            raise fail(f"{text} is one {item.type.name}, not a stack of them", node.span, suggestion=text)
        if len(entries) != 1 or not isinstance(entries[0].item, int) or isinstance(entries[0].item, bool):
            raise fail(
                f"a stack of {item.type.name} takes one compile-time integer", node.span, suggestion=f"{text}[0]"
            )

        def take(part: Item) -> Item:
            if isinstance(part, StructValue):
                return StructValue(part.type, {n: take(p) for n, p in part.fields.items()}, part.stack[1:])
            if isinstance(part, tuple):
                return tuple(take(p) for p in part)
            assert isinstance(part, Value)
            return subscript(self.emit, part, text, entries, node.span)

        return take(item)

    def _entry(self, node: ast.Expr) -> Entry:
        if isinstance(node, ast.EllipsisLit):
            return Entry(Rest(), node.span)
        if isinstance(node, ast.Slice):
            start, stop, step = (None if p is None else self.eval(p) for p in (node.start, node.stop, node.step))
            return Entry(Cut(start, stop, step), node.span)
        return Entry(self.eval(node), node.span)

    # ---- calls

    def _call(self, node: ast.Call) -> Item:
        if isinstance(node.func, ast.Attribute):
            self._method(node, node.func)
        func = self.eval(node.func)
        if isinstance(func, BuiltinRef) and func.name in SPECIAL:
            return SPECIAL[func.name](self, node)
        positional = [self.term(a) for a in node.args]
        keywords = {k.name: (self.term(k.value), k.span) for k in node.keywords}
        if isinstance(func, BuiltinRef):
            if func.name == "unroll":
                return self._unroll(positional, node.span)
            return lower_builtins.apply(self.emit, lower_builtins.table()[func.name], positional, keywords, node.span)
        if isinstance(func, DefRef):
            return self.lowering.call(self, func, positional, keywords, node)
        if isinstance(func, StructType):
            return self._construct(func, positional, keywords, node.span)
        inside = ", ".join(text_of(a.span) for a in node.args)
        edit = f"{text_of(node.func.span)}[{inside}]" if inside and isinstance(func, Value | tuple) else None
        raise fail(f"{describe(func)} cannot be called", node.span, suggestion=edit)

    def _method(self, node: ast.Call, func: ast.Attribute) -> None:
        """Explain that tensors have no methods, for one that is also an operation."""
        known = func.name in lower_builtins.table() or func.name in lower_builtins.PRELUDE
        if isinstance(self.eval(func.value), Value):
            args = [text_of(func.value.span), *(text_of(a.span) for a in (*node.args, *node.keywords))]
            edit = f"{func.name}({', '.join(args)})" if known else f"cast({args[0]}, f32)" * (func.name == "astype")
            raise fail("tensors have no methods", node.span, suggestion=edit or None)

    def _construct(
        self, struct: StructType, positional: Sequence[Term], keywords: Mapping[str, tuple[Term, Span]], span: Span
    ) -> Item:
        names = list(struct.fields)
        given = {n: (t, t.span) for n, (t, _) in keywords.items()}
        found = bind_arguments(struct.name, names, [(t, t.span) for t in positional], given)
        if missing := [n for n in names if n not in found]:
            raise fail(f"{struct.name} needs {', '.join(missing)}", span, f"its fields are {', '.join(names)}")
        fields = {
            n: conform(self.emit, found[n][0].item, spec, f"{struct.name}: {n}", found[n][1])
            for n, spec in struct.fields.items()
        }
        return StructValue(struct, fields)

    def _unroll(self, args: Sequence[Term], span: Span) -> Item:
        if not 1 <= len(args) <= 3:
            raise fail("unroll takes a number of steps, or start, stop and step", span, suggestion="unroll(4)")
        first = args[0].item
        if len(args) == 1 and isinstance(first, tuple):
            return Unrolled(first)
        if len(args) == 1 and isinstance(first, StructValue | Value):
            n = (first.stack or (0,))[0] if isinstance(first, StructValue) else (first.shape or (0,))[0]
            if not (first.stack if isinstance(first, StructValue) else first.shape):
                raise fail(f"{describe(first)} has nothing to run over", args[0].span)
            raise fail(
                "unroll takes a number of steps", args[0].span, suggestion=f"for i in unroll({n}), and index with i"
            )
        bounds = [consts.whole(t.item, "unroll: a bound", t.span) for t in args]
        if len(bounds) == 3 and bounds[2] == 0:
            raise fail("unroll: the step must not be 0", args[2].span)
        steps = range(*bounds)
        if len(steps) > MAX_UNROLL:
            raise fail(f"unroll: {len(steps):,} steps, at most {MAX_UNROLL:,} are unrolled", span)
        return Unrolled(tuple(steps))
