"""What the marks of a factor rule promise, word for word, on shards of real arrays.

Nothing here knows of layouts, costs or the partitioner: only the op's numpy meaning and its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from gshard_ir.factors import Dims, Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import REGISTRY, Array, OpDef, OpError, Types
from gshard_ir.ops.random import draws
from gshard_ir.sharding import chunk
from gshard_ir.types import F16, KEY, DType, TensorType

COMBINE: Mapping[str, Callable[[Array, Array], Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


NEUTRAL: Mapping[str, float] = {"sum": 0, "prod": 1, "logsumexp": -math.inf}


class RefutedError(Exception):
    """A promise that does not hold, with what was seen."""


# ---- data


def hostile(type_: TensorType, rng: np.random.Generator, *, wild: bool) -> Array:
    """Draw mixed signs, zeros and many ties; floats are dyadic, so that sums are exact in any order.

    ``wild`` adds NaN and infinities to floats and the extremes to integers; bool is mostly False, else mostly True.
    """
    dtype, shape = type_.dtype, type_.shape
    if dtype == KEY:
        return rng.integers(0, 2**32, (*shape, 2), np.uint32)
    if dtype.is_float:
        pool = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0] + [math.nan, math.inf, -math.inf] * wild
    elif dtype.is_integer:
        info = np.iinfo(dtype.numpy())
        pool = [*range(max(-5, info.min), 6), *[int(info.min), int(info.max)] * wild]
    else:
        # Few of one kind among many of the other: whether all or any hold then hangs on single elements.
        return np.asarray((rng.random(shape) < 0.2) ^ (not wild))
    return np.asarray(np.array(pool, dtype.numpy())[rng.integers(0, len(pool), shape)])


def _spread(type_: TensorType, rng: np.random.Generator) -> Array:
    """Draw over the whole range of integers, half of them small; or floats of full mantissas, some beyond f16."""
    if type_.dtype.is_integer:
        info = np.iinfo(type_.dtype.numpy())
        wide = rng.integers(info.min, info.max, type_.shape, type_.dtype.numpy(), endpoint=True)
        small = rng.integers(0, 6, type_.shape, type_.dtype.numpy())
        return np.asarray(np.where(rng.random(type_.shape) < 0.5, wide, small))
    scale = 1.0 if type_.dtype == F16 else 2.0**16
    return np.asarray(scale * rng.standard_normal(type_.shape)).astype(type_.dtype.numpy())


def _identity(combine: str, dtype: DType) -> Any:
    if combine in NEUTRAL:
        return NEUTRAL[combine]
    if dtype.is_float:
        return -math.inf if combine == "max" else math.inf
    if not dtype.is_integer:
        return combine == "min"
    info = np.iinfo(dtype.numpy())
    return info.min if combine == "max" else info.max


# ---- shards


@dataclass(frozen=True)
class Cut:
    """A factor of a rule cut into ``shards`` chunks (trailing ones short or empty), and the reduction it owes."""

    rule: Rule
    factor: int
    shards: int
    combine: str = ""

    @property
    def size(self) -> int:
        return self.rule.factors[self.factor].size

    @property
    def rows(self) -> int:
        return chunk(self.size, self.shards)

    @property
    def possible(self) -> bool:
        """A dim of several factors takes equal chunks only."""
        alone = all(len(d) == 1 for t in (*self.rule.operands, *self.rule.results) for d in t if self.factor in d)
        return self.size > 0 and (alone or self.size % self.shards == 0)

    def place(self, dims: Dims) -> tuple[int, int, int] | None:
        """Return the dim that holds the factor and the rows that the factors before and after it make."""
        for d, dim in enumerate(dims):
            if self.factor in dim:
                at = dim.index(self.factor)
                before, after = (math.prod(self.rule.factors[f].size for f in fs) for fs in (dim[:at], dim[at + 1 :]))
                return d, before, after
        return None

    def shape(self, shape: tuple[int, ...], dims: Dims) -> tuple[int, ...]:
        """Return the shape of one shard of a tensor."""
        found = self.place(dims)
        if found is None:
            return shape
        d, before, after = found
        return (*shape[:d], before * self.rows * after, *shape[d + 1 :])

    def shard(self, array: Array, dims: Dims, j: int, padding: Array) -> Array:
        """Return shard ``j``; rows past the end are taken from ``padding``, an array like ``array``."""
        found = self.place(dims)
        if found is None:
            return array
        d, before, after = found
        split = (*array.shape[:d], before, self.size, after, *array.shape[d + 1 :])
        at = np.arange(j * self.rows, (j + 1) * self.rows)
        real = (at < self.size).reshape([-1] + [1] * (len(split) - d - 2))
        rows, filler = (np.take(a.reshape(split), at % self.size, d + 1) for a in (array, padding))
        return np.where(real, rows, filler).reshape(self.shape(array.shape, dims))

    def join(self, shards: Sequence[Array], dims: Dims) -> Array:
        """Put shards together and drop the padding; for a tensor that has the factor."""
        found = self.place(dims)
        assert found is not None
        d, before, after = found
        lead, tail = shards[0].shape[:d], shards[0].shape[d + 1 :]
        whole = np.concatenate([s.reshape(*lead, before, self.rows, after, *tail) for s in shards], d + 1)
        return np.take(whole, np.arange(self.size), d + 1).reshape(*lead, before * self.size * after, *tail)


# ---- promises


def _iota_at(_arrays: Sequence[Array], attrs: Attrs, local: Attrs, starts: Sequence[int]) -> Array:
    found: Array = REGISTRY["iota"].reference(**local)
    return np.asarray(found + np.asarray(starts[int(str(attrs["axis"]))]).astype(found.dtype))


def _uniform_at(arrays: Sequence[Array], attrs: Attrs, local: Attrs, starts: Sequence[int]) -> Array:
    return draws(arrays[0], starts, local["shape"], attrs["shape"])  # type: ignore[arg-type]


POSITIONED = {"iota": _iota_at, "uniform": _uniform_at}
"""Ops whose elements depend on their global position: a shard is told where it starts."""


@dataclass(frozen=True)
class Trial:
    """One op on one set of operands, and what it computes unsharded."""

    op: OpDef
    types: Types
    attrs: Attrs
    results: Types
    arrays: tuple[Array, ...]
    whole: tuple[Array, ...]
    rng: np.random.Generator

    @staticmethod
    def make(op: OpDef, types: Types, attrs: Attrs, rng: np.random.Generator, *, wild: bool) -> Trial:
        """Draw operands and run the op; raise :class:`RefutedError` when it contradicts its inferred types."""
        arrays = tuple(hostile(t, rng, wild=wild) for t in types)
        results = op.infer(types, attrs)
        whole = _run(op, arrays, attrs)
        for i, (type_, array) in enumerate(zip(results, whole, strict=True)):
            shape = (*type_.shape, 2) if type_.dtype == KEY else type_.shape
            if (array.shape, array.dtype) != (shape, type_.dtype.numpy()):
                raise RefutedError(f"result {i} is inferred {type_} but computed {array.dtype}{list(array.shape)}")
        return Trial(op, types, attrs, results, arrays, whole, rng)

    def local(self, cut: Cut, fill: str) -> list[tuple[Array, ...]]:
        """Run the op on every shard and return its results per shard.

        ``fill`` is what padding holds: ``garbage``, or the identity of a reduction.
        """
        found = []
        for j in range(cut.shards):
            arrays = []
            for type_, array, dims in zip(self.types, self.arrays, cut.rule.operands, strict=True):
                if fill == "garbage":
                    padding = hostile(type_, self.rng, wild=True)
                else:
                    padding = np.full_like(array, _identity(fill, type_.dtype))
                arrays.append(cut.shard(array, dims, j, padding))
            found.append(self._one(cut, j, tuple(arrays)))
        return found

    def _one(self, cut: Cut, j: int, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        types = tuple(
            TensorType(t.dtype, cut.shape(t.shape, dims)) for t, dims in zip(self.types, cut.rule.operands, strict=True)
        )
        results = tuple(
            TensorType(t.dtype, cut.shape(t.shape, dims))
            for t, dims in zip(self.results, cut.rule.results, strict=True)
        )
        attrs = self.op.localize(self.attrs, types, results) if self.op.localize else self.attrs
        try:
            inferred = self.op.infer(types, attrs)
        except OpError as error:
            raise RefutedError(f"the op refuses its shards: {error.message}") from None
        if tuple(t.shape for t in inferred) != tuple(t.shape for t in results):
            raise RefutedError(f"a shard makes {', '.join(map(str, inferred))}, not {', '.join(map(str, results))}")
        if self.op.name in POSITIONED:
            starts = [j * cut.rows if cut.factor in dim else 0 for dim in cut.rule.results[0]]
            return (POSITIONED[self.op.name](arrays, self.attrs, attrs, starts),)
        return _run(self.op, arrays, attrs)


def _run(op: OpDef, arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
    found = op.reference(*arrays, **attrs)
    return found if isinstance(found, tuple) else (found,)


def _same(found: Array, expected: Array, what: str) -> None:
    """Compare, NaN equal to NaN; floats up to the rounding of a few elementary functions."""
    loose = {2: 2e-2, 4: 1e-5, 8: 1e-10}[expected.dtype.itemsize] if expected.dtype.kind not in "iub" else 0.0
    if found.shape != expected.shape:
        raise RefutedError(f"{what} has shape {list(found.shape)}, expected {list(expected.shape)}")
    with np.errstate(all="ignore"):
        if loose:
            wide, goal = found.astype(np.float64), expected.astype(np.float64)
            equal = np.isclose(wide, goal, rtol=loose, atol=loose, equal_nan=True)
        else:
            equal = found == expected
    if not equal.all():
        at = tuple(int(i) for i in np.argwhere(~equal)[0])
        raise RefutedError(f"{what} differs at {list(at)}: expected {expected[at]}, found {found[at]}")


def _pass(trial: Trial, cut: Cut) -> None:
    shards = trial.local(cut, "garbage")
    for i, dims in enumerate(cut.rule.results):
        if cut.place(dims):
            _same(cut.join([s[i] for s in shards], dims), trial.whole[i], f"result {i} put together")
        else:
            for j, s in enumerate(shards):
                _same(s[i], trial.whole[i], f"result {i} of shard {j}")


def _reduce(trial: Trial, cut: Cut) -> None:
    shards = trial.local(cut, cut.combine)
    for i, expected in enumerate(trial.whole):
        with np.errstate(all="ignore"):
            found = np.asarray(reduce(COMBINE[cut.combine], [s[i] for s in shards]))
        if cut.combine in ("sum", "prod"):
            # Whether infinities leave an infinity or NaN hangs on the order of a sum of products.
            found = np.where(np.isfinite(found) | np.isfinite(expected), found, expected)
        _same(found, expected, f"the {cut.combine} of results {i}")


def _scan(trial: Trial, cut: Cut) -> None:
    axis = _dim_of(cut, cut.rule.results[0])
    combine = np.logaddexp if cut.combine == "logsumexp" else COMBINE[cut.combine]
    shards = [results[0] for results in trial.local(cut, cut.combine)]
    whole = replace(trial, attrs={**trial.attrs, "exclusive": False})
    backward = bool(trial.attrs.get("reverse", False))
    totals = [np.take(r[0], [0] if backward else [-1], axis) for r in whole.local(cut, cut.combine)]
    found = []
    with np.errstate(all="ignore"):
        for j, s in enumerate(shards):
            others = totals[j + 1 :] if backward else totals[:j]
            found.append(reduce(combine, others, s).astype(s.dtype))
    _same(cut.join(found, cut.rule.results[0]), trial.whole[0], "result 0 with the prefix of totals")


def _select(trial: Trial, cut: Cut) -> None:
    axis = _dim_of(cut, cut.rule.operands[0])
    at, best = [], []
    # Padding repeats a row of its shard or of another one, so it can tie but never win against an earlier row.
    for j in range(cut.shards):
        x = cut.shard(trial.arrays[0], cut.rule.operands[0], j, trial.arrays[0])
        real = max(1, min(cut.rows, cut.size - j * cut.rows))
        x = np.take(x, np.arange(real), axis)
        (index,) = _run(trial.op, [x], trial.attrs)
        best.append(np.take_along_axis(x, np.expand_dims(index, axis), axis))
        at.append(np.expand_dims(index + np.int32(j * cut.rows), axis))
    (winner,) = _run(trial.op, [np.concatenate(best, axis)], trial.attrs)
    found = np.take_along_axis(np.concatenate(at, axis), np.expand_dims(winner, axis), axis)
    _same(np.squeeze(found, axis), trial.whole[0], "the position of the best candidate")


def _lookup(trial: Trial, cut: Cut) -> None:
    axis, n = _dim_of(cut, cut.rule.operands[0]), cut.size
    *_, indices = trial.arrays
    at = indices.astype(np.int64)
    at = np.where(at < 0, at + n, at)
    inside = (at >= 0) & (at < n)
    dims = zip(cut.rule.results[0], trial.whole[0].shape, strict=True)
    spread = [rows if dim in cut.rule.operands[-1] else 1 for dim, rows in dims]

    def masked(mask: Array, x: Array, index: Array) -> Array:
        (rows,) = _run(trial.op, [x, index.astype(indices.dtype)], trial.attrs)
        return np.where(mask.reshape(spread), rows, np.zeros_like(rows))

    parts = []
    for j in range(cut.shards):
        x = cut.shard(trial.arrays[0], cut.rule.operands[0], j, trial.arrays[0])
        local = at - j * cut.rows
        owned = inside & (local >= 0) & (local < cut.rows)
        parts.append(masked(owned, x, np.where(owned, local, 0)))
    # An index of no row belongs to nobody: the first shard answers for it.
    first = cut.shard(trial.arrays[0], cut.rule.operands[0], 0, trial.arrays[0])
    parts.append(masked(~inside, first, np.full_like(at, first.shape[axis])))
    found = np.asarray(reduce(COMBINE[cut.combine], parts))
    _same(found, trial.whole[0], f"the {cut.combine} over owners")


def _dim_of(cut: Cut, dims: Dims) -> int:
    (axis,) = (d for d, dim in enumerate(dims) if dim == (cut.factor,))
    return axis


PROMISES = {"pass": _pass, "reduce": _reduce, "scan": _scan, "select": _select, "lookup": _lookup}


def adds_up(trial: Trial, group: frozenset[int], *, spread: bool) -> None:
    """Split every operand of a group into random summands; results must add up wherever they are finite."""

    def summand(i: int) -> Array:
        type_ = trial.types[i]
        wide = spread or type_.dtype.is_integer
        return _spread(type_, trial.rng) if wide else hostile(type_, trial.rng, wild=False)

    def run(chosen: Mapping[int, Array]) -> Array:
        return _run(trial.op, [chosen.get(i, a) for i, a in enumerate(trial.arrays)], trial.attrs)[0]

    for pieces in (2, 3):
        summands = [{i: summand(i) for i in sorted(group)} for _ in range(pieces)]
        parts = [run(s) for s in summands]
        with np.errstate(all="ignore"):
            expected = run({i: np.asarray(reduce(np.add, [s[i] for s in summands])) for i in group})
            found = np.asarray(reduce(np.add, parts))
        _compare_sums(found, expected, parts, min(_eps(trial.types[i].dtype) for i in group))


def _compare_sums(found: Array, expected: Array, parts: Sequence[Array], eps: float) -> None:
    # Where both sides overflow or divide by zero there is nothing to compare.
    undefined = ~np.isfinite(expected) & ~np.logical_and.reduce([np.isfinite(a) for a in parts])
    if expected.size == 0:
        return
    if undefined.all():
        raise RefutedError("no result is finite")
    wide = [a[~undefined].astype(np.float64) for a in (found, expected, *parts)]
    with np.errstate(all="ignore"):
        gap = np.abs(wide[0] - wide[1])
    scale = max(float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in wide[1:])
    if not (gap <= 16 * eps * scale).all() if eps else (found[~undefined] != expected[~undefined]).any():
        raise RefutedError(f"the sum of {len(parts)} results is not the result of the sum")


def _eps(dtype: DType) -> float:
    return {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}.get(dtype.name, 0.0)
