"""How jax.numpy says each op of the IR: one line per op in ``TABLE``.

A renderer takes the op and the code of its operands and returns the code of its result. The code of an
operand may be thinner than its type (``x[:, None]``, ``0.0``): numpy broadcasting does the rest in
element-wise ops, and :func:`full` spells it out elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from gshard_ir.backends.py_code import (
    AND,
    ATOM,
    COMPARE,
    OR,
    POWER,
    PRODUCT,
    SUM,
    UNARY,
    XOR,
    Code,
    jnp_dtype,
    literal,
    quoted,
    strong,
    tuple_text,
)
from gshard_ir.ir import Attr, Op
from gshard_ir.mesh import Mesh
from gshard_ir.ops.scan import SCANS, number_for_nothing
from gshard_ir.types import F32, I32, DType, TensorType


@dataclass
class Context:
    """What a renderer may ask of the file being written: the mesh, safe axis names, helpers to carry along."""

    mesh: Mesh
    axis_names: Mapping[str, str]
    helpers: set[str] = field(default_factory=set)

    def call(self, helper: str, *args: str) -> str:
        """Call a helper of the prelude and remember that the file needs it."""
        self.helpers.add(helper)
        return f"{helper}({', '.join(args)})"

    def axes(self, axes: Attr) -> tuple[str, ...]:
        """Axes of an attribute under their names in the emitted file."""
        return tuple(self.axis_names[str(a)] for a in cast("tuple[str, ...]", axes))


Renderer = Callable[[Context, Op, Sequence[Code]], Code]


def ints(attr: Attr) -> tuple[int, ...]:
    """An attribute that holds integers."""
    return cast("tuple[int, ...]", attr)


def full(code: Code, type_: TensorType) -> Code:
    """The code of an array of exactly the type's shape and dtype."""
    if code.is_literal:
        if not type_.shape:
            return strong(code)
        return code_of(_filled(code, type_), type_)
    if code.shape == type_.shape:
        return code
    return code_of(f"jnp.broadcast_to({code.text}, {tuple_text(type_.shape)})", type_)


def _filled(code: Code, type_: TensorType) -> str:
    shape, dtype = tuple_text(type_.shape), jnp_dtype(type_.dtype)
    if code.text in ("0", "0.0", "False"):
        return f"jnp.zeros({shape}, {dtype})"
    if code.text in ("1", "1.0", "True"):
        return f"jnp.ones({shape}, {dtype})"
    return f"jnp.full({shape}, {code.text}, {dtype})"


def code_of(text: str, type_: TensorType, bind: int = ATOM) -> Code:
    """Code whose value has exactly the given type."""
    return Code(text, type_.shape, type_.dtype, bind)


def _fulls(op: Op, operands: Sequence[Code]) -> list[Code]:
    return [full(c, v.type) for c, v in zip(operands, op.operands, strict=True)]


def _joint(operands: Sequence[Code]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(c.shape for c in operands))


# Element-wise ops keep thin operands thin.


