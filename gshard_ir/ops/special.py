"""Element-wise functions of reals beyond the elementary ones, and integers seen as bits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gshard_ir.opdef import Array
from gshard_ir.ops.elementwise import FLOAT, INTEGER, NUMERIC, _define


def in_f64(function: Callable[..., Any]) -> Callable[..., Array]:
    """Compute floats in f64 and round once at the end: the same on every length of array, to the last bit."""

    @functools.wraps(function)
    def wide(*arrays: Array) -> Array:
        dtype = arrays[0].dtype
        return np.asarray(function(*(a.astype(np.float64) for a in arrays))).astype(dtype)

    return wide


def each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Apply a function of one Python float to every element; where it has no value the result is infinite."""

    def value(x: float) -> float:
        try:
            return function(x)
        except (ValueError, OverflowError):
            return math.inf

    apply = np.frompyfunc(value, 1, 1)
    return lambda x: np.asarray(apply(x)).astype(np.float64)


_erf, _erfc = each(math.erf), each(math.erfc)


def _erf_inv(x: Array) -> Any:
    """Start from Winitzki's approximation of the tail, then Halley steps on the side that does not cancel."""
    size = np.abs(x)
    inside = np.where(size < 1, size, 0.5)
    tail = np.log1p(-inside * inside)
    half = 2 / (math.pi * 0.147) + tail / 2
    y = np.sqrt(np.sqrt(half * half - tail / 0.147) - half)
    for _ in range(3):
        error = np.where(inside < 0.5, _erf(y) - inside, (1 - inside) - _erfc(y))
        step = error / (2 / math.sqrt(math.pi) * np.exp(-y * y))
        y = y - step / (1 + y * step)
    return np.copysign(np.where(size < 1, y, np.where(size == 1, math.inf, math.nan)), x)


def _digamma(x: Array) -> Any:
    """Reflect what is negative, walk up to 10 by the recurrence, then the asymptotic series."""
    y = np.where(x < 0, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(10):
        low = y < 10
        total = np.where(low, total - 1 / y, total)
        y = np.where(low, y + 1, y)
    s = 1 / (y * y)
    series = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    total = total + np.log(y) - 0.5 / y - series
    # The cotangent has period 1: of the fraction it is exact, and a whole number is a pole.
    fraction = x - np.rint(x)
    reflected = np.where(fraction == 0, math.nan, total - math.pi / np.tan(math.pi * fraction))
    return np.where(x <= 0, reflected, total)


_CURVES: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("tan", np.tan, "Tangent."),
    ("asin", np.arcsin, "Inverse sine; NaN beyond -1 and 1."),
    ("acos", np.arccos, "Inverse cosine; NaN beyond -1 and 1."),
    ("atan", np.arctan, "Inverse tangent."),
    ("sinh", np.sinh, "Hyperbolic sine."),
    ("cosh", np.cosh, "Hyperbolic cosine."),
    ("asinh", np.arcsinh, "Inverse hyperbolic sine."),
    ("acosh", np.arccosh, "Inverse hyperbolic cosine; NaN below 1."),
    ("atanh", np.arctanh, "Inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond."),
    ("exp2", np.exp2, "2 to the x."),
    ("log2", np.log2, "Logarithm to base 2; -inf at 0, NaN below."),
    ("log10", np.log10, "Logarithm to base 10; -inf at 0, NaN below."),
    ("cbrt", np.cbrt, "Cube root, of negative numbers too."),
    ("trunc", np.trunc, "Whole number next to x toward zero."),
    ("erf", _erf, "Error function."),
    ("erfc", _erfc, "1 - erf(x), precise where erf is near 1."),
    ("erf_inv", _erf_inv, "Inverse of erf; infinite at -1 and 1, NaN beyond."),
    ("lgamma", each(math.lgamma), "Logarithm of the absolute gamma function; infinite at its poles."),
    ("digamma", _digamma, "Derivative of lgamma; NaN at its poles."),
)
for _name, _function, _doc in _CURVES:
    _define(_name, ("x",), FLOAT, in_f64(_function), _doc)

_define("atan2", ("x", "y"), FLOAT, in_f64(np.arctan2), "Angle of the point (y, x): the inverse tangent of x / y.")
_define("hypot", ("x", "y"), FLOAT, in_f64(np.hypot), "sqrt(x x + y y), without overflow; inf if either is infinite.")
_define("logaddexp", ("x", "y"), FLOAT, in_f64(np.logaddexp), "log(exp(x) + exp(y)), without overflow.")
_define("fmax", ("x", "y"), NUMERIC, np.fmax, "Larger of two; of a number and NaN, the number.")
_define("fmin", ("x", "y"), NUMERIC, np.fmin, "Smaller of two; of a number and NaN, the number.")


# ---- integers as bits


def _unsigned(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)


def _shift(arithmetic: bool, function: Callable[..., Any]) -> Callable[[Array, Array], Array]:
    """Shift by a count read as unsigned; at or past the width nothing of x is left but, arithmetically, its sign."""

    def shift(x: Array, y: Array) -> Array:
        count, last = _unsigned(y), 8 * x.dtype.itemsize - 1
        bits = _unsigned(x).view(f"i{x.dtype.itemsize}") if arithmetic else _unsigned(x)
        moved = np.asarray(function(bits, np.minimum(count, last).astype(bits.dtype)))
        kept = moved if arithmetic else np.where(count > last, np.zeros_like(moved), moved)
        return np.ascontiguousarray(kept).view(x.dtype).reshape(x.shape)

    return shift


def _population_count(x: Array) -> Array:
    return np.bitwise_count(_unsigned(x)).astype(x.dtype)


def _leading_zeros(x: Array) -> Array:
    """Fill every bit below the highest one: what is not set then are the leading zeros."""
    bits, width = _unsigned(x), 8 * x.dtype.itemsize
    step = 1
    while step < width:
        bits = bits | (bits >> bits.dtype.type(step))
        step *= 2
    return (width - np.bitwise_count(bits)).astype(x.dtype)


_define(
    "shift_left",
    ("x", "y"),
    INTEGER,
    _shift(False, np.left_shift),
    "Bits of x moved up by y, read as unsigned; 0 when y is the width or more.",
    linear=((0,),),
)
_define(
    "shift_right_logical",
    ("x", "y"),
    INTEGER,
    _shift(False, np.right_shift),
    "Bits of x moved down by y, read as unsigned, zeros coming in; 0 when y is the width or more.",
)
_define(
    "shift_right_arithmetic",
    ("x", "y"),
    INTEGER,
    _shift(True, np.right_shift),
    "Bits of x moved down by y, read as unsigned, the highest bit coming in, for unsigned types too.",
)
_define("population_count", ("x",), INTEGER, _population_count, "Number of bits set.")
_define("clz", ("x",), INTEGER, _leading_zeros, "Number of leading zero bits.")
