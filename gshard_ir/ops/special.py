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


def from_scipy(name: str) -> Callable[[Array], Any]:
    """Return a function of scipy.special, which is loaded when it is first computed: most commands never do."""

    def call(x: Array) -> Any:
        from scipy import special

        return getattr(special, name)(x)

    return call


def _log_gamma(x: Array) -> Array:
    """Python's, element by element, as scipy's loses digits near 1; infinite at poles and past the largest float."""

    def value(x: float) -> float:
        try:
            return math.lgamma(x)
        except (ValueError, OverflowError):
            return math.inf

    return np.asarray(np.frompyfunc(value, 1, 1)(x)).astype(np.float64)


def _digamma(x: Array) -> Any:
    return np.where(x == 0, math.nan, from_scipy("psi")(x))


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
    ("erf", from_scipy("erf"), "Error function."),
    ("erfc", from_scipy("erfc"), "1 - erf(x), precise where erf is near 1."),
    ("erf_inv", from_scipy("erfinv"), "Inverse of erf; infinite at -1 and 1, NaN beyond."),
    ("lgamma", _log_gamma, "Logarithm of the absolute gamma function; infinite at its poles."),
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
