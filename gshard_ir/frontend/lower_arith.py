"""Element-wise operations of the language: numpy broadcasting, literals that adapt, no promotion."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend import lower_consts as consts
from gshard_ir.frontend.lower_emit import Emitter, broadcast_shape
from gshard_ir.frontend.lower_values import Item, describe, is_static, leaves, text_of
from gshard_ir.ir import Value
from gshard_ir.source import Span
from gshard_ir.types import BOOL, F32, I32, KEY, DType

BINARY_OPS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floor_div", "%": "mod", "**": "pow",
    "&": "and", "|": "or", "^": "xor", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge",
}  # fmt: skip


@dataclass(frozen=True)
class Term:
    """An operand and where it stands."""

    item: Item
    span: Span


def align(emit: Emitter, what: str, terms: Sequence[Term], span: Span, *, shape_only: int = 0) -> list[Value]:
    """Bring operands to one element type and one shape.

    The first ``shape_only`` operands take part in broadcasting alone. At least one of the others decides
    the element type, or all of them are literals. Raises a diagnostic that shows both operands.
    """
    for term in terms:
        if not isinstance(term.item, Value | int | float):
            raise fail(f"{what} takes tensors and numbers, found {describe(term.item)}", term.span)
    typed = [t for t in terms[shape_only:] if isinstance(t.item, Value)]
    dtype = _common_dtype(what, typed, terms[shape_only:])
    shapes = [t.item.shape for t in terms if isinstance(t.item, Value)]
    shape = broadcast_shape(shapes)
    if shape is None:
        raise _shapes_differ(what, [t for t in terms if isinstance(t.item, Value)], span)
    values = []
    for i, term in enumerate(terms):
        if isinstance(term.item, Value):
            values.append(emit.broadcast(term.item, shape, term.span))
        else:
            assert isinstance(term.item, int | float)
            values.append(emit.constant(term.item, BOOL if i < shape_only else dtype, shape, term.span))
    return values


def _common_dtype(what: str, typed: Sequence[Term], terms: Sequence[Term]) -> DType:
    found = [t.item.dtype for t in typed if isinstance(t.item, Value)]
    for term, dtype in zip(typed, found, strict=True):
        if dtype == KEY:
            raise fail(f"{what} does not apply to a random key", term.span, suggestion="uniform(key, shape) to draw")
        if dtype != found[0]:
            first = typed[0]
            narrow, to = (first, dtype) if _width(found[0]) < _width(dtype) else (term, found[0])
            wide = term if narrow is first else first
            raise GShardError(
                Diagnostic(
                    f"{what} of {describe(first.item)} and {describe(term.item)}: element types differ",
                    narrow.span,
                    ("there is no implicit promotion between tensor types",),
                    f"cast({text_of(narrow.span)}, {to})",
                    ((wide.span, f"this is {describe(wide.item)}"),),
                )
            )
    if found:
        return found[0]
    kinds = {type(t.item) for t in terms}
    return BOOL if kinds == {bool} else F32 if float in kinds else I32


def _width(dtype: DType) -> tuple[int, int]:
    """Order element types: bool, integers, floats, each from small to large. The narrower operand is cast."""
    return ("buif".index(dtype.kind), dtype.itemsize)


def _shapes_differ(what: str, tensors: Sequence[Term], span: Span) -> GShardError:
    for i, a in enumerate(tensors):
        for b in tensors[i + 1 :]:
            assert isinstance(a.item, Value) and isinstance(b.item, Value)
            if broadcast_shape([a.item.shape, b.item.shape]) is not None:
                continue
            x, y = a.item.shape[::-1], b.item.shape[::-1]
            d = next(d for d, (m, n) in enumerate(zip(x, y, strict=False)) if m != n and 1 not in (m, n))
            return GShardError(
                Diagnostic(
                    f"{what} of {a.item.type} and {b.item.type}: shapes do not broadcast",
                    span,
                    (
                        f"dim {len(x) - 1 - d} of {text_of(a.span)} is {x[d]}",
                        f"dim {len(y) - 1 - d} of {text_of(b.span)} is {y[d]}; dims are matched from the last one",
                    ),
                    _dims_edit(a, b),
                )
            )
    return fail(f"{what}: shapes do not broadcast", span, *(describe(t.item) for t in tensors))


def _dims_edit(a: Term, b: Term) -> str | None:
    """Suggest a subscript that inserts dims when the shorter shape is the start of the longer one."""
    assert isinstance(a.item, Value) and isinstance(b.item, Value)
    short, long = sorted((a, b), key=lambda t: len(t.item.shape) if isinstance(t.item, Value) else 0)
    assert isinstance(short.item, Value) and isinstance(long.item, Value)
    s, n = short.item.shape, long.item.type.rank
    if s and s == long.item.shape[: len(s)] and len(s) < n:
        return f"{text_of(short.span)}[..., {', '.join(['None'] * (n - len(s)))}]"
    return None


def binary(emit: Emitter, op: str, a: Term, b: Term, span: Span) -> Item:
    """Apply a binary operator or comparison to tensors, numbers or both."""
    comparison = op in ("==", "!=", "<", "<=", ">", ">=")
    if not (isinstance(a.item, Value) or isinstance(b.item, Value)):
        if comparison:
            return consts.compare(op, a.item, b.item, span)
        return consts.arithmetic(op, a.item, b.item, span)
    other = b.item if isinstance(a.item, Value) else a.item
    if op in ("==", "!=") and is_static(other) and not isinstance(other, int | float):
        return op == "!="
    if op == "**" and isinstance(a.item, Value) and isinstance(b.item, int) and not isinstance(b.item, bool):
        return integer_power(emit, a.item, b.item, span, text_of(a.span))
    x, y = align(emit, f"{op}", (a, b), span)
    if op == "/" and not x.dtype.is_float:
        raise fail(
            f"/ divides floats, found {x.dtype}",
            span,
            "cast both to f32 for a quotient that is no integer",
            suggestion=f"{text_of(a.span)} // {text_of(b.span)}",
        )
    if op in ("&", "|", "^") and x.dtype.is_float:
        edit = f"({text_of(a.span)} != 0) {op} ({text_of(b.span)} != 0)"
        raise fail(f"{op} takes bool or integer operands, found {x.dtype}", span, suggestion=edit)
    if x.dtype == BOOL and op in ("+", "-", "*", "//", "%", "**"):
        edit = f"{text_of(a.span)} & {text_of(b.span)}" if op == "*" else f"cast({text_of(a.span)}, i32)"
        raise fail(f"{op} takes numbers, found bool", span, suggestion=edit)
    return emit.op(BINARY_OPS[op], x, y, span=span, where=(a.span, b.span))


def integer_power(emit: Emitter, x: Value, n: int, span: Span, text: str) -> Value:
    """Raise to a compile-time integer power by repeated squaring, as `jax.lax.integer_power` does.

    ``text`` is how the source writes ``x``.
    """
    if x.dtype == BOOL or x.dtype == KEY:
        edit = f"cast({text}, i32) ** {n}" if x.dtype == BOOL else None
        raise fail(f"** takes numbers, found {x.dtype}", span, suggestion=edit)
    if n < 0 and not x.dtype.is_float:
        edit = f"cast({text}, f32) ** {n}"
        raise fail(f"an integer tensor to the negative power {n}", span, suggestion=edit)
    if n == 0:
        return emit.constant(1, x.dtype, x.shape, span)
    left, factor, result = abs(n), x, None
    while left:
        if left & 1:
            result = factor if result is None else emit.op("mul", result, factor, span=span)
        left >>= 1
        if left:
            factor = emit.op("mul", factor, factor, span=span)
    assert result is not None
    return emit.op("div", emit.constant(1, x.dtype, x.shape, span), result, span=span) if n < 0 else result


def unary(emit: Emitter, op: str, a: Term, span: Span) -> Item:
    """Apply a unary operator."""
    if not isinstance(a.item, Value):
        return consts.negate(op, a.item, span)
    x = a.item
    if op == "not":
        raise fail("not applies to compile-time values; this is " + describe(x), span, suggestion=f"~{text_of(a.span)}")
    if op == "~":
        return emit.op("not", x, span=span, where=(a.span,))
    if not x.dtype.is_numeric:
        edit = f"~{text_of(a.span)}" if x.dtype == BOOL and op == "-" else None
        raise fail(f"{op} takes a number, found {describe(x)}", span, suggestion=edit)
    return x if op == "+" else emit.op("neg", x, span=span, where=(a.span,))


STATIC_MATH: dict[str, Callable[[float], float]] = {
    "exp": math.exp, "expm1": math.expm1, "log": math.log, "log1p": math.log1p, "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a), "tanh": math.tanh, "sin": math.sin, "cos": math.cos,
    "tan": math.tan, "asin": math.asin, "acos": math.acos, "atan": math.atan, "sinh": math.sinh, "cosh": math.cosh,
    "asinh": math.asinh, "acosh": math.acosh, "atanh": math.atanh, "exp2": lambda a: 2.0**a, "log2": math.log2,
    "log10": math.log10, "cbrt": math.cbrt, "erf": math.erf, "erfc": math.erfc, "lgamma": math.lgamma,
    "trunc": lambda a: float(math.trunc(a)), "floor": lambda a: float(math.floor(a)),
    "ceil": lambda a: float(math.ceil(a)), "round": lambda a: float(round(a)),
}  # fmt: skip
"""Element-wise functions that also apply to compile-time numbers."""


def function(emit: Emitter, op: str, name: str, a: Term, span: Span) -> Item:
    """Apply a one-operand op to a tensor, or to a number at compile time."""
    if isinstance(a.item, int | float) and not isinstance(a.item, bool):
        if op in ("abs", "neg"):
            return abs(a.item) if op == "abs" else -a.item
        if op == "sign":
            return (a.item > 0) - (a.item < 0)
        if op in STATIC_MATH:
            try:
                return consts.number_function(name, STATIC_MATH[op], a.item, span)
            except ZeroDivisionError:
                raise fail(f"{name}({a.item}) divides by zero", span) from None
    if not isinstance(a.item, Value):
        field = next((path for path, _ in leaves(a.item, text_of(a.span))), None)
        raise fail(f"{name} takes a tensor, found {describe(a.item)}", a.span, suggestion=field)
    x = a.item
    if x.dtype.is_integer and op in ("floor", "ceil", "round", "trunc"):
        return x
    if not x.dtype.is_float and op not in ("abs", "sign", "neg", "not"):
        raise fail(
            f"{name} takes a float tensor, found {describe(x)}", a.span, suggestion=f"cast({text_of(a.span)}, f32)"
        )
    return emit.op(op, x, span=span, where=(a.span,))
