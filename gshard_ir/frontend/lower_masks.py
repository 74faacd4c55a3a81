"""Builtins that keep or pick a band of a matrix: every device masks its own rows and columns, nothing is moved."""

from __future__ import annotations

from collections.abc import Sequence

from gshard_ir.frontend.lower_builtins import Site, builtin
from gshard_ir.frontend.lower_emit import check_shape
from gshard_ir.frontend.lower_values import Item
from gshard_ir.ir import Value
from gshard_ir.types import BOOL, I32


def _band(s: Site, shape: Sequence[int], compare: str, k: int) -> Value:
    """Compare the column of each place of ``[.., rows, columns]`` with its row + k."""
    shape = check_shape(shape, s.span)
    rank = len(shape)
    row = s.op("iota", dtype=I32, shape=shape, axis=rank - 2)
    column = s.op("iota", dtype=I32, shape=shape, axis=rank - 1)
    k = min(max(k, -shape[-2]), shape[-1])
    moved = s.op("add", row, s.emit.constant(k, I32, shape, s.span)) if k else row
    return s.op(compare, column, moved)


def _masked(s: Site, mask: Value, x: Value) -> Value:
    zero = s.emit.constant(False if x.dtype == BOOL else 0, x.dtype, x.shape, s.span)
    return s.op("select", mask, x, zero)


@builtin("tril(m, k=0)", "triu(m, k=0)")
def _triangle(s: Site) -> Item:
    x, k = s.tensor(), s.integer("k")
    if x.type.rank < 2:
        raise s.fail(f"m must be a matrix, or several, found {x.type}", "m")
    compare = {"tril": "le", "triu": "ge"}[s.name]
    return _masked(s, _band(s, x.shape, compare, k), x)


@builtin("tri(N, M=None, k=0, dtype=f32)", "eye(N, M=None, k=0, dtype=f32)")
def _tri(s: Site) -> Item:
    n = s.integer("N", low=0)
    m = n if s.args["M"] is None else s.integer("M", low=0)
    mask = _band(s, (n, m), "eq" if s.name == "eye" else "le", s.integer("k"))
    return s.emit.cast(mask, s.dtype(), s.span)


def _square(s: Site, x: Value, offset: int) -> Value:
    """Put the two dims last and cut them so that the diagonal is the main one of a square."""
    first, second = s.axis(x.type.rank, "axis1", str(x.type)), s.axis(x.type.rank, "axis2", str(x.type))
    if first == second:
        raise s.fail(f"axis1 and axis2 are both dim {first}", "axis2")
    perm = [*(d for d in range(x.type.rank) if d not in (first, second)), first, second]
    if perm != list(range(x.type.rank)):
        x = s.op("transpose", x, at=(s.first,), perm=tuple(perm))
    *lead, n, m = x.shape
    down, right = min(max(-offset, 0), n), min(max(offset, 0), m)
    size = min(n - down, m - right)
    if (n, m) == (size, size):
        return x
    starts, limits = (*(0 for _ in lead), down, right), (*lead, down + size, right + size)
    return s.op("slice", x, starts=starts, limits=limits, strides=(1,) * len(limits))


@builtin("diagonal(a, offset=0, axis1=0, axis2=1)", "trace(a, offset=0, axis1=0, axis2=1)")
def _diagonal(s: Site) -> Item:
    x = s.numeric() if s.name == "trace" else s.tensor()
    if x.type.rank < 2:
        raise s.fail(f"a must be a matrix, or several, found {x.type}", "a")
    x = _square(s, x, s.integer("offset"))
    rank = x.type.rank
    kept = _masked(s, _band(s, x.shape, "eq", 0), x)
    axes = (rank - 2,) if s.name == "diagonal" else (rank - 2, rank - 1)
    return s.op("reduce_or" if x.dtype == BOOL else "reduce_sum", kept, axes=axes)


@builtin("diag(v, k=0)")
def _diag(s: Site) -> Item:
    x, k = s.tensor(), s.integer("k")
    if x.type.rank == 2:
        args = {**s.args, "offset": k, "axis1": 0, "axis2": 1}
        return _diagonal(Site(s.emit, "diagonal", s.span, args, s.spans))
    if x.type.rank != 1:
        raise s.fail(f"v must be a vector or a matrix, found {x.type}", "v")
    n = x.shape[0] + abs(k)
    check_shape((n, n), s.span)
    if k:
        fill = 0.0 if x.dtype.is_float else False if x.dtype == BOOL else 0
        x = s.op("pad", x, at=("v",), low=(max(k, 0),), high=(max(-k, 0),), value=fill)
    wide = s.emit.broadcast(x, (n, n), s.span)
    return _masked(s, _band(s, (n, n), "eq", k), wide)


@builtin("stop_gradient(x)")
def _stop_gradient(s: Site) -> Item:
    return s.op("stop_gradient", s.tensor(), at=("x",))
