"""Builtins that work element by element."""

from __future__ import annotations

import math

from gshard_ir.errors import fail
from gshard_ir.frontend.lower_arith import Term, align, binary, function
from gshard_ir.frontend.lower_builtins import Site, builtin
from gshard_ir.frontend.lower_values import Item, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.types import BOOL, KEY, U8

_UNARY = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh",
    "sin": "sin", "cos": "cos", "sigmoid": "logistic", "logistic": "logistic", "abs": "abs", "absolute": "abs",
    "fabs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil", "round": "round", "rint": "round",
    "negative": "neg", "isnan": "is_nan", "isfinite": "is_finite", "tan": "tan", "asin": "asin", "arcsin": "asin",
    "acos": "acos", "arccos": "acos", "atan": "atan", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
    "asinh": "asinh", "arcsinh": "asinh", "acosh": "acosh", "arccosh": "acosh", "atanh": "atanh", "arctanh": "atanh",
    "exp2": "exp2", "log2": "log2", "log10": "log10", "cbrt": "cbrt", "trunc": "trunc", "erf": "erf", "erfc": "erfc",
    "erf_inv": "erf_inv", "lgamma": "lgamma", "digamma": "digamma",
}  # fmt: skip

_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "floor_divide": "//", "mod": "%",
    "remainder": "%", "power": "**", "pow": "**", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip


@builtin(*(f"{name}({'a' if name == 'round' else 'x'})" for name in _UNARY))
def _unary(s: Site) -> Item:
    return function(s.emit, _UNARY[s.name], s.name, s.term(s.first), s.span)


@builtin(*(f"{name}(x1, x2)" for name in _OPERATORS))
def _operator(s: Site) -> Item:
    return binary(s.emit, _OPERATORS[s.name], s.term("x1"), s.term("x2"), s.span)


_PAIRS = {
    "fmax": "fmax", "fmin": "fmin", "atan2": "atan2", "arctan2": "atan2", "hypot": "hypot", "logaddexp": "logaddexp",
    "left_shift": "shift_left", "shift_left": "shift_left", "shift_right_logical": "shift_right_logical",
    "shift_right_arithmetic": "shift_right_arithmetic",
}  # fmt: skip


def _pair(name: str) -> str:
    """Write the signature; jax.lax calls its operands x and y."""
    return f"{name}(x, y)" if name.startswith("shift") else f"{name}(x1, x2)"


@builtin(*map(_pair, _PAIRS), "right_shift(x1, x2)")
def _two(s: Site) -> Item:
    first, second = s.args
    x, y = align(s.emit, s.name, (s.term(first), s.term(second)), s.span)
    right = "shift_right_logical" if x.dtype.kind == "u" else "shift_right_arithmetic"
    return s.op(_PAIRS.get(s.name, right), x, y, at=(first, second))


@builtin("population_count(x)", "bitwise_count(x)", "clz(x)")
def _bit_count(s: Site) -> Item:
    found = s.op("clz" if s.name == "clz" else "population_count", s.tensor(), at=("x",))
    return s.emit.cast(found, U8, s.span) if s.name == "bitwise_count" else found


@builtin("maximum(x1, x2)", "minimum(x1, x2)", "fmod(x1, x2)")
def _extreme(s: Site) -> Item:
    a, b = s.args["x1"], s.args["x2"]
    numbers = [i for i in (a, b) if isinstance(i, int | float) and not isinstance(i, bool)]
    if len(numbers) == 2:
        x, y = numbers
        if s.name == "fmod":
            return math.fmod(x, y) if y and math.isfinite(x) else math.nan
        return max(x, y) if s.name == "maximum" else min(x, y)
    left, right = align(s.emit, s.name, (s.term("x1"), s.term("x2")), s.span)
    name = {"maximum": "max", "minimum": "min", "fmod": "rem"}[s.name]
    return s.op(name, left, right, at=("x1", "x2"))


@builtin("logical_and(x1, x2)", "logical_or(x1, x2)", "logical_xor(x1, x2)")
def _logical(s: Site) -> Item:
    for arg in ("x1", "x2"):
        item = s.args[arg]
        if not isinstance(item, bool) and not (isinstance(item, Value) and item.dtype == BOOL):
            raise s.fail(f"{arg} must be bool, found {describe(item)}", arg, suggestion=f"{text_of(s.where(arg))} != 0")
    op = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}[s.name]
    return binary(s.emit, op, s.term("x1"), s.term("x2"), s.span)


@builtin("logical_not(x)")
def _logical_not(s: Site) -> Item:
    x = s.tensor()
    if x.dtype != BOOL:
        raise s.fail(f"x must be bool, found {x.type}", "x", suggestion=f"{text_of(s.where('x'))} == 0")
    return s.op("not", x, at=("x",))


@builtin("bitwise_not(x)", "invert(x)")
def _not(s: Site) -> Item:
    return s.op("not", s.tensor(), at=("x",))


