"""Element-wise ops: arithmetic, comparison, logic, select and cast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import (
    bits,
    float_only,
    get_dtype,
    in_f32,
    not_key,
    numeric,
    plain,
    require,
    require_same,
    same_dims,
    silent,
    sums,
)
from gshard_ir.types import BOOL, KEY, DType, TensorType

Accepts = tuple[Callable[[DType], bool], str, str]
FLOAT: Accepts = (float_only, "float", "f32")
NUMERIC: Accepts = (numeric, "float or integer", "f32")
INTEGER: Accepts = (lambda dtype: dtype.is_integer, "integer", "i32")
BITS: Accepts = (bits, "bool or integer", "bool")
ANY: Accepts = (not_key, "number or bool", "f32")
_EXAMPLES = {
    FLOAT: ("f32", "bf16"),
    NUMERIC: ("f32", "i32"),
    INTEGER: ("i32", "u8"),
    BITS: ("bool", "i32"),
    ANY: ("f32", "i32"),
}


def _infer(name: str, accepts: Accepts, to_bool: bool) -> Callable[[Types, Attrs], Types]:
    def infer(types: Types, attrs: Attrs) -> Types:
        require(name, types, *accepts)
        require_same(name, types)
        return (TensorType(BOOL if to_bool else types[0].dtype, types[0].shape),)

    return infer


def _define(
    name: str,
    operands: tuple[str, ...],
    accepts: Accepts,
    meaning: Callable[..., Any],
    doc: str,
    *,
    linear: tuple[tuple[int, ...], ...] = (),
    to_bool: bool = False,
) -> None:
    def rule(types: Types, attrs: Attrs) -> Rule:
        return same_dims(types, sums(types[0].dtype, *linear))

    dtypes = _EXAMPLES[accepts]
    examples = tuple((tuple(f"{d}[4,6]" for _ in operands), dict[str, Any]()) for d in dtypes)
    define(
        OpDef(
            name,
            operands,
            infer=_infer(name, accepts, to_bool),
            reference=silent(meaning),
            rule=rule,
            examples=examples,
            doc=doc,
        )
    )


# ---- one operand


def _sign(x: Array) -> Any:
    return np.where(x == 0, x, np.sign(x))


def _logistic(x: Array) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, np.ones_like(x)) / (1 + small)


_define("neg", ("x",), NUMERIC, np.negative, "Negation; integers wrap.", linear=((0,),))
_define("abs", ("x",), NUMERIC, np.abs, "Absolute value; the lowest signed integer stays itself.")
_define("sign", ("x",), NUMERIC, _sign, "-1, 0 or 1; NaN and signed zeros stay.")
_CURVES: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("exp", np.exp, "e to the x."),
    ("expm1", np.expm1, "exp(x) - 1, precise near 0."),
    ("log", np.log, "Natural logarithm; -inf at 0, NaN below."),
    ("log1p", np.log1p, "log(1 + x), precise near 0."),
    ("sqrt", np.sqrt, "Square root; NaN below 0."),
    ("rsqrt", lambda x: 1 / np.sqrt(x), "1 / sqrt(x)."),
    ("tanh", np.tanh, "Hyperbolic tangent."),
    ("sin", np.sin, "Sine."),
    ("cos", np.cos, "Cosine."),
    ("logistic", _logistic, "1 / (1 + exp(-x)), without overflow on either side."),
    ("floor", np.floor, "Largest whole number not above x."),
    ("ceil", np.ceil, "Smallest whole number not below x."),
    ("round", np.rint, "Nearest whole number, ties to even."),
)
for _name, _function, _doc in _CURVES:
    _define(_name, ("x",), FLOAT, in_f32(_function), _doc)
_define("stop_gradient", ("x",), ANY, np.array, "x itself, through which no gradient flows.", linear=((0,),))
_define("not", ("x",), BITS, np.invert, "Logical not of bool, bitwise not of integers.")
_define("is_finite", ("x",), FLOAT, np.isfinite, "Neither infinite nor NaN.", to_bool=True)
_define("is_nan", ("x",), FLOAT, np.isnan, "Not a number.", to_bool=True)


# ---- two operands


def _is_float(x: Array) -> bool:
    return x.dtype.kind not in "iub"


def _int_divmod(x: Array, y: Array) -> tuple[Array, Array]:
    """C-style quotient and remainder; by zero the quotient is all ones and the remainder is x, as XLA has it."""
    safe = np.where(y == 0, np.ones_like(y), y)
    rem = np.fmod(x, safe)
    quotient = np.floor_divide(x - rem, safe)
    return np.where(y == 0, np.array(-1).astype(x.dtype), quotient), np.where(y == 0, x, rem)


@in_f32
def _rem(x: Array, y: Array) -> Any:
    return np.fmod(x, y) if _is_float(x) else _int_divmod(x, y)[1]


@in_f32
def _mod(x: Array, y: Array) -> Any:
    if not _is_float(x):
        y = np.where(y == 0, np.ones_like(y), y)
    rem = _rem(x, y)
    return np.where((rem != 0) & ((rem < 0) != (y < 0)), rem + y, rem)


@in_f32
def _floor_div(x: Array, y: Array) -> Any:
    if not _is_float(x):
        quotient, rem = _int_divmod(x, y)
        below = (np.sign(x) != np.sign(y)) & (rem != 0) & (x.dtype.kind == "i")
        return np.where(below, quotient - np.ones_like(x), quotient)
    rem = np.fmod(x, y)
    exact = np.where(y == 0, x, x - rem) / y
    quotient = np.where((rem != 0) & (np.sign(y) != np.sign(rem)), exact - 1, exact)
    whole = np.trunc(quotient)
    rounded = np.where(np.abs(quotient - whole) >= 0.5, whole + np.sign(quotient), quotient * 0 + whole)
    return np.where(np.isinf(quotient), quotient, rounded)


@in_f32
def _pow(x: Array, y: Array) -> Any:
    """Float power as numpy; integers by squaring over the six low bits of the exponent, as jax has it."""
    if _is_float(x):
        return np.power(x, y)
    power = np.where((x == 0) & (y != 0), np.zeros_like(x), np.ones_like(x))
    exponent = np.ascontiguousarray(y).view(f"u{y.dtype.itemsize}").reshape(y.shape)
    for bit in range(6):
        power = np.where((exponent >> bit) & 1 == 1, power * x, power)
        x = x * x
    return power


_define("add", ("x", "y"), NUMERIC, np.add, "Sum; integers wrap.", linear=((0, 1),))
_define("sub", ("x", "y"), NUMERIC, np.subtract, "Difference; integers wrap.", linear=((0, 1),))
_define("mul", ("x", "y"), NUMERIC, np.multiply, "Product; integers wrap.", linear=((0,), (1,)))
_define("div", ("x", "y"), FLOAT, in_f32(np.divide), "Quotient of floats.", linear=((0,),))
_define("pow", ("x", "y"), NUMERIC, _pow, "x to the y; integer powers wrap and read six bits of y.")
_define("max", ("x", "y"), NUMERIC, np.maximum, "Larger of two; NaN if either is.")
_define("min", ("x", "y"), NUMERIC, np.minimum, "Smaller of two; NaN if either is.")
_define("rem", ("x", "y"), NUMERIC, _rem, "Remainder of the truncated quotient: sign of x; x for an integer y of 0.")
_define("floor_div", ("x", "y"), NUMERIC, _floor_div, "Quotient rounded down; integer division by 0 as jax has it.")
_define("mod", ("x", "y"), NUMERIC, _mod, "Remainder of the floored quotient: sign of y; 0 for an integer y of 0.")
_define("and", ("x", "y"), BITS, np.bitwise_and, "Logical and of bool, bitwise and of integers.")
_define("or", ("x", "y"), BITS, np.bitwise_or, "Logical or of bool, bitwise or of integers.")
_define("xor", ("x", "y"), BITS, np.bitwise_xor, "Exclusive or of bool, bitwise of integers.")
_COMPARISONS: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("eq", np.equal, "x = y; NaN equals nothing."),
    ("ne", np.not_equal, "x differs from y."),
    ("lt", np.less, "x < y."),
    ("le", np.less_equal, "x <= y."),
    ("gt", np.greater, "x > y."),
    ("ge", np.greater_equal, "x >= y."),
)
for _name, _function, _doc in _COMPARISONS:
    _define(_name, ("x", "y"), ANY, _function, _doc, to_bool=True)


# ---- select and cast


def _infer_select(types: Types, attrs: Attrs) -> Types:
    require("select", types, lambda d: d == BOOL, "bool predicate", "bool", only=(0,))
    require("select", types, *ANY, only=(1, 2))
    require_same("select", types, only=(1, 2))
    if types[0].shape != types[1].shape:
        raise OpError(
            "select takes a predicate of the shape of its cases",
            f"the predicate is {plain(types[0])}, the cases are {plain(types[1])}",
            suggestion=f"broadcast the predicate to {list(types[1].shape)}",
            operand=0,
        )
    return (plain(types[1]),)


define(
    OpDef(
        "select",
        ("pred", "on_true", "on_false"),
        infer=_infer_select,
        reference=silent(np.where),
        rule=lambda types, attrs: same_dims(types, sums(types[1].dtype, (1, 2))),
        examples=((("bool[4,6]", "f32[4,6]", "f32[4,6]"), {}), (("bool[5]", "bool[5]", "bool[5]"), {})),
        doc="on_true where pred holds, on_false elsewhere. Linear in both cases together.",
    )
)


def exact_cast(source: DType, target: DType) -> bool:
    """Tell whether casting commutes with sums: widening floats, and integers that keep or lose high bits."""
    if source.is_float and target.is_float:
        return source == target or (target.itemsize > source.itemsize)
    return source.is_integer and target.is_integer and target.itemsize <= source.itemsize


def _infer_cast(types: Types, attrs: Attrs) -> Types:
    target = get_dtype(attrs)
    require("cast", types, *ANY)
    if target == KEY:
        raise OpError("a random key cannot be cast to", suggestion="pass a key as a parameter", operand=0)
    return (TensorType(target, types[0].shape),)


def _rule_cast(types: Types, attrs: Attrs) -> Rule:
    return same_dims(types, ((0,),) if exact_cast(types[0].dtype, get_dtype(attrs)) else ())


@silent
def _cast(x: Array, *, dtype: DType) -> Any:
    """Floats become integers toward zero, clamped to the range, NaN to 0; integers wrap; non-zero is True."""
    target = dtype.numpy()
    if not (_is_float(x) and dtype.is_integer):
        return x.astype(target)
    info = np.iinfo(target)
    wide = np.trunc(x.astype(np.float64))
    over, under = wide >= float(info.max + 1), wide < float(info.min)
    inside = np.where(over | under | np.isnan(wide), 0, wide).astype(target)
    return np.where(over, target.type(info.max), np.where(under, target.type(info.min), inside))


define(
    OpDef(
        "cast",
        ("x",),
        attrs=("dtype",),
        infer=_infer_cast,
        reference=_cast,
        rule=_rule_cast,
        examples=(
            (("bf16[4,6]",), {"dtype": DType("f32", "f", 4)}),
            (("f32[4,6]",), {"dtype": DType("bf16", "f", 2)}),
            (("f32[5]",), {"dtype": DType("i32", "i", 4)}),
            (("i32[5]",), {"dtype": DType("i8", "i", 1)}),
            (("bool[5]",), {"dtype": DType("f32", "f", 4)}),
        ),
        doc="Change the element type. Floats become integers toward zero, clamped to the range, NaN to 0; integers "
        "wrap; anything but zero is True. Linear where no sum can be rounded or clamped differently.",
    )
)
