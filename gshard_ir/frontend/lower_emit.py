"""Emit IR for one def: constants, broadcasting, reshapes, and op complaints turned into diagnostics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gshard_ir.builder import Builder
from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend.lower_values import Item, leaves, text_of
from gshard_ir.ir import Attr, Op, Region, Value
from gshard_ir.opdef import OpError
from gshard_ir.source import Span
from gshard_ir.types import BOOL, F32, I32, DType

MAX_DIM = 2**31 - 1
"""Most rows of a dim: positions are 32-bit."""
MAX_ELEMENTS = 2**53
MAX_RANK = 24
FREE = frozenset({"constant", "iota", "broadcast", "reshape"})
"""Ops that the front end adds by itself; unused ones are dropped."""


def show(shape: Sequence[int]) -> str:
    """Write a shape as ``[2,3]``, a size of many digits as ``10**298``."""
    return f"[{','.join(str(n) if abs(n) < 10**20 else f'about 10**{len(str(abs(n))) - 1}' for n in shape)}]"


def check_shape(shape: Sequence[int], span: Span | None) -> tuple[int, ...]:
    """Refuse sizes that no device could count."""
    if len(shape) > MAX_RANK:
        raise fail(f"{len(shape)} dims: a tensor has at most {MAX_RANK}", span)
    for d, n in enumerate(shape):
        if n < 0:
            raise fail(f"dim {d} of {show(shape)} is negative", span)
        if n > MAX_DIM:
            raise fail(f"dim {d} of {show(shape)} has more than {MAX_DIM:,} rows", span)
    if math.prod(shape) > MAX_ELEMENTS:
        raise fail(f"{show(shape)} has more than 2**53 elements", span)
    return tuple(shape)


class OutOfBudgetError(GShardError):
    """The program grows too much: lowering stops at once."""


class Budget:
    """Work left for one program: it stops unrolled loops and families of defs that would grow without end."""

    def __init__(self, steps: int = 50_000) -> None:
        self.limit = self.left = steps

    def spend(self, span: Span | None, steps: int = 1) -> None:
        """Use up some steps (ops or statements); raise :class:`OutOfBudgetError` when none are left."""
        self.left -= steps
        if self.left < 0:
            message = f"the program grows past {self.limit:,} operations and statements"
            edit = "unroll fewer steps, or call fewer different instances of a def"
            raise OutOfBudgetError(Diagnostic(message, span, suggestion=edit))


class Emitter:
    """Adds ops of one def. ``owner`` is the def's name, which every span carries."""

    def __init__(self, owner: str, budget: Budget) -> None:
        self.owner = owner
        self.budget = budget
        self.builder = Builder()
        self.hints: dict[Value, str] = {}
        self.locals: dict[str, Item] = {}
        self._kept: dict[Value, tuple[Value, tuple[int, ...]]] = {}

    def in_scope(self) -> Iterator[tuple[str, Value]]:
        """Yield the tensors that the def can name at this point, dotted names included."""
        for name, item in self.locals.items():
            yield from leaves(item, name)

    def at(self, span: Span) -> Span:
        """Return ``span`` as a position in this def."""
        return span if span.callee else replace(span, callee=self.owner)

    def op(self, name: str, *operands: Value, span: Span, where: Sequence[Span] = (), **attrs: Attr) -> Value:
        """Add an op with one result. ``where`` gives the spans of the operands, for complaints about one of them."""
        self.budget.spend(span)
        try:
            (value,) = self.builder.add(name, operands, span=self.at(span), types=None, regions=(), hint="", **attrs)
        except OpError as error:
            raise self.complaint(error, span, where) from None
        check_shape(value.shape, span)
        return value

    def complaint(self, error: OpError, span: Span, where: Sequence[Span]) -> GShardError:
        """Turn an op's complaint into a diagnostic at the operand at fault."""
        suggestion = error.suggestion
        if error.operand is not None and error.operand < len(where):
            span = where[error.operand]
            if suggestion and suggestion.startswith("cast operand "):
                suggestion = f"cast({text_of(span)}, {suggestion.split()[-1]})"
        return fail(error.message, span, *error.notes, suggestion=suggestion)

    def constant(self, value: float, dtype: DType, shape: Sequence[int], span: Span) -> Value:
        """Add a tensor filled with one number, which must fit the element type."""
        if dtype.is_float and not isinstance(value, bool):
            value = float(value)
        elif dtype != BOOL and isinstance(value, float):
            raise fail(
                f"the float {value} does not adapt to {dtype}",
                span,
                "a float literal takes a float element type only",
                suggestion=f"{int(value)}" if math.isfinite(value) else f"cast the {dtype} tensor to f32",
            )
        elif (dtype == BOOL) != isinstance(value, bool):
            raise fail(
                f"{value} does not adapt to {dtype}", span, suggestion="True or False" if dtype == BOOL else "1 or 0"
            )
        return self.op("constant", span=span, value=value, dtype=dtype, shape=tuple(shape))

    def literal(self, value: float, span: Span, shape: Sequence[int] = ()) -> Value:
        """Add a constant of the type that a literal has by itself: bool, i32 or f32."""
        dtype = BOOL if isinstance(value, bool) else I32 if isinstance(value, int) else F32
        return self.constant(value, dtype, shape, span)

    def cast(self, x: Value, dtype: DType, span: Span) -> Value:
        """Change the element type; nothing to do when it is that type already."""
        return x if x.dtype == dtype else self.op("cast", x, span=span, where=(span,), dtype=dtype)

    def reshape(self, x: Value, shape: Sequence[int], span: Span) -> Value:
        """Change the shape; nothing to do when it is that shape already."""
        return x if x.shape == tuple(shape) else self.op("reshape", x, span=span, where=(span,), shape=tuple(shape))

    def insert_dims(self, x: Value, kept: Sequence[int], rank: int, span: Span) -> Value:
        """Give ``x`` the rank ``rank``: its dims become dims ``kept``, the others have size 1."""
        if len(kept) == rank:
            return x
        base, inner = self.bare(x)
        shape = [1] * rank
        for d, n in zip(kept, x.shape, strict=True):
            shape[d] = n
        value = self.reshape(base, shape, span)
        self._kept[value] = (base, tuple(kept[d] for d in inner))
        return value

    def bare(self, x: Value) -> tuple[Value, tuple[int, ...]]:
        """Return what ``x`` was before size-1 dims were inserted, and which dims of ``x`` its dims became."""
        return self._kept.get(x, (x, tuple(range(x.type.rank))))

    def broadcast(self, x: Value, shape: Sequence[int], span: Span) -> Value:
        """Repeat ``x`` to ``shape`` by numpy's rules, which the caller has checked."""
        if x.shape == tuple(shape):
            return x
        base, dims = self.bare(x)
        shift = len(shape) - x.type.rank
        stretched = [d for d in range(base.type.rank) if base.shape[d] == 1 and shape[dims[d] + shift] != 1]
        if stretched:
            keep = [d for d in range(base.type.rank) if d not in stretched]
            dims = tuple(dims[d] for d in keep)
            base = self.reshape(base, [base.shape[d] for d in keep], span)
        return self.op(
            "broadcast", base, span=span, where=(span,), shape=tuple(shape), dims=tuple(d + shift for d in dims)
        )

    def name(self, value: Value, hint: str) -> None:
        """Remember the name that a reader would expect for a value that has none yet."""
        if not value.hint and value not in self.hints:
            self.hints[value] = hint

    def close(self, results: Sequence[Value]) -> Region:
        """Return the def's body: named values, without unused constants, broadcasts and reshapes."""
        used: set[Value] = set(results)
        kept: list[Op] = []
        for op in reversed(self.builder.ops):
            if op.name in FREE and op.result not in used and op.result not in self.hints:
                continue
            used.update(op.operands)
            kept.append(op)
        new: dict[Value, Value] = {v: replace(v, hint=hint) for v, hint in self.hints.items()}
        ops = tuple(
            replace(
                op,
                operands=tuple(new.get(v, v) for v in op.operands),
                results=tuple(new.get(v, v) for v in op.results),
            )
            for op in reversed(kept)
        )
        return Region(tuple(self.builder.params), ops, tuple(new.get(v, v) for v in results))


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the common shape by numpy's rules, or None when there is none."""
    rank = max((len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for d, n in enumerate(shape, rank - len(shape)):
            if n != 1 and result[d] not in (1, n):
                return None
            if n != 1:
                result[d] = n
    return tuple(result)
