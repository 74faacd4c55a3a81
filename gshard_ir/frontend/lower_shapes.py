"""Builtins that move elements by position: shapes, dims, concatenation, padding, look-up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gshard_ir.frontend.lower_arith import Term
from gshard_ir.frontend.lower_builtins import Site, builtin
from gshard_ir.frontend.lower_emit import broadcast_shape, check_shape, show
from gshard_ir.frontend.lower_values import Item, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.types import KEY

MAX_PARTS = 1_000
"""Most tensors that one operation puts together."""


@builtin("reshape(a, shape)")
def _reshape(s: Site) -> Item:
    x, shape = s.tensor(), list(s.integers("shape"))
    if shape.count(-1) > 1:
        raise s.fail(f"one size at most is -1, found {show(shape)}", "shape")
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        if rest == 0 or x.type.size % rest:
            raise s.fail(
                f"no size for -1 in {show(shape)}",
                "shape",
                f"{s.first} is {x.type} with {x.type.size} elements, {rest} does not divide them",
            )
        shape[shape.index(-1)] = x.type.size // rest
    if x.shape == tuple(shape):
        return x
    return s.op("reshape", x, at=(s.first,), shape=check_shape(shape, s.where("shape")))


@builtin("ravel(a)")
def _ravel(s: Site) -> Item:
    x = s.tensor()
    return s.emit.reshape(x, (x.type.size,), s.span)


def _permute(s: Site, x: Value, perm: Sequence[int]) -> Value:
    return x if list(perm) == list(range(x.type.rank)) else s.op("transpose", x, at=(s.first,), perm=tuple(perm))


@builtin("transpose(a, axes=None)")
def _transpose(s: Site) -> Item:
    x = s.tensor()
    if s.args["axes"] is None:
        return _permute(s, x, range(x.type.rank)[::-1])
    axes = [s.dim(a, x.type.rank, "axes", str(x.type)) for a in s.integers("axes")]
    if sorted(axes) != list(range(x.type.rank)):
        edit = f"[{', '.join(map(str, range(x.type.rank)[::-1]))}]"
        message = f"axes must name each of the {x.type.rank} dims of {x.type} once, found {show(axes)}"
        raise s.fail(message, "axes", suggestion=edit)
    return _permute(s, x, axes)


@builtin("swapaxes(a, axis1, axis2)")
def _swapaxes(s: Site) -> Item:
    x = s.tensor()
    a, b = s.axis(x.type.rank, "axis1", str(x.type)), s.axis(x.type.rank, "axis2", str(x.type))
    perm = list(range(x.type.rank))
    perm[a], perm[b] = b, a
    return _permute(s, x, perm)


@builtin("moveaxis(a, source, destination)")
def _moveaxis(s: Site) -> Item:
    x = s.tensor()
    source, target = s.axis(x.type.rank, "source", str(x.type)), s.axis(x.type.rank, "destination", str(x.type))
    perm = [d for d in range(x.type.rank) if d != source]
    return _permute(s, x, [*perm[:target], source, *perm[target:]])


@builtin("expand_dims(a, axis)")
def _expand_dims(s: Site) -> Item:
    x, axes = s.tensor(), s.integers("axis")
    rank = x.type.rank + len(axes)
    new = [s.dim(a, rank, "axis") for a in axes]
    if len(set(new)) < len(new):
        raise s.fail("axis names a dim twice", "axis")
    return s.emit.insert_dims(x, [d for d in range(rank) if d not in new], rank, s.span)


@builtin("squeeze(a, axis=None)")
def _squeeze(s: Site) -> Item:
    x = s.tensor()
    gone = tuple(d for d, n in enumerate(x.shape) if n == 1) if s.args["axis"] is None else s.axes(x)
    for d in gone:
        if x.shape[d] != 1:
            ones = [str(i) for i, n in enumerate(x.shape) if n == 1]
            edit = " or ".join(ones) or "a dim of size 1; index a dim to drop it otherwise"
            raise s.fail(f"dim {d} of {x.type} has size {x.shape[d]}, not 1", "axis", suggestion=edit)
    return s.emit.reshape(x, [n for d, n in enumerate(x.shape) if d not in gone], s.span)


@builtin("broadcast_to(array, shape)")
def _broadcast_to(s: Site) -> Item:
    shape, item = s.shape(), s.args[s.first]
    if isinstance(item, int | float):
        return s.emit.literal(item, s.where(s.first), shape)
    x = s.tensor()
    if x.dtype == KEY or broadcast_shape([x.shape, shape]) != shape:
        raise s.fail(f"{x.type} does not broadcast to {show(shape)}", s.first, "dims are matched from the last one")
    return s.emit.broadcast(x, shape, s.span)


def _parts(s: Site, arg: str) -> list[Term]:
    item = s.args[arg]
    if not isinstance(item, tuple) or not item:
        edit = f"[{text_of(s.where(arg))}]" if isinstance(item, Value) else "[a, b]"
        raise s.fail(f"{arg} must be a list of tensors, found {describe(item)}", arg, suggestion=edit)
    if len(item) > MAX_PARTS:
        raise s.fail(f"{len(item):,} tensors, at most {MAX_PARTS:,}", arg, suggestion="a tensor with one more dim")
    for part in item:
        if not isinstance(part, Value):
            raise s.fail(f"{arg} must be a list of tensors, it holds {describe(part)}", arg)
    return [Term(part, s.where(arg)) for part in item]


@builtin("concat(arrays, axis=0)", "concatenate(arrays, axis=0)")
def _concat(s: Site) -> Item:
    parts = [t.item for t in _parts(s, "arrays") if isinstance(t.item, Value)]
    rank = parts[0].type.rank
    axis = s.axis(rank, of=str(parts[0].type))
    for part in parts[1:]:
        if part.dtype != parts[0].dtype:
            edit = f"cast(.., {parts[0].dtype}) around the second"
            raise s.fail(f"element types differ: {parts[0].type} and {part.type}", "arrays", suggestion=edit)
    return parts[0] if len(parts) == 1 else s.op("concat", *parts, at=("arrays",) * len(parts), axis=axis)


@builtin("stack(arrays, axis=0)")
def _stack(s: Site) -> Item:
    parts = [t.item for t in _parts(s, "arrays") if isinstance(t.item, Value)]
    rank = parts[0].type.rank + 1
    axis = s.axis(rank)
    for part in parts[1:]:
        if part.type != parts[0].type:
            raise s.fail(f"types differ: {parts[0].type} and {part.type}", "arrays")
    kept = [d for d in range(rank) if d != axis]
    wide = [s.emit.insert_dims(p, kept, rank, s.span) for p in parts]
    return wide[0] if len(wide) == 1 else s.op("concat", *wide, at=("arrays",) * len(wide), axis=axis)


@builtin("array_split(ary, indices_or_sections, axis=0)", "unstack(x, *, axis=0)")
def _array_split(s: Site) -> Item:
    x = s.tensor()
    axis = s.axis(x.type.rank, of=str(x.type))
    n = x.shape[axis]
    if s.name == "unstack":
        parts = [_cut(s, x, axis, i, i + 1) for i in range(_part_count(s, n, None))]
        return tuple(s.emit.reshape(p, (*x.shape[:axis], *x.shape[axis + 1 :]), s.span) for p in parts)
    at = s.args["indices_or_sections"]
    if isinstance(at, tuple):
        stops = [i + n if i < 0 else i for i in s.integers("indices_or_sections")]
        edges = [min(max(i, 0), n) for i in (0, *stops, n)]
    else:
        count = _part_count(s, s.integer("indices_or_sections", low=1), "indices_or_sections")
        sizes = [n // count + (i < n % count) for i in range(count)]
        edges = [sum(sizes[:i]) for i in range(count + 1)]
    return tuple(_cut(s, x, axis, a, max(a, b)) for a, b in pairwise(edges))


def _part_count(s: Site, n: int, arg: str | None) -> int:
    if n > MAX_PARTS:
        raise s.fail(f"{n:,} tensors, at most {MAX_PARTS:,}", arg)
    return n


def _cut(s: Site, x: Value, axis: int, start: int, limit: int) -> Value:
    """Take rows ``start`` up to ``limit`` of one dim."""
    if (start, limit) == (0, x.shape[axis]):
        return x
    starts, limits = [0] * x.type.rank, list(x.shape)
    starts[axis], limits[axis] = start, limit
    ones = (1,) * x.type.rank
    return s.op("slice", x, at=(s.first,), starts=tuple(starts), limits=tuple(limits), strides=ones)


@builtin('pad(array, pad_width, mode="constant", *, constant_values=0)')
def _pad(s: Site) -> Item:
    x, value = s.tensor("array"), s.args["constant_values"]
    if s.args["mode"] != "constant":
        raise s.fail(f'mode must be "constant", found {describe(s.args["mode"])}', "mode", suggestion='"constant"')
    if not isinstance(value, int | float):
        raise s.fail(f"constant_values must be a compile-time number, found {describe(value)}", "constant_values")
    if (isinstance(value, float) and x.dtype.is_integer) or (isinstance(value, bool) and x.dtype.is_numeric):
        edit = f"{int(value)}" if math.isfinite(value) else None
        raise s.fail(f"{value} does not adapt to {x.dtype}", "constant_values", suggestion=edit)
    counts = _pad_counts(s, x)
    low, high = tuple(a for a, _ in counts), tuple(b for _, b in counts)
    if not any(low) and not any(high):
        return x
    fill = float(value) if x.dtype.is_float else bool(value) if not x.dtype.is_numeric else value
    return s.op("pad", x, at=("array",), low=low, high=high, value=fill)


def _pad_counts(s: Site, x: Value) -> list[tuple[int, int]]:
    """Read ``n``, ``(low, high)`` for all dims, or one pair per dim, as `numpy.pad` does."""
    item = s.args["pad_width"]
    rows: tuple[Item, ...] = item if isinstance(item, tuple) else (item, item)
    if not any(isinstance(r, tuple) for r in rows):
        rows = (rows,) * x.type.rank
    counts = []
    for row in rows:
        ends = row if isinstance(row, tuple) else (row, row)
        found = [n for n in ends if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
        if len(found) != 2 or len(ends) != 2:
            edit = ", ".join(["(0, 1)"] * x.type.rank)
            raise s.fail(
                "pad_width must give two counts, none negative, for each dim", "pad_width", suggestion=f"[{edit}]"
            )
        counts.append((found[0], found[1]))
    if len(counts) != x.type.rank:
        pairs = [*(str(pair) for pair in counts), *["(0, 0)"] * x.type.rank][: x.type.rank]
        given = f"{len(counts)} {'pair' if len(counts) == 1 else 'pairs'}"
        message = f"pad_width has {given} for the {x.type.rank} dims of {x.type}"
        raise s.fail(message, "pad_width", suggestion=f"[{', '.join(pairs)}]")
    return counts


@builtin("flip(m, axis=None)")
def _flip(s: Site) -> Item:
    x = s.tensor()
    axes = s.axes(x)
    return s.op("reverse", x, at=(s.first,), axes=axes) if axes else x


@builtin("roll(a, shift, axis=None)")
def _roll(s: Site) -> Item:
    x = s.tensor()
    if s.args["axis"] is None:
        flat = s.emit.reshape(x, (x.type.size,), s.span)
        return s.emit.reshape(_rolled(s, flat, s.integer("shift"), 0), x.shape, s.span)
    axes, shifts = s.integers("axis"), s.integers("shift")
    if len(shifts) == 1:
        shifts *= len(axes)
    if len(shifts) != len(axes):
        raise s.fail(f"{len(shifts)} shifts for {len(axes)} dims", "shift")
    for axis, shift in zip(axes, shifts, strict=True):
        x = _rolled(s, x, shift, s.dim(axis, x.type.rank, "axis", str(x.type)))
    return x


def _rolled(s: Site, x: Value, shift: int, axis: int) -> Value:
    n = x.shape[axis]
    cut = n - shift % n if n else 0
    if cut in (0, n):
        return x
    return s.op("concat", _cut(s, x, axis, cut, n), _cut(s, x, axis, 0, cut), axis=axis)


@builtin("repeat(a, repeats, axis=None)", "tile(A, reps)")
def _repeat(s: Site) -> Item:
    x = s.tensor()
    if s.name == "repeat":
        flat = s.args["axis"] is None
        x = s.emit.reshape(x, (x.type.size,), s.span) if flat else x
        axis = 0 if flat else s.axis(x.type.rank, of=str(x.type))
        return _repeated(s, x, axis + 1, axis, s.integer("repeats", low=0))
    reps = s.integers("reps")
    if len(reps) != x.type.rank or any(n < 0 for n in reps):
        raise s.fail(f"reps must give a count for each of the {x.type.rank} dims of {x.type}", "reps")
    for axis, n in enumerate(reps):
        x = _repeated(s, x, axis, axis, n)
    return x


def _repeated(s: Site, x: Value, at: int, axis: int, n: int) -> Value:
    """Insert a dim of ``n`` before dim ``at`` and merge it into ``axis``."""
    if n == 1:
        return x
    shape = (*x.shape[:at], n, *x.shape[at:])
    kept = [d for d in range(len(shape)) if d != at]
    wide = s.emit.broadcast(s.emit.insert_dims(x, kept, len(shape), s.span), shape, s.span)
    merged = check_shape((*x.shape[:axis], x.shape[axis] * n, *x.shape[axis + 1 :]), s.span)
    return s.emit.reshape(wide, merged, s.span)


@builtin("take(a, indices, axis=None)")
def _take(s: Site) -> Item:
    x, item = s.tensor(), s.args["indices"]
    if isinstance(item, int) and not isinstance(item, bool):
        indices = s.emit.literal(item, s.where("indices"))
    else:
        indices = s.tensor("indices")
    if not indices.dtype.is_integer:
        edit = f"cast({text_of(s.where('indices'))}, i32)"
        raise s.fail(f"indices must hold integers, found {indices.type}", "indices", suggestion=edit)
    if s.args["axis"] is None:
        return s.op("take", s.emit.reshape(x, (x.type.size,), s.span), indices, at=(s.first, "indices"), axis=0)
    return s.op("take", x, indices, at=(s.first, "indices"), axis=s.axis(x.type.rank, of=str(x.type)))
