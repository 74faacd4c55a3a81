"""Builtins that reduce, select or scan along dims."""

from __future__ import annotations

import math

from gshard_ir.frontend.lower_arith import Term, binary
from gshard_ir.frontend.lower_builtins import Site, builtin
from gshard_ir.frontend.lower_values import Item, describe, is_number, text_of
from gshard_ir.ir import Value
from gshard_ir.types import BOOL, F32, I32

_REDUCE = {
    "sum": "reduce_sum", "prod": "reduce_prod", "max": "reduce_max", "min": "reduce_min", "amax": "reduce_max",
    "amin": "reduce_min", "any": "reduce_or", "all": "reduce_and",
}  # fmt: skip


def _keep(s: Site, x: Value, reduced: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    if not keepdims:
        return reduced
    kept = [d for d in range(x.type.rank) if d not in axes]
    return s.emit.insert_dims(reduced, kept, x.type.rank, s.span)


def _reduce(s: Site, op: str, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    reduced = s.op(op, x, at=(s.first,), axes=axes) if axes else x
    return _keep(s, x, reduced, axes, keepdims)


@builtin(*(f"{name}(a, axis=None, *, keepdims=False)" for name in _REDUCE))
def _reduction(s: Site) -> Item:
    if s.name in ("max", "min") and is_number(s.args[s.first]):
        return _of_numbers(s)
    if isinstance(s.args["axis"], Value) and s.name in ("max", "min"):
        edit = f"{s.name}imum({text_of(s.where(s.first))}, {text_of(s.where('axis'))})"
        raise s.fail(f"axis must be an integer, found {describe(s.args['axis'])}", None, suggestion=edit)
    x = s.tensor()
    if s.name in ("any", "all"):
        if x.dtype != BOOL:
            raise s.fail(
                f"{s.first} must be bool, found {x.type}", s.first, suggestion=f"{text_of(s.where(s.first))} != 0"
            )
    else:
        x = s.numeric()
    axes = s.axes(x)
    if s.name in ("max", "min", "amax", "amin") and math.prod(x.shape[a] for a in axes) == 0:
        edit = "a tensor with a row at least"
        raise s.fail(f"there is no largest or smallest of nothing: {s.first} is {x.type}", s.first, suggestion=edit)
    return _reduce(s, _REDUCE[s.name], x, axes, s.boolean("keepdims"))


def _of_numbers(s: Site) -> Item:
    """Return the largest or smallest of compile-time numbers given one by one."""
    items = [s.args[s.first], *(s.args[a] for a in ("axis", "keepdims") if a in s.spans)]
    numbers = [i for i in items if isinstance(i, int | float) and not isinstance(i, bool)]
    if len(numbers) < len(items):
        other = next(i for i in items if not is_number(i))
        raise s.fail(f"expected numbers, found {describe(other)}", "axis", suggestion=f"{s.name}imum(x, y)")
    return max(numbers) if s.name == "max" else min(numbers)


def _float_x(s: Site) -> Value:
    x = s.tensor()
    if not x.dtype.is_float:
        edit = f"cast({text_of(s.where(s.first))}, f32)"
        raise s.fail(f"{s.first} must be float, found {x.type}", s.first, suggestion=edit)
    return x


def _mean_of(s: Site, x: Value, axes: tuple[int, ...], keepdims: bool, less: int = 0) -> Value:
    """Sum over dims, divided by the number of elements less ``less``."""
    total = _reduce(s, "reduce_sum", x, axes, keepdims)
    count = math.prod(x.shape[a] for a in axes) - less
    return s.op("div", total, s.emit.constant(float(count), x.dtype, total.shape, s.span))


@builtin("mean(a, axis=None, *, keepdims=False)")
def _mean(s: Site) -> Item:
    x = _float_x(s)
    # 16-bit floats are summed and divided in f32, as jax.numpy does.
    wide = s.emit.cast(x, F32, s.span) if x.dtype.itemsize == 2 else x
    return s.emit.cast(_mean_of(s, wide, s.axes(x), s.boolean("keepdims")), x.dtype, s.span)


@builtin("var(a, axis=None, *, ddof=0, keepdims=False)", "std(a, axis=None, *, ddof=0, keepdims=False)")
def _var(s: Site) -> Item:
    x = _float_x(s)
    axes, ddof = s.axes(x), s.integer("ddof", low=0)
    wide = s.emit.cast(x, F32, s.span) if x.dtype.itemsize == 2 else x
    center = _mean_of(s, wide, axes, True)
    off = s.op("sub", wide, s.emit.broadcast(center, wide.shape, s.span))
    found = _mean_of(s, s.op("mul", off, off), axes, s.boolean("keepdims"), ddof)
    if s.name == "std":
        found = s.op("sqrt", found)
    return s.emit.cast(found, x.dtype, s.span)


@builtin("argmax(a, axis=None, *, keepdims=False)", "argmin(a, axis=None, *, keepdims=False)")
def _arg(s: Site) -> Item:
    x = s.numeric()
    if s.args["axis"] is None:
        flat = s.emit.reshape(x, (x.type.size,), s.span)
        found, axes = s.op(s.name, flat, at=(s.first,), axis=0), tuple(range(x.type.rank))
    else:
        axis = s.axis(x.type.rank, of=str(x.type))
        found, axes = s.op(s.name, x, at=(s.first,), axis=axis), (axis,)
    return _keep(s, x, found, axes, s.boolean("keepdims"))


@builtin(
    "cumsum(a, axis=None, *, reverse=False, exclusive=False)",
    "cumprod(a, axis=None, *, reverse=False, exclusive=False)",
    *(f"{n}(operand, axis=0, *, reverse=False, exclusive=False)" for n in ("cummax", "cummin", "cumlogsumexp")),
)
def _scan(s: Site) -> Item:
    x = s.numeric()
    if s.args["axis"] is None:
        x, axis = s.emit.reshape(x, (x.type.size,), s.span), 0
    else:
        axis = s.axis(x.type.rank, of=str(x.type))
    reverse, exclusive = s.boolean("reverse"), s.boolean("exclusive")
    # Of integers the element itself comes off again without a trace; floats would round.
    less = exclusive and s.name == "cumsum" and x.dtype.is_integer
    found = s.op(s.name, x, at=(s.first,), axis=axis, reverse=reverse, exclusive=exclusive and not less)
    return s.op("sub", found, x) if less else found


@builtin("one_hot(x, num_classes, *, dtype=f32, axis=-1)")
def _one_hot(s: Site) -> Item:
    x, classes, dtype = s.tensor(), s.integer("num_classes", low=0), s.dtype()
    if not x.dtype.is_integer:
        raise s.fail(
            f"{s.first} must hold integers, found {x.type}",
            s.first,
            suggestion=f"cast({text_of(s.where(s.first))}, i32)",
        )
    x = s.emit.cast(x, I32, s.span) if x.dtype.itemsize < 4 else x
    rank = x.type.rank + 1
    axis = s.axis(rank)
    shape = (*x.shape[:axis], classes, *x.shape[axis:])
    kept = [d for d in range(rank) if d != axis]
    wide = s.emit.broadcast(s.emit.insert_dims(x, kept, rank, s.span), shape, s.span)
    count = s.op("iota", dtype=x.dtype, shape=shape, axis=axis)
    return s.emit.cast(s.op("eq", wide, count), dtype, s.span)


@builtin("count_nonzero(a, axis=None, keepdims=False)")
def _count(s: Site) -> Item:
    x = s.tensor()
    hit = x if x.dtype == BOOL else binary(s.emit, "!=", s.term(s.first), Term(0, s.span), s.span)
    assert isinstance(hit, Value)
    return _reduce(s, "reduce_sum", s.emit.cast(hit, I32, s.span), s.axes(x), s.boolean("keepdims"))