@builtin("isinf(x)", "isposinf(x)", "isneginf(x)")
def _isinf(s: Site) -> Item:
    sign = {"isinf": "abs", "isneginf": "neg"}.get(s.name)
    x = s.op(sign, s.numeric(), at=("x",)) if sign else s.numeric()
    return binary(s.emit, "==", Term(x, s.where("x")), Term(math.inf, s.span), s.span)


@builtin("where(condition, x, y)")
def _where(s: Site) -> Item:
    condition = s.args["condition"]
    if isinstance(condition, bool):
        if not isinstance(s.args["x"], Value) and not isinstance(s.args["y"], Value):
            return s.args["x"] if condition else s.args["y"]
        return align(s.emit, s.name, (s.term("x"), s.term("y")), s.span)[0 if condition else 1]
    pred = s.tensor("condition")
    if pred.dtype != BOOL:
        raise s.fail(
            f"the condition must be bool, found {pred.type}",
            "condition",
            suggestion=f"{text_of(s.where('condition'))} != 0",
        )
    terms = (s.term("condition"), s.term("x"), s.term("y"))
    pred, x, y = align(s.emit, s.name, terms, s.span, shape_only=1)
    return s.op("select", pred, x, y, at=("condition", "x", "y"))


@builtin("clip(arr, min=None, max=None)")
def _clip(s: Site) -> Item:
    value: Item = s.args["arr"]
    if not isinstance(value, Value):
        raise s.fail(f"arr must be a tensor, found {describe(value)}", "arr")
    for arg, op in (("min", "max"), ("max", "min")):
        if s.args[arg] is not None:
            x, bound = align(s.emit, s.name, (Term(value, s.where("arr")), s.term(arg)), s.span)
            value = s.op(op, x, bound, at=("arr", arg))
    return value


@builtin("clamp(min, x, max)")
def _clamp(s: Site) -> Item:
    x = s.numeric("x")
    low, high = (align(s.emit, s.name, (Term(x, s.where("x")), s.term(arg)), s.span)[1] for arg in ("min", "max"))
    for arg, bound in (("min", low), ("max", high)):
        if bound.shape != x.shape:
            raise s.fail(f"{arg} is wider than x, which is {x.type}", arg)
    return s.op("min", s.op("max", x, low, at=("x", "min")), high, at=("x", "max"))


@builtin("relu(x)")
def _relu(s: Site) -> Item:
    x = s.numeric()
    return s.op("max", x, s.emit.constant(0, x.dtype, x.shape, s.span))


@builtin("square(x)")
def _square(s: Site) -> Item:
    x = s.numeric()
    return s.op("mul", x, x)


@builtin("reciprocal(x)")
def _reciprocal(s: Site) -> Item:
    return binary(s.emit, "/", Term(1.0, s.span), s.term("x"), s.span)


@builtin("cast(x, dtype)")
def _cast(s: Site) -> Item:
    item, dtype = s.args["x"], s.dtype()
    if isinstance(item, int | float):
        if dtype == BOOL:
            return s.emit.constant(bool(item), dtype, (), s.span)
        if dtype.is_integer and not math.isfinite(item):
            raise s.fail(f"{item} has no value as {dtype}", "x")
        return s.emit.constant(float(item) if dtype.is_float else int(item), dtype, (), s.span)
    x = s.tensor()
    if x.dtype == KEY:
        raise s.fail("a random key is not a number", "x", suggestion="uniform(key, shape) to draw")
    return s.emit.cast(x, dtype, s.span)


@builtin("int(x)", "float(x)", "len(x)")
def _convert(s: Site) -> Item:
    item = s.args["x"]
    if s.name == "len":
        if isinstance(item, tuple | str):
            return len(item)
        if isinstance(item, Value) and item.shape:
            return item.shape[0]
        raise s.fail(f"x must be a tuple or a tensor, found {describe(item)}", "x")
    if isinstance(item, Value):
        edit = f"cast({text_of(s.where('x'))}, {'i32' if s.name == 'int' else 'f32'})"
        raise s.fail("x must be known at compile time", None, suggestion=edit)
    if not isinstance(item, int | float):
        raise s.fail(f"x must be a number, found {describe(item)}", "x")
    if s.name == "float":
        return float(item)
    if not math.isfinite(item) or abs(item) > 2**63 - 1:
        raise s.fail(f"{item} is no integer in range", "x")
    return int(item)


@builtin("require(condition, message)")
def _require(s: Site) -> Item:
    if not isinstance(s.args["message"], str):
        raise s.fail(f"message must be a string, found {describe(s.args['message'])}", "message")
    if isinstance(s.args["condition"], Value):
        raise s.fail(f"the condition must be known at compile time, found {describe(s.args['condition'])}", "condition")
    if not s.boolean("condition"):
        raise fail(str(s.args["message"]), s.span)
    return None
