"""Builtins that make tensors from nothing or from a random key."""

from __future__ import annotations

import math

from gshard_ir.frontend.lower_builtins import Site, builtin
from gshard_ir.frontend.lower_emit import check_shape
from gshard_ir.frontend.lower_values import Item, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.types import BOOL, F32, I32, KEY, U32, DType


@builtin("zeros(shape, dtype=f32)", "ones(shape, dtype=f32)")
def _splat(s: Site) -> Item:
    dtype, one = s.dtype(), s.name == "ones"
    return s.emit.constant(one if dtype == BOOL else int(one), dtype, s.shape(), s.span)


@builtin("full(shape, fill_value, dtype=None)")
def _full(s: Site) -> Item:
    return _filled(s, s.shape(), None if s.args["dtype"] is None else s.dtype())


def _filled(s: Site, shape: tuple[int, ...], dtype: DType | None) -> Value:
    item = s.args["fill_value"]
    if isinstance(item, Value):
        if item.shape:
            raise s.fail(f"fill_value must be a scalar, found {item.type}", "fill_value")
        value = s.emit.cast(item, dtype or item.dtype, s.span)
        return s.emit.broadcast(value, shape, s.span)
    if not isinstance(item, int | float):
        raise s.fail(f"fill_value must be a number, found {describe(item)}", "fill_value")
    if dtype is None:
        return s.emit.literal(item, s.where("fill_value"), shape)
    return s.emit.constant(item, dtype, shape, s.where("fill_value"))


@builtin("zeros_like(a, dtype=None)", "ones_like(a, dtype=None)")
def _splat_like(s: Site) -> Item:
    x, one = s.tensor(), s.name == "ones_like"
    dtype = x.dtype if s.args["dtype"] is None else s.dtype()
    return s.emit.constant(one if dtype == BOOL else int(one), dtype, x.shape, s.span)


@builtin("full_like(a, fill_value, dtype=None)")
def _full_like(s: Site) -> Item:
    x = s.tensor()
    return _filled(s, x.shape, x.dtype if s.args["dtype"] is None else s.dtype())


@builtin("arange(start, stop=None, step=1, dtype=None)")
def _arange(s: Site) -> Item:
    """Count from start; ``arange(n)`` from 0 to n - 1. The number of elements is that of `numpy.arange`."""
    numbers: list[int | float] = []
    for arg in ("start", "stop", "step"):
        item = s.args[arg]
        if item is None and arg == "stop":
            numbers = [0, *numbers]
            continue
        if not isinstance(item, int | float) or isinstance(item, bool):
            edit = f"{text_of(s.where(arg))}.shape[0]" if isinstance(item, Value) and item.shape else None
            raise s.fail(f"{arg} must be a compile-time number, found {describe(item)}", arg, suggestion=edit)
        numbers.append(item)
    start, stop, step = numbers
    steps = (stop - start) / step if step else math.inf
    if not all(math.isfinite(n) for n in (*numbers, steps)):
        raise s.fail(f"cannot count from {start} to {stop} in steps of {step}", "step")
    floats = any(isinstance(n, float) for n in numbers)
    dtype = (F32 if floats else I32) if s.args["dtype"] is None else s.dtype()
    if not dtype.is_numeric:
        raise s.fail(f"dtype must be a number type, found {dtype}", "dtype", suggestion="i32")
    (n,) = check_shape([max(0, math.ceil(steps))], s.span)
    value = s.op("iota", dtype=dtype, shape=(n,), axis=0)
    if step != 1:
        value = s.op("mul", value, s.emit.constant(step, dtype, (n,), s.span))
    if start != 0:
        value = s.op("add", value, s.emit.constant(start, dtype, (n,), s.span))
    return value


@builtin("iota(dtype, size)")
def _iota(s: Site) -> Item:
    return s.op("iota", dtype=s.dtype(), shape=check_shape([s.integer("size", low=0)], s.where("size")), axis=0)


@builtin("broadcasted_iota(dtype, shape, dimension)")
def _broadcasted_iota(s: Site) -> Item:
    shape = s.shape()
    return s.op("iota", dtype=s.dtype(), shape=shape, axis=s.axis(len(shape), "dimension"))


def _key(s: Site) -> Value:
    key = s.args["key"]
    if not isinstance(key, Value) or key.dtype != KEY:
        raise s.fail(f"key must be a random key, found {describe(key)}", "key", suggestion="a parameter key: key")
    return key


@builtin("uniform(key, shape=[], *, minval=0.0, maxval=1.0)")
def _uniform(s: Site) -> Item:
    """Draw from [minval, maxval), with the arithmetic of `jax.random.uniform`."""
    drawn = s.op("uniform", _key(s), at=("key",), shape=s.shape())
    bounds = []
    for arg in ("minval", "maxval"):
        item = s.args[arg]
        if not isinstance(item, int | float) or isinstance(item, bool):
            raise s.fail(f"{arg} must be a compile-time number, found {describe(item)}", arg)
        bounds.append(float(item))
    if bounds == [0.0, 1.0]:
        return drawn
    low, width = (s.emit.constant(n, F32, drawn.shape, s.span) for n in (bounds[0], bounds[1] - bounds[0]))
    return s.op("max", low, s.op("add", s.op("mul", drawn, width), low))


@builtin("fold_in(key, data)")
def _fold_in(s: Site) -> Item:
    key, data = _key(s), s.args["data"]
    if isinstance(data, int) and not isinstance(data, bool):
        if not 0 <= data < 2**32:
            raise s.fail(f"data must be 0 to 2**32 - 1, found {data}", "data")
        value = s.emit.constant(data, U32, (), s.where("data"))
        return s.op("fold_in", key, value, at=("key", "data"))
    return s.op("fold_in", key, s.tensor("data"), at=("key", "data"))
