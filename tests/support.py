"""Helpers that several test files share: hostile inputs, exact comparison, the structure of a module."""

from __future__ import annotations

from typing import Any

import numpy as np

from gshard_ir.ir import Function, Module, Region, Value
from gshard_ir.source import Span
from gshard_ir.types import TensorType

Array = np.ndarray[Any, np.dtype[Any]]


def hostile(type_: TensorType, seed: int) -> Array:
    """Return data that cannot hide a bug: mixed signs, ties, both zeros, a NaN row, extreme and odd indices.

    Finite floats are small multiples of 1/2, so that sums are exact in any order.
    """
    draw = np.random.default_rng(seed)
    dtype = type_.dtype
    if dtype.kind == "k":
        return draw.integers(0, 2**32, (*type_.shape, 2), np.uint32)
    if dtype.kind == "b":
        return draw.integers(0, 2, type_.shape).astype(bool)
    if dtype.kind == "f":
        values = draw.integers(-6, 7, type_.shape) / 2
        values = np.where(draw.integers(0, 5, type_.shape) == 0, -0.0, values)
        if type_.rank and type_.shape[0] > 1:
            values[-1] = np.nan
        return values.astype(dtype.numpy())
    span = max(type_.shape, default=4)
    values = draw.integers(-span if dtype.kind == "i" else 0, span + 2, type_.shape)
    return np.asarray(values).astype(dtype.numpy())


def arguments(module: Module, seed: int = 0) -> list[Array]:
    """Return hostile arguments for a global module's entry."""
    return [hostile(p.type, seed + i) for i, p in enumerate(module.main.params)]


def assert_same(expected: Array, found: Array, what: str = "") -> None:
    """Assert equal shape, type and values, NaN equal to NaN."""
    assert (expected.shape, expected.dtype) == (found.shape, found.dtype), what
    # bf16 has no isnan of its own; f64 holds every other type's values exactly, 64-bit integers excepted.
    wide = expected.dtype if expected.dtype.kind in "biu" else np.dtype(np.float64)
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide), err_msg=what)


def structure(module: Module) -> tuple[Any, ...]:
    """Return everything that a module holds as plain data: equal for equal IR, whatever the objects are."""
    functions = tuple(_function(f) for f in module.functions.values())
    mesh = module.mesh
    return (mesh.names, mesh.sizes, mesh.parents, module.entry, module.local, tuple(module.functions), functions)


def _function(function: Function) -> tuple[Any, ...]:
    numbers: dict[Value, int] = {}
    body = _region(function.body, numbers)
    pins = (function.param_shardings, function.result_shardings)
    return (function.name, function.param_names, function.result_names, repr(pins), body, _span(function.span))


def _region(region: Region, numbers: dict[Value, int]) -> tuple[Any, ...]:
    def define(values: tuple[Value, ...]) -> tuple[Any, ...]:
        for value in values:
            numbers[value] = len(numbers)
        return tuple((type(v.type).__name__, v.type, v.shape, v.hint, _span(v.span)) for v in values)

    params = define(region.params)
    ops = []
    for op in region.ops:
        operands = tuple(numbers[v] for v in op.operands)
        # repr tells 1 from True and 1.0, 0.0 from -0.0, and finds a NaN equal to itself.
        attrs = tuple((name, repr(op.attrs[name])) for name in sorted(op.attrs))
        inner = tuple(_region(r, numbers) for r in op.regions)
        ops.append((op.name, operands, attrs, inner, _span(op.span), define(op.results)))
    return (params, tuple(ops), tuple(numbers[v] for v in region.results))


def _span(span: Span | None) -> tuple[Any, ...]:
    stack = span.stack() if span else ()
    return tuple((s.file.name, s.line, s.column, s.end_line, s.end_column, s.callee) for s in stack)
