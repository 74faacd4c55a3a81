"""Subscripts with numpy's basic indexing: integers, slices, None and ``...``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gshard_ir.errors import fail
from gshard_ir.frontend.lower_consts import whole
from gshard_ir.frontend.lower_emit import Emitter
from gshard_ir.frontend.lower_values import Item, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.source import Span
from gshard_ir.types import BOOL


@dataclass(frozen=True)
class Cut:
    """``start:stop:step`` with parts evaluated; None where nothing was written."""

    start: Item
    stop: Item
    step: Item


@dataclass(frozen=True)
class Rest:
    """``...``: all dims that no other entry takes."""


@dataclass(frozen=True)
class Entry:
    """One entry of a subscript: an integer, a :class:`Cut`, None (a new dim) or :class:`Rest`."""

    item: Item | Cut | Rest
    span: Span


@dataclass
class _Plan:
    """What a subscript does to each dim, and the dims of the result in order (None is a new one)."""

    starts: list[int] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    flipped: list[int] = field(default_factory=list)
    result: list[int | None] = field(default_factory=list)

    def whole(self, n: int) -> None:
        self.add(len(self.starts), 0, n, 1)

    def add(self, dim: int | None, start: int, limit: int, stride: int) -> None:
        if dim is not None:
            self.result.append(dim)
        self.starts.append(start)
        self.limits.append(limit)
        self.strides.append(stride)


def subscript(emit: Emitter, x: Value, text: str, entries: Sequence[Entry], span: Span) -> Value:
    """Index a tensor; ``text`` is its source. Raises a diagnostic for an index out of range or of a wrong kind."""
    used = sum(e.item is not None and not isinstance(e.item, Rest) for e in entries)
    if used > x.type.rank:
        edit = ", ".join(text_of(e.span) for e in entries[: x.type.rank])
        raise fail(
            f"{used} indices for the {x.type.rank} dims of {text}, which is {x.type}",
            span,
            suggestion=f"{text}[{edit}]" if edit else text,
        )
    rests = [e for e in entries if isinstance(e.item, Rest)]
    if len(rests) > 1:
        raise fail("... stands once in a subscript", rests[1].span, suggestion=":")
    plan, left = _Plan(), x.type.rank - used
    for entry in entries:
        if isinstance(entry.item, Rest):
            for _ in range(left):
                plan.whole(x.shape[len(plan.starts)])
            left = 0
        elif entry.item is None:
            plan.result.append(None)
        else:
            _one(plan, x, text, entry, span if len(entries) == 1 else entry.span)
    for _ in range(left):
        plan.whole(x.shape[len(plan.starts)])
    return _emit(emit, x, plan, span)


def _one(plan: _Plan, x: Value, text: str, entry: Entry, at: Span) -> None:
    """Add one entry; ``at`` is where to point for what a subscript cannot do."""
    dim = len(plan.starts)
    n, item = x.shape[dim], entry.item
    if isinstance(item, Cut):
        _slice(plan, dim, n, item, entry.span)
        return
    if isinstance(item, Value):
        given = text_of(entry.span)
        edit = f"where({given}, {text}, 0)" if item.dtype == BOOL else f"take({text}, {given}, axis={dim})"
        raise fail(f"an index must be known at compile time, found {describe(item)}", at, suggestion=edit)
    assert not isinstance(item, Rest)
    index = whole(item, "an index", entry.span)
    if not -n <= index < n:
        raise fail(
            f"index {index} is out of range for dim {dim} of {text}, which is {x.type}",
            entry.span,
            f"indices are {-n} to {n - 1}" if n else "the dim is empty",
            suggestion=f"{n - 1 if index > 0 else -n}" if n else None,
        )
    plan.add(None, index % n, index % n + 1, 1)


def _slice(plan: _Plan, dim: int, n: int, cut: Cut, span: Span) -> None:
    parts = [p if p is None else whole(p, "a slice bound", span) for p in (cut.start, cut.stop, cut.step)]
    if parts[2] == 0:
        raise fail("a slice step must not be 0", span, suggestion="a step of 1, or -1 to count down")
    start, stop, step = slice(*parts).indices(n)
    rows = len(range(start, stop, step))
    if rows == 0:
        plan.add(dim, 0, 0, 1)
    elif step > 0:
        plan.add(dim, start, stop, step)
    else:
        plan.add(dim, start + (rows - 1) * step, start + 1, -step)
        if rows > 1:
            plan.flipped.append(dim)


def _emit(emit: Emitter, x: Value, plan: _Plan, span: Span) -> Value:
    wide = x
    bounds = (plan.starts, plan.limits, plan.strides)
    if any(a or b != n or c != 1 for a, b, c, n in zip(*bounds, x.shape, strict=True)):
        wide = emit.op(
            "slice", x, span=span, where=(span,), starts=tuple(plan.starts), limits=tuple(plan.limits),
            strides=tuple(plan.strides),
        )  # fmt: skip
    if plan.flipped:
        wide = emit.op("reverse", wide, span=span, axes=tuple(plan.flipped))
    kept = [d for d in plan.result if d is not None]
    if len(kept) < x.type.rank:
        wide = emit.reshape(wide, [wide.shape[d] for d in kept], span)
    return emit.insert_dims(wide, [i for i, d in enumerate(plan.result) if d is not None], len(plan.result), span)


def index_tuple(items: tuple[Item, ...], entry: Entry, text: str) -> Item:
    """Index a tuple by a compile-time integer or slice."""
    if isinstance(entry.item, Cut):
        parts = [entry.item.start, entry.item.stop, entry.item.step]
        bounds = [p if p is None else whole(p, "a slice bound", entry.span) for p in parts]
        if bounds[2] == 0:
            raise fail("a slice step must not be 0", entry.span, suggestion="a step of 1, or -1 to count down")
        return items[slice(*bounds)]
    item = entry.item
    if isinstance(item, Rest):
        raise fail(f"{text} is a tuple: it takes one integer or slice", entry.span)
    at = whole(item, "an index", entry.span)
    if not -len(items) <= at < len(items):
        edit = f"{len(items) - 1}" if items else None
        raise fail(f"index {at} is out of range: {text} has {len(items)} parts", entry.span, suggestion=edit)
    return items[at]
