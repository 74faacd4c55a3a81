"""Groups of ops for which jax has one well-known name: same value, bit for bit, fewer words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gshard_ir.backends.jax_ops import ints
from gshard_ir.backends.py_code import Code, jnp_dtype
from gshard_ir.ir import Op, Value
from gshard_ir.types import TensorType

Shown = Callable[[Value], "Op | None"]
"""The op whose code is written in place of a value, None for a name."""

Idiom = Callable[[Op, Sequence[Code], Shown], "Code | None"]


def _relu(op: Op, operands: Sequence[Code], _: Shown) -> Code | None:
    """``max(x, 0)``."""
    x, zero = operands
    if zero.text not in ("0.0", "0") or not zero.is_literal or x.is_literal:
        return None
    return Code(f"jax.nn.relu({x.text})", x.shape, op.result.dtype)


def _one_hot(op: Op, operands: Sequence[Code], shown: Shown) -> Code | None:
    """``cast(x[..., None] == iota)`` along the last dim."""
    test = shown(op.operands[0])
    if test is None or test.name != "eq":
        return None
    wide, count = (shown(v) for v in test.operands)
    if wide is None or count is None or (wide.name, count.name) != ("broadcast", "iota"):
        return None
    rank = op.result.type.rank
    if count.attrs["axis"] != rank - 1 or ints(wide.attrs["dims"]) != tuple(range(rank - 1)):
        return None
    index, _, tail = operands[0].text.partition("[..., None] == ")
    if not tail.startswith(("jnp.arange(", "lax.iota(")) or not index.isidentifier():
        return None
    size = op.result.shape[-1]
    text = f"jax.nn.one_hot({index}, {size}, dtype={jnp_dtype(op.result.dtype)})"
    return Code(text, (*wide.operands[0].shape, size), op.result.dtype)


IDIOMS: Mapping[str, Idiom] = {"max": _relu, "cast": _one_hot}


def keep_dims(op: Op, code: Code, type_: TensorType, dims: Sequence[int]) -> Code | None:
    """A reduction whose reduced dims are put back right away: ``keepdims=True``; None when they are not."""
    if not op.name.startswith("reduce_") or not code.text.endswith(")"):
        return None
    before = op.operands[0].type
    kept = [d for d in range(before.rank) if d not in ints(op.attrs["axes"])]
    if list(dims) != kept or before.rank != type_.rank:
        return None
    shape = tuple(n if d in kept else 1 for d, n in enumerate(before.shape))
    return Code(f"{code.text[:-1]}, keepdims=True)", shape, code.dtype)
