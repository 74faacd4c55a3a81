"""How jax.numpy says each op of the IR: one line per op in ``TABLE``.

A renderer takes the op and the code of its operands and returns the code of its result. The code of an
operand may be thinner than its type (``x[:, None]``, ``0.0``): numpy broadcasting does the rest in
element-wise ops, and :func:`full` spells it out elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from gshard_ir.backends.jax_elementwise import ELEMENTWISE
from gshard_ir.backends.jax_render import Context, Renderer, code_of, full, fulls, ints
from gshard_ir.backends.py_code import (
    ATOM,
    Code,
    jnp_dtype,
    literal,
    quoted,
    strong,
    tuple_text,
)
from gshard_ir.ir import Op
from gshard_ir.ops.scan import SCANS, number_for_nothing
from gshard_ir.types import F32, I32, DType


def _of_splat(renderer: Renderer) -> Renderer:
    """Rearranging a tensor filled with one number leaves that number."""

    def render(context: Context, op: Op, operands: Sequence[Code]) -> Code:
        filled = operands[0].is_literal or not operands[0].shape
        return operands[0] if filled and op.operands[0].type.rank else renderer(context, op, operands)

    return render


def _identity(_: Context, _op: Op, operands: Sequence[Code]) -> Code:
    return operands[0]


# Sources and broadcasts are written where they are used.


def _constant(_: Context, op: Op, _operands: Sequence[Code]) -> Code:
    return literal(cast("int | float | bool", op.attrs["value"]), op.result.dtype)


def _iota(_: Context, op: Op, _operands: Sequence[Code]) -> Code:
    type_ = op.result.type
    axis = cast("int", op.attrs["axis"])
    size = type_.shape[axis]
    text = f"jnp.arange({size}, dtype={jnp_dtype(type_.dtype)})"
    if type_.dtype not in (I32, F32):
        text = f"lax.iota({jnp_dtype(type_.dtype)}, {size})"
    return expand(Code(text, (size,), type_.dtype), (axis,), type_.rank)


def _broadcast(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    return expand(operands[0], ints(op.attrs["dims"]), op.result.type.rank)


def expand(code: Code, dims: Sequence[int], rank: int) -> Code:
    """``x[:, None, :]``: dims of the code (its last ones, when thin) placed at ``dims`` of a tensor of ``rank``."""
    if not code.shape:
        return code
    held = list(dims)[-len(code.shape) :]
    places = range(held[0], rank)
    shape = tuple(code.shape[held.index(d)] if d in held else 1 for d in places)
    if len(places) == len(held):
        return code
    if held == list(places)[: len(held)]:
        index = "..., " + ", ".join("None" for _ in range(len(places) - len(held)))
    else:
        index = ", ".join(":" if d in held else "None" for d in places)
    return code.reshaped(f"{code.atom}[{index}]", shape)


# Contractions and reductions.


def _einsum(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    codes = fulls(op, operands)
    dtype = op.result.dtype
    args = ", ".join([quoted(cast("str", op.attrs["spec"])), *(c.text for c in codes)])
    if dtype.is_float and dtype.itemsize == 2:
        text = f"jnp.einsum({args}, preferred_element_type=jnp.float32).astype({jnp_dtype(dtype)})"
    else:
        text = f"jnp.einsum({args})"
    return code_of(text, op.result.type)


def axes_arg(axes: Sequence[int], rank: int) -> str:
    """``axis=...`` of a reduction, or nothing when all dims go; the last dim is written ``-1``."""
    if len(axes) == rank:
        return ""
    if len(axes) == 1:
        return f", axis={-1 if axes[0] == rank - 1 else axes[0]}"
    return f", axis={tuple_text(axes)}"


def _reduction(name: str, *, widens: bool = False) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        (x,) = fulls(op, operands)
        type_ = op.operands[0].type
        dtype = f", dtype={jnp_dtype(type_.dtype)}" if widens and type_.dtype.is_integer else ""
        return code_of(f"{name}({x.text}{axes_arg(ints(op.attrs['axes']), type_.rank)}{dtype})", op.result.type)

    return render


def _arg_reduction(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        (x,) = fulls(op, operands)
        return code_of(f"{name}({x.text}, axis={op.attrs['axis']}, index_dtype=jnp.int32)", op.result.type)

    return render


def _scan(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = fulls(op, operands)
    dtype, axis = op.result.dtype, op.attrs["axis"]
    reverse = ", reverse=True" if op.attrs["reverse"] else ""
    text = f"lax.{op.name}({x.text}, axis={axis}{reverse})"
    if dtype.is_float and dtype.itemsize == 2 and op.name not in ("cummax", "cummin"):
        wide = f"lax.{op.name}({x.atom}.astype(jnp.float32), axis={axis}{reverse})"
        text = f"{wide}.astype({jnp_dtype(dtype)})"
    if op.attrs["exclusive"]:
        fill = literal(number_for_nothing(SCANS[op.name], dtype), dtype).text
        text = context.call("exclusive", text, str(axis), fill, *(["reverse=True"] if reverse else []))
    return code_of(text, op.result.type)


# Data movement.


def _reshape(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = fulls(op, operands)
    return code_of(f"{x.atom}.reshape({_args(op.result.shape)})", op.result.type)


def _args(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if sizes else "()"


def _transpose(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = fulls(op, operands)
    perm = ints(op.attrs["perm"])
    text = f"{x.atom}.T" if perm == (1, 0) else f"{x.atom}.transpose({_args(perm)})"
    return code_of(text, op.result.type)


def _concat(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    parts = ", ".join(c.text for c in fulls(op, operands))
    return code_of(f"jnp.concatenate([{parts}], axis={op.attrs['axis']})", op.result.type)


def _slice(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = fulls(op, operands)
    starts, limits, strides = (ints(op.attrs[a]) for a in ("starts", "limits", "strides"))
    shape = op.operands[0].shape
    words = [_range(*four) for four in zip(starts, limits, strides, shape, strict=True)]
    while words and words[-1] == ":":
        words.pop()
    return code_of(f"{x.atom}[{', '.join(words)}]" if words else x.text, op.result.type, ATOM if words else x.bind)


def _range(start: int, limit: int, stride: int, size: int) -> str:
    text = f"{start or ''}:{limit if limit < size else ''}"
    return text + (f":{stride}" if stride != 1 else "")


def _pad(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = fulls(op, operands)
    value = literal(cast("int | float | bool", op.attrs["value"]), op.result.dtype)
    widths = tuple_text(tuple_text(w) for w in zip(ints(op.attrs["low"]), ints(op.attrs["high"]), strict=True))
    fill = "" if value.text in ("0", "0.0", "False") else f", constant_values={value.text}"
    return code_of(f"jnp.pad({x.text}, {widths}{fill})", op.result.type)


def _reverse(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = fulls(op, operands)
    return code_of(f"jnp.flip({x.text}{axes_arg(ints(op.attrs['axes']), op.result.type.rank)})", op.result.type)


def _take(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    x, indices = fulls(op, operands)
    return code_of(f"jnp.take({x.text}, {indices.text}, axis={op.attrs['axis']})", op.result.type)


# Random numbers.


def _uniform(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    shape = tuple_text(op.result.shape)
    return code_of(context.call("uniform", operands[0].text, shape, shape), op.result.type)


def _fold_in(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    key, data = operands[0], strong(operands[1])
    return code_of(context.call("fold_in", key.text, data.text), op.result.type)


TABLE: dict[str, Renderer] = {
    **ELEMENTWISE,
    "constant": _constant,
    "iota": _iota,
    "einsum": _einsum,
    "reduce_sum": _reduction("jnp.sum", widens=True),
    "reduce_prod": _reduction("jnp.prod", widens=True),
    "reduce_max": _reduction("jnp.max"),
    "reduce_min": _reduction("jnp.min"),
    "reduce_and": _reduction("jnp.all"),
    "reduce_or": _reduction("jnp.any"),
    "argmax": _arg_reduction("lax.argmax"),
    "argmin": _arg_reduction("lax.argmin"),
    **dict.fromkeys(SCANS, _scan),
    "broadcast": _broadcast,
    "reshape": _of_splat(_reshape),
    "transpose": _of_splat(_transpose),
    "concat": _concat,
    "slice": _of_splat(_slice),
    "pad": _pad,
    "reverse": _of_splat(_reverse),
    "take": _take,
    "uniform": _uniform,
    "fold_in": _fold_in,
    "annotate": _identity,
    "like": _identity,
    "barrier": _identity,
}

LAZY = frozenset({"constant", "iota", "broadcast", "like", "barrier", "axis_index"})
"""Ops that are written inside each of their users: cheap, and clearer there than under a name."""


__all__ = ["LAZY", "TABLE", "Context", "DType", "Renderer", "code_of", "expand", "full", "ints"]
