"""How jax.numpy says the element-wise ops of the IR; thin operands stay thin."""

from __future__ import annotations

from collections.abc import Sequence

from gshard_ir.backends.jax_render import Context, Renderer, code_of, fulls, joint
from gshard_ir.backends.py_code import (
    AND,
    COMPARE,
    OR,
    POWER,
    PRODUCT,
    SUM,
    UNARY,
    XOR,
    Code,
    jnp_dtype,
    strong,
)
from gshard_ir.ir import Op


def unary(name: str) -> Renderer:
    """An op that is a call of one function on its operand."""

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
        return Code(f"{x.at(left)} {sign} {y.at(right)}", joint((x, y)), op.result.dtype, bind)

    return render


def _call(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        codes = _one_strong(operands)
        return Code(f"{name}({', '.join(c.text for c in codes)})", joint(codes), op.result.dtype)

    return render


def _strict_call(name: str) -> Renderer:
    def render(_: Context, op: Op, operands: Sequence[Code]) -> Code:
        return code_of(f"{name}({', '.join(c.text for c in fulls(op, operands))})", op.result.type)

    return render


def _select(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    pred, *cases = operands
    pred, cases = strong(pred), _one_strong(cases)
    text = f"jnp.where({pred.text}, {cases[0].text}, {cases[1].text})"
    return Code(text, joint((pred, *cases)), op.result.dtype)


def _cast(_: Context, op: Op, operands: Sequence[Code]) -> Code:
    x = strong(operands[0])
    return Code(f"{x.atom}.astype({jnp_dtype(op.result.dtype)})", x.shape, op.result.dtype)


ELEMENTWISE: dict[str, Renderer] = {
    "neg": _prefix("-"),
    "not": _prefix("~"),
    "abs": unary("jnp.abs"),
    "sign": unary("jnp.sign"),
    "stop_gradient": unary("lax.stop_gradient"),
    "exp": unary("jnp.exp"),
    "expm1": unary("jnp.expm1"),
    "log": unary("jnp.log"),
    "log1p": unary("jnp.log1p"),
    "sqrt": unary("jnp.sqrt"),
    "rsqrt": unary("lax.rsqrt"),
    "tanh": unary("jnp.tanh"),
    "sin": unary("jnp.sin"),
    "cos": unary("jnp.cos"),
    "logistic": unary("lax.logistic"),
    "tan": unary("jnp.tan"),
    "asin": unary("jnp.arcsin"),
    "acos": unary("jnp.arccos"),
    "atan": unary("jnp.arctan"),
    "sinh": unary("jnp.sinh"),
    "cosh": unary("jnp.cosh"),
    "asinh": unary("jnp.arcsinh"),
    "acosh": unary("jnp.arccosh"),
    "atanh": unary("jnp.arctanh"),
    "exp2": _in_f32("jnp.exp2"),
    "log2": unary("jnp.log2"),
    "log10": unary("jnp.log10"),
    "cbrt": unary("jnp.cbrt"),
    "erf": unary("lax.erf"),
    "erfc": unary("lax.erfc"),
    "erf_inv": unary("lax.erf_inv"),
    "lgamma": unary("lax.lgamma"),
    "digamma": unary("lax.digamma"),
    "population_count": unary("lax.population_count"),
    "clz": unary("lax.clz"),
    "floor": unary("jnp.floor"),
    "ceil": unary("jnp.ceil"),
    "round": unary("jnp.round"),
    "trunc": unary("jnp.trunc"),
    "is_finite": unary("jnp.isfinite"),
    "is_nan": unary("jnp.isnan"),
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
}
