"""Arithmetic on compile-time values: bounded, so that no source text can make the compiler compute for long."""

from __future__ import annotations

import math
from collections.abc import Callable

from gshard_ir.errors import GShardError, fail
from gshard_ir.frontend.lower_values import Item, describe, is_number, is_static, text_of
from gshard_ir.source import Span

LIMIT = 2**63 - 1
"""Largest magnitude of a compile-time integer."""


def _bounded(value: float, span: Span) -> int | float:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > LIMIT:
        raise fail("a compile-time integer is too large", span, f"magnitudes go up to 2**63 - 1 = {LIMIT:,}")
    return value


def _power(a: float, b: float, span: Span) -> int | float:
    if isinstance(a, int) and isinstance(b, int):
        if b < 0:
            if a == 0:
                raise fail("0 to a negative power", span)
            return float(a) ** max(b, -2000)
        if abs(a) > 1 and b * math.log2(abs(a)) > 64:
            raise fail(f"{a} ** {b} is too large", span, f"compile-time integers go up to 2**63 - 1 = {LIMIT:,}")
        # Only 0, 1 and -1 get here with a large exponent.
        return a**b if abs(a) > 1 else (a if b % 2 or (a == 0 and b) else 1)
    value = a**b
    if isinstance(value, complex):
        raise fail("a negative number to a fractional power has no real value", span, f"({a}) ** {b}")
    return float(value)


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
_BITS: dict[str, Callable[[int, int], int]] = {
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}


def arithmetic(op: str, a: Item, b: Item, span: Span) -> Item:
    """Apply a binary operator to compile-time values.

    Raises :class:`~gshard_ir.errors.GShardError` for other operands, a zero divisor or an integer past 2**63.
    """
    if op in _BITS:
        if isinstance(a, int) and isinstance(b, int) and isinstance(a, bool) == isinstance(b, bool):
            return _BITS[op](a, b)
        raise _bad_operands(op, a, b, span)
    if not (isinstance(a, int | float) and isinstance(b, int | float) and is_number(a) and is_number(b)):
        raise _bad_operands(op, a, b, span)
    try:
        value = _power(a, b, span) if op == "**" else _ARITHMETIC[op](a, b)
    except ZeroDivisionError:
        raise fail(f"{a} {op} {b} divides by zero", span) from None
    except OverflowError:
        raise fail(f"{a} {op} {b} is too large for a float", span) from None
    return _bounded(value, span)


def _bad_operands(op: str, a: Item, b: Item, span: Span) -> GShardError:
    return fail(f"{op} does not apply to {describe(a)} and {describe(b)}", span)


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(op: str, a: Item, b: Item, span: Span) -> bool:
    """Compare compile-time values; ``==`` and ``!=`` accept any, and a tensor or struct never equals ``None``."""
    if op in ("==", "!="):
        same = a == b and isinstance(a, bool) == isinstance(b, bool) if is_static(a) and is_static(b) else False
        return same == (op == "==")
    if not (isinstance(a, int | float) and isinstance(b, int | float) and is_number(a) and is_number(b)):
        raise _bad_operands(op, a, b, span)
    return _COMPARE[op](a, b)


def negate(op: str, a: Item, span: Span) -> Item:
    """Apply a unary operator to a compile-time value."""
    if op == "not":
        return not truth(a, span)
    if isinstance(a, bool) and op == "~":
        return not a
    if isinstance(a, int | float) and is_number(a):
        if op == "+":
            return a
        if op == "-":
            return -a
        if op == "~" and isinstance(a, int):
            return ~a
    raise fail(f"{op} does not apply to {describe(a)}", span)


def truth(item: Item, span: Span) -> bool:
    """Return a compile-time truth value; numbers, strings and tuples are not taken for one."""
    if isinstance(item, bool):
        return item
    if not is_static(item):
        raise fail(
            "a condition must be known at compile time",
            span,
            f"this one is {describe(item)}, which is computed at run time",
            suggestion="where(condition, a, b) to choose between values",
        )
    edit = f"{text_of(span)} != {'None' if item is None else 0}" if is_number(item) or item is None else None
    raise fail(f"a condition must be True or False, found {describe(item)}", span, suggestion=edit)


def number_function(name: str, function: Callable[[float], float], a: float, span: Span) -> int | float:
    """Apply a one-argument function of real numbers at compile time; the result is a float as it is for tensors."""
    try:
        return function(a)
    except OverflowError:
        return math.inf
    except ValueError:
        raise fail(f"{name}({a}) has no real value", span) from None


def whole(item: Item, what: str, span: Span, *, low: int | None = None, high: int | None = None) -> int:
    """Return a compile-time integer in a range; raise a diagnostic that says what it is for."""
    if not isinstance(item, int) or isinstance(item, bool):
        edit = f"{int(item)}" if isinstance(item, float) and abs(item) < LIMIT and item == int(item) else None
        raise fail(f"{what} must be a compile-time integer, found {describe(item)}", span, suggestion=edit)
    if low is not None and item < low:
        raise fail(f"{what} must be at least {low}, found {item}", span, suggestion=f"{low}")
    if high is not None and item > high:
        raise fail(f"{what} must be at most {high:,}, found {item:,}", span)
    return item
