"""The operations of the language: a table of signatures, and what an implementation sees of a call.

Names, argument order and defaults are those of `jax.numpy`, `jax.lax`, `jax.nn` and `jax.random`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gshard_ir.errors import GShardError, fail
from gshard_ir.frontend.lower_arguments import bind_arguments
from gshard_ir.frontend.lower_arith import Term
from gshard_ir.frontend.lower_consts import whole
from gshard_ir.frontend.lower_emit import Emitter, check_shape
from gshard_ir.frontend.lower_values import Item, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.source import Span
from gshard_ir.types import DTYPES, DType


@dataclass(frozen=True)
class Builtin:
    """One operation: its name, parameters with defaults (a missing key is required), and meaning.

    The first ``positional`` parameters may be given without a name. ``rest`` is the name of a parameter
    that takes any number of positional arguments.
    """

    name: str
    signature: str
    params: tuple[str, ...]
    positional: int
    defaults: Mapping[str, Item]
    rest: str | None
    lower: Callable[[Site], Item]


@dataclass(frozen=True)
class Site:
    """One call of a builtin: arguments by parameter name, spans for complaints, where to emit."""

    emit: Emitter
    name: str
    span: Span
    args: Mapping[str, Item]
    spans: Mapping[str, Span]
    rest: tuple[Term, ...] = ()

    def fail(self, message: str, at: str | None = None, *notes: str, suggestion: str | None = None) -> GShardError:
        """Build a complaint at one argument, or at the whole call."""
        return fail(f"{self.name}: {message}", self.where(at), *notes, suggestion=suggestion)

    def where(self, arg: str | None) -> Span:
        return self.spans.get(arg, self.span) if arg else self.span

    def term(self, arg: str) -> Term:
        return Term(self.args[arg], self.where(arg))

    def op(self, name: str, *operands: Value, at: Sequence[str] = (), **attrs: object) -> Value:
        """Emit an op at the span of the call; ``at`` names the arguments that its operands come from."""
        where = tuple(self.where(a) for a in at)
        return self.emit.op(name, *operands, span=self.span, where=where, **attrs)  # type: ignore[arg-type]

    @property
    def first(self) -> str:
        """Name of the first parameter."""
        return next(iter(self.args))

    def tensor(self, arg: str = "") -> Value:
        """Return an argument that must be a tensor, by default the first."""
        arg = arg or self.first
        item = self.args[arg]
        if not isinstance(item, Value):
            edit = "zeros(shape), or full(shape, value) for a tensor" if isinstance(item, int | float) else None
            raise self.fail(f"{arg} must be a tensor, found {describe(item)}", arg, suggestion=edit)
        return item

    def numeric(self, arg: str = "") -> Value:
        """Return an argument that must be a tensor of numbers, by default the first."""
        arg = arg or self.first
        x = self.tensor(arg)
        if not x.dtype.is_numeric:
            edit = f"cast({text_of(self.where(arg))}, i32)" if x.dtype.name == "bool" else None
            raise self.fail(f"{arg} must hold numbers, found {x.type}", arg, suggestion=edit)
        return x

    def integer(self, arg: str, low: int | None = None) -> int:
        return whole(self.args[arg], f"{self.name}: {arg}", self.where(arg), low=low)

    def boolean(self, arg: str) -> bool:
        item = self.args[arg]
        if not isinstance(item, bool):
            edit = str(bool(item)) if isinstance(item, int | float) else None
            raise self.fail(f"{arg} must be True or False, found {describe(item)}", arg, suggestion=edit)
        return item

    def dtype(self, arg: str = "dtype") -> DType:
        item = self.args[arg]
        if not isinstance(item, DType) or item.name == "key":
            raise self.fail(f"{arg} must be an element type, found {describe(item)}", arg, suggestion="f32")
        return item

    def integers(self, arg: str) -> tuple[int, ...]:
        """Return an argument that is an integer or a list of them."""
        item = self.args[arg]
        parts = item if isinstance(item, tuple) else (item,)
        return tuple(whole(p, f"{self.name}: {arg}", self.where(arg)) for p in parts)

    def shape(self, arg: str = "shape") -> tuple[int, ...]:
        return check_shape(self.integers(arg), self.where(arg))

    def axis(self, rank: int, arg: str = "axis", of: str = "") -> int:
        """Return a dim number, counted from the end when negative."""
        return self.dim(self.integer(arg), rank, arg, of)

    def dim(self, axis: int, rank: int, arg: str, of: str = "") -> int:
        if not -rank <= axis < rank:
            raise self.fail(
                f"there is no dim {axis}{of and ' in ' + of}",
                arg,
                f"dims are 0 to {rank - 1}" if rank else "a scalar has no dims",
                suggestion=f"{rank - 1}" if rank and not isinstance(self.args[arg], tuple) else None,
            )
        return axis % rank

    def axes(self, x: Value, arg: str = "axis") -> tuple[int, ...]:
        """Return sorted dim numbers; ``None`` is all dims."""
        if self.args[arg] is None:
            return tuple(range(x.type.rank))
        found = [self.dim(a, x.type.rank, arg, str(x.type)) for a in self.integers(arg)]
        if len(set(found)) < len(found):
            raise self.fail(f"{arg} names a dim twice", arg, suggestion=f"[{', '.join(map(str, sorted(set(found))))}]")
        return tuple(sorted(found))


BUILTINS: dict[str, Builtin] = {}

_LITERALS: dict[str, Item] = {"None": None, "True": True, "False": False}


def _literal(text: str) -> Item:
    if text in _LITERALS:
        return _LITERALS[text]
    if text in DTYPES:
        return DTYPES[text]
    if text.startswith(('"', "[")):
        return text.strip('"') if text[0] == '"' else ()
    return float(text) if "." in text else int(text)


def builtin(*signatures: str) -> Callable[[Callable[[Site], Item]], Callable[[Site], Item]]:
    """Register an implementation under signatures such as ``sum(x, axis=None, keepdims=False)``."""

    def register(function: Callable[[Site], Item]) -> Callable[[Site], Item]:
        for signature in signatures:
            name, inner = signature[:-1].split("(", 1)
            parts = [p for p in inner.split(", ") if p]
            rest = next((p[1:] for p in parts if p.startswith("*") and p != "*"), None)
            params = tuple(p.split("=")[0] for p in parts if not p.startswith("*"))
            positional = parts.index("*") if "*" in parts else len(params)
            defaults = {p.split("=")[0]: _literal(p.split("=")[1]) for p in parts if "=" in p}
            BUILTINS[name] = Builtin(name, signature, params, positional, defaults, rest, function)
        return function

    return register


def apply(
    emit: Emitter, op: Builtin, positional: Sequence[Term], keywords: Mapping[str, tuple[Term, Span]], span: Span
) -> Item:
    """Run a builtin on evaluated arguments."""
    first, rest = positional, tuple[Term, ...]()
    if op.rest:
        n = sum(p not in keywords and p not in op.defaults for p in op.params)
        first, rest = positional[:n], tuple(positional[n:])
    found = bind_arguments(op.name, op.params, [(t, t.span) for t in first], keywords, op.positional, op.signature)
    for param in op.params:
        if param not in found and param not in op.defaults:
            raise fail(f"{op.name} needs {param}", span, op.signature)
    args = {p: found[p][0].item if p in found else op.defaults[p] for p in op.params}
    return op.lower(Site(emit, op.name, span, args, {p: t.span for p, (t, _) in found.items()}, rest))


@lru_cache(maxsize=1)
def table() -> Mapping[str, Builtin]:
    """Return all builtins by name."""
    from gshard_ir.frontend import (  # noqa: F401  (each module registers its operations)
        lower_einsum,
        lower_elementwise,
        lower_masks,
        lower_reductions,
        lower_shapes,
        lower_sources,
    )

    return BUILTINS


NUMBERS: Mapping[str, float] = {"inf": math.inf, "nan": math.nan, "pi": math.pi}
"""Constants of `jax.numpy`."""

PRELUDE = (
    "softmax", "log_softmax", "logsumexp", "gelu", "silu", "swish", "softplus", "elu", "leaky_relu", "log_sigmoid",
    "relu6", "celu", "selu", "mish", "glu", "hard_tanh", "hard_sigmoid", "hard_silu", "hard_swish", "soft_sign",
    "squareplus",
)  # fmt: skip
"""Defs of ``std.nn`` that need no import, as they are functions of `jax.nn`."""

NOT_YET: Mapping[str, str | None] = {
    "grad": None, "value_and_grad": None,
    "normal": "uniform(key, shape)", "bernoulli": "uniform(key, shape) < p", "categorical": "uniform(key, shape)",
    "gumbel": "-log(-log(uniform(key, shape)))", "split_key": "fold_in(key, i)", "randint": "uniform(key, shape)",
    "range": "for i in unroll(n)", "cond": "where(condition, a, b)", "scan": "for i in unroll(n)",
    "while_loop": "for i in unroll(n)", "collect": None,
    "conv": None, "top_k": "argmax, then where(one_hot(..), -inf, x) and argmax again", "sort": None, "argsort": None,
    "scatter_add": "einsum with one_hot(indices, n)", "scatter_set": "where(mask, new, x)", "scatter_mul": None,
    "scatter_min": None, "scatter_max": None, "dynamic_slice": "take(x, indices, axis)",
    "dynamic_update_slice": "where(mask, new, x)",
    "all_reduce": "the compiler places collectives", "all_gather": "the compiler places collectives",
    "reduce_scatter": "the compiler places collectives", "all_to_all": "split(x, dim, axis) asks for one",
    "permute": "the compiler places collectives", "axis_index": None,
}  # fmt: skip
"""Names of operations that the language does not have yet, and what to use instead."""