def _unary(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        x = strong(operands[0])
        return Code(f"{name}({x.text})", x.shape, op.result.dtype)

    return render


def _in_f32(name: str) -> Renderer:
    """A function that XLA computes badly in 16 bits: there it is computed in f32 and rounded once."""

    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        x, dtype = strong(operands[0]), op.result.dtype
        text = f"{name}({x.text})"
        if dtype.itemsize == 2:
            text = f"{name}({x.atom}.astype(jnp.float32)).astype({jnp_dtype(dtype)})"
        return Code(text, x.shape, dtype)

    return render


def _prefix(sign: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        x = strong(operands[0])
        return Code(sign + x.at(POWER), x.shape, op.result.dtype, UNARY)

    return render


def _one_strong(operands: Sequence[Code]) -> list[Code]:
    if all(c.is_literal for c in operands):
        return [strong(operands[0]), *operands[1:]]
    return list(operands)


def _infix(sign: str, bind: int) -> Renderer:
    """A left-associative operator; comparisons do not associate at all, a power needs an atom on its left."""
    left = bind + 1 if bind in (COMPARE, POWER) else bind

    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        x, y = _one_strong(operands)
        right = UNARY if bind == POWER else bind + 1
        return Code(f"{x.at(left)} {sign} {y.at(right)}", _joint((x, y)), op.result.dtype, bind)

    return render


def _call(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        codes = _one_strong(operands)
        return Code(f"{name}({', '.join(c.text for c in codes)})", _joint(codes), op.result.dtype)

    return render


def _strict_call(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        return code_of(f"{name}({', '.join(c.text for c in _fulls(op, operands))})", op.result.type)

    return render


def _select(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    pred, *cases = operands
    pred, cases = strong(pred), _one_strong(cases)
    text = f"jnp.where({pred.text}, {cases[0].text}, {cases[1].text})"
    return Code(text, _joint((pred, *cases)), op.result.dtype)


def _cast(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    x = strong(operands[0])
    return Code(f"{x.atom}.astype({jnp_dtype(op.result.dtype)})", x.shape, op.result.dtype)


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
    codes = _fulls(op, operands)
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
        (x,) = _fulls(op, operands)
        type_ = op.operands[0].type
        dtype = f", dtype={jnp_dtype(type_.dtype)}" if widens and type_.dtype.is_integer else ""
        return code_of(f"{name}({x.text}{axes_arg(ints(op.attrs['axes']), type_.rank)}{dtype})", op.result.type)

    return render


def _arg_reduction(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        (x,) = _fulls(op, operands)
        return code_of(f"{name}({x.text}, axis={op.attrs['axis']}, index_dtype=jnp.int32)", op.result.type)

    return render


def _scan(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = _fulls(op, operands)
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
    (x,) = _fulls(op, operands)
    return code_of(f"{x.atom}.reshape({_args(op.result.shape)})", op.result.type)


def _args(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if sizes else "()"


def _transpose(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = _fulls(op, operands)
    perm = ints(op.attrs["perm"])
    text = f"{x.atom}.T" if perm == (1, 0) else f"{x.atom}.transpose({_args(perm)})"
    return code_of(text, op.result.type)


def _concat(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    parts = ", ".join(c.text for c in _fulls(op, operands))
    return code_of(f"jnp.concatenate([{parts}], axis={op.attrs['axis']})", op.result.type)


def _slice(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = _fulls(op, operands)
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
    (x,) = _fulls(op, operands)
    value = literal(cast("int | float | bool", op.attrs["value"]), op.result.dtype)
    widths = tuple_text(tuple_text(w) for w in zip(ints(op.attrs["low"]), ints(op.attrs["high"]), strict=True))
    fill = "" if value.text in ("0", "0.0", "False") else f", constant_values={value.text}"
    return code_of(f"jnp.pad({x.text}, {widths}{fill})", op.result.type)


def _reverse(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    (x,) = _fulls(op, operands)
    return code_of(f"jnp.flip({x.text}{axes_arg(ints(op.attrs['axes']), op.result.type.rank)})", op.result.type)


def _take(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    x, indices = _fulls(op, operands)
    return code_of(f"jnp.take({x.text}, {indices.text}, axis={op.attrs['axis']})", op.result.type)


# Random numbers.


def _uniform(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    shape = tuple_text(op.result.shape)
    return code_of(context.call("uniform", operands[0].text, shape, shape), op.result.type)


def _fold_in(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    key, data = operands[0], strong(operands[1])
    return code_of(context.call("fold_in", key.text, data.text), op.result.type)


TABLE: dict[str, Renderer] = {
    "constant": _constant,
    "iota": _iota,
    "neg": _prefix("-"),
    "not": _prefix("~"),
    "abs": _unary("jnp.abs"),
    "sign": _unary("jnp.sign"),
    "stop_gradient": _unary("lax.stop_gradient"),
    "exp": _unary("jnp.exp"),
    "expm1": _unary("jnp.expm1"),
    "log": _unary("jnp.log"),
    "log1p": _unary("jnp.log1p"),
    "sqrt": _unary("jnp.sqrt"),
    "rsqrt": _unary("lax.rsqrt"),
    "tanh": _unary("jnp.tanh"),
    "sin": _unary("jnp.sin"),
    "cos": _unary("jnp.cos"),
    "logistic": _unary("lax.logistic"),
    "tan": _unary("jnp.tan"),
    "asin": _unary("jnp.arcsin"),
    "acos": _unary("jnp.arccos"),
    "atan": _unary("jnp.arctan"),
    "sinh": _unary("jnp.sinh"),
    "cosh": _unary("jnp.cosh"),
    "asinh": _unary("jnp.arcsinh"),
    "acosh": _unary("jnp.arccosh"),
    "atanh": _unary("jnp.arctanh"),
    "exp2": _in_f32("jnp.exp2"),
    "log2": _unary("jnp.log2"),
    "log10": _unary("jnp.log10"),
    "cbrt": _unary("jnp.cbrt"),
    "erf": _unary("lax.erf"),
    "erfc": _unary("lax.erfc"),
    "erf_inv": _unary("lax.erf_inv"),
    "lgamma": _unary("lax.lgamma"),
    "digamma": _unary("lax.digamma"),
    "population_count": _unary("lax.population_count"),
    "clz": _unary("lax.clz"),
    "floor": _unary("jnp.floor"),
    "ceil": _unary("jnp.ceil"),
    "round": _unary("jnp.round"),
    "trunc": _unary("jnp.trunc"),
    "is_finite": _unary("jnp.isfinite"),
    "is_nan": _unary("jnp.isnan"),
    "add": _infix("+", SUM),
    "sub": _infix("-", SUM),
    "mul": _infix("*", PRODUCT),
    "div": _infix("/", PRODUCT),
    "floor_div": _infix("//", PRODUCT),
    "mod": _infix("%", PRODUCT),
    "pow": _infix("**", POWER),
    "max": _call("jnp.maximum"),
    "min": _call("jnp.minimum"),
    "fmax": _call("jnp.fmax"),
    "fmin": _call("jnp.fmin"),
    "atan2": _call("jnp.arctan2"),
    "hypot": _call("jnp.hypot"),
    "logaddexp": _call("jnp.logaddexp"),
    "rem": _strict_call("lax.rem"),
    "shift_left": _strict_call("lax.shift_left"),
    "shift_right_logical": _strict_call("lax.shift_right_logical"),
    "shift_right_arithmetic": _strict_call("lax.shift_right_arithmetic"),
    "and": _infix("&", AND),
    "or": _infix("|", OR),
    "xor": _infix("^", XOR),
    "eq": _infix("==", COMPARE),
    "ne": _infix("!=", COMPARE),
    "lt": _infix("<", COMPARE),
    "le": _infix("<=", COMPARE),
    "gt": _infix(">", COMPARE),
    "ge": _infix(">=", COMPARE),
    "select": _select,
    "cast": _cast,
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
