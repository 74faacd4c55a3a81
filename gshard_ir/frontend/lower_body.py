"""Run the statements of a def: one diagnostic per statement, names that it would have bound stay silent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gshard_ir.errors import GShardError, fail
from gshard_ir.frontend import ast
from gshard_ir.frontend import lower_consts as consts
from gshard_ir.frontend.lower_emit import OutOfBudgetError
from gshard_ir.frontend.lower_exprs import Evaluator
from gshard_ir.frontend.lower_values import (
    POISON,
    BuiltinRef,
    Item,
    Poisoned,
    Stopped,
    StructValue,
    Unrolled,
    describe,
    leaves,
    text_of,
)
from gshard_ir.ir import Value


class Body:
    """Executes statements in order; ``returned`` is the return statement that was reached."""

    def __init__(self, ev: Evaluator) -> None:
        self.ev = ev
        self.returned: ast.Return | None = None
        self.result: Item = None
        self.failed = False

    def run(self, node: ast.Def) -> Item:
        """Execute a def's body and return what it returns; raises Poisoned when a statement was in error."""
        self.block(node.body)
        if self.failed:
            raise Poisoned
        if self.returned is None:
            raise fail(f"{node.name} returns nothing", node.name_span, suggestion="end it with a return statement")
        return self.result

    def block(self, statements: Sequence[ast.Stmt]) -> None:
        for i, node in enumerate(statements):
            if self.returned is not None:
                if isinstance(statements[i - 1], ast.Return):
                    self.error(fail("this statement comes after return", node.span, suggestion="remove it"), node)
                return
            try:
                self.ev.lowering.budget.spend(node.span)
                self.statement(node)
            except GShardError as error:
                self.error(error, node)
            except Poisoned:
                self.poison(node)

    def error(self, error: GShardError, node: ast.Stmt) -> None:
        """Report a statement's error; raises Stopped when it is one after which nothing else is looked at."""
        self.ev.lowering.report(error)
        self.poison(node)
        if isinstance(error, OutOfBudgetError):
            raise Stopped

    def poison(self, node: ast.Stmt) -> None:
        """Make every name that the statement would have bound silent."""
        self.failed = True
        for name in assigned(node):
            self.ev.locals[name] = POISON

    def statement(self, node: ast.Stmt) -> None:
        """Execute one statement."""
        if isinstance(node, ast.Assign):
            self.bind(node.target, self.ev.eval(node.value), node.value)
        elif isinstance(node, ast.Return):
            self.give(node)
        elif isinstance(node, ast.If):
            chosen = consts.truth(self.ev.eval(node.cond), node.cond.span)
            self.block(node.then if chosen else node.orelse)
        elif isinstance(node, ast.For):
            self.loop(node)
        elif isinstance(node, ast.ExprStmt):
            self.effect(node)
        else:
            raise fail("while is not supported yet", node.cond.span, suggestion="for i in unroll(n)")

    def effect(self, node: ast.ExprStmt) -> None:
        """Allow a doc string and a compile-time check; anything else would be lost."""
        if isinstance(node.value, ast.String):
            return
        item = self.ev.eval(node.value)
        call = node.value.func if isinstance(node.value, ast.Call) else None
        if item is not None or not isinstance(call, ast.Name) or call.id != "require":
            target = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else None
            name = target.id if isinstance(target, ast.Name) else "y"
            raise fail("the value of this line is not used", node.span, suggestion=f"{name} = {text_of(node.span)}")

    def give(self, node: ast.Return) -> None:
        if node.value is None:
            raise fail("return gives no value", node.span, suggestion="return the tensors that the def computes")
        item = self.ev.eval(node.value)
        parts: tuple[Item, ...] = item if isinstance(item, tuple) else (item,)
        for part in parts:
            if isinstance(part, BuiltinRef | Unrolled):
                raise fail(f"a def cannot return {describe(part)}", node.value.span)
        self.returned, self.result = node, item
        self.hint(node.value, item)

    def hint(self, node: ast.Expr, item: Item) -> None:
        """Name tensors that are returned under a variable's name and have none yet."""
        if isinstance(node, ast.Tuple) and isinstance(item, tuple):
            for part, value in zip(node.items, item, strict=True):
                self.hint(part, value)
        elif isinstance(node, ast.Name) and isinstance(item, Value):
            self.ev.emit.name(item, node.id)

    def bind(self, target: ast.Name | ast.Tuple | ast.Expr, item: Item, source: ast.Expr) -> None:
        """Bind names to the parts of a value; each tensor takes the first name that it is given."""
        if isinstance(target, ast.Name):
            if target.id == "_":
                return
            self.ev.locals[target.id] = item
            for path, value in leaves(item, target.id):
                self.ev.emit.name(value, path)
            return
        assert isinstance(target, ast.Tuple)
        if isinstance(item, StructValue) or not isinstance(item, tuple):
            raise fail(
                f"{len(target.items)} names for one value: {describe(item)}",
                source.span,
                suggestion=", ".join(f"{text_of(source.span)}[{i}]" for i in range(len(target.items)))
                if isinstance(item, Value)
                else None,
            )
        if len(item) != len(target.items):
            more = len(item) - len(target.items)
            names = ", ".join([*(text_of(n.span) for n in target.items), *["_"] * min(more, 8)])
            raise fail(
                f"{len(target.items)} names for {len(item)} values",
                target.span,
                f"found {describe(item)}",
                suggestion=names if more > 0 else None,
            )
        for name, part in zip(target.items, item, strict=True):
            self.bind(name, part, source)

    def loop(self, node: ast.For) -> None:
        call = node.iter.func if isinstance(node.iter, ast.Call) else None
        if isinstance(call, ast.Name) and call.id == "range" and "range" not in self.ev.locals:
            args = ", ".join(text_of(a.span) for a in node.iter.args) if isinstance(node.iter, ast.Call) else ""
            raise fail("compiled loops are not supported yet", node.iter.span, suggestion=f"unroll({args})")
        item = self.ev.eval(node.iter)
        if isinstance(item, StructValue) and item.stack:
            edit = f"for i in unroll({item.stack[0]}), and {text_of(node.iter.span)}[i]"
            raise fail("loops over a stack are not supported yet", node.iter.span, suggestion=edit)
        if not isinstance(item, Unrolled):
            rows = item.shape[0] if isinstance(item, Value) and item.shape else "n"
            edit = f"unroll({item if isinstance(item, int) else rows})"
            raise fail(f"for runs over unroll(n), found {describe(item)}", node.iter.span, suggestion=edit)
        for step in item.items:
            self.bind(node.target, step, node.iter)
            before = self.failed
            self.block(node.body)
            if self.returned is not None or (self.failed and not before):
                return


def assigned(node: ast.Stmt) -> Iterator[str]:
    """Yield the names that a statement may bind."""
    if isinstance(node, ast.Assign | ast.For):
        yield from _names(node.target)
    for inner in _inner(node):
        yield from assigned(inner)


def _inner(node: ast.Stmt) -> tuple[ast.Stmt, ...]:
    if isinstance(node, ast.For | ast.While):
        return node.body
    return (*node.then, *node.orelse) if isinstance(node, ast.If) else ()


def _names(target: ast.Expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple):
        for item in target.items:
            yield from _names(item)
