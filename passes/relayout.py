"""Relayout planner: the cheapest way from one layout of a tensor to another.

States are layouts; edges are the steps below; the search is Dijkstra's over bytes sent plus a price
per launch. Chunks that do not nest (10 rows over 2, then over 8) rule an edge out, and gathering the
dim is then what remains.

| step | effect on the layout |
|---|---|
| shard_slice | axes appended to a dim, nothing sent |
| all_gather | minor axes of a dim removed |
| all_to_all | minor axes of one dim moved to another |
| permute | the same number of shards per dim, other axes or another order |
| all_reduce, reduce_scatter | pending axes removed, or moved to a dim |
| mask_leader | unused axes become a pending sum of one summand, nothing sent |
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gshard_ir.ir import Attrs
from gshard_ir.memo import hash_once
from gshard_ir.mesh import Mesh
from gshard_ir.passes.traffic import Transfer, transfer
from gshard_ir.sharding import Layout, nests, sharded
from gshard_ir.types import TensorType


@dataclass(frozen=True)
class Step:
    """One op of a relayout: its name, attributes, the layout it leads to, and what it sends."""

    name: str
    attrs: Attrs
    source: Layout
    target: Layout
    transfer: Transfer | None

    def price(self, launch_bytes: float) -> float:
        return 0.0 if self.transfer is None else self.transfer.sent + launch_bytes


@hash_once
@dataclass(frozen=True)
class Problem:
    """What is fixed while one tensor is relaid: its global type, the mesh, the price of a launch."""

    type: TensorType
    mesh: Mesh
    launch_bytes: float = 0.0


def path(problem: Problem, source: Layout, target: Layout) -> tuple[Step, ...]:
    """Return the cheapest steps from ``source`` to ``target`` (fewest steps among equals)."""
    if source == target:
        return ()
    sliced = _only_slices(problem, source, target)
    return _search(problem, source, bool(target.pending)).to(target) if sliced is None else sliced


def _only_slices(problem: Problem, source: Layout, target: Layout) -> tuple[Step, ...] | None:
    """The common case without a search: every dim only gains minor axes, and nothing is sent."""
    if source.pending != target.pending:
        return None
    steps = []
    at = source
    for dim, (have, want) in enumerate(zip(source.dims, target.dims, strict=True)):
        if want[: len(have)] != have:
            return None
        if extra := want[len(have) :]:
            if not _fits(problem, at, dim, extra) or any(a in source.axes for a in extra):
                return None
            to = at.with_dim(dim, want)
            steps.append(_step(problem, "shard_slice", {"axes": extra, "dim": dim}, at, to))
            at = to
    return tuple(steps)


class _Search:
    """Dijkstra's search from one layout, resumed whenever a target not yet reached is asked for."""

    def __init__(self, problem: Problem, source: Layout, masks: bool) -> None:
        self.problem, self.source, self.masks = problem, source, masks
        self.order = itertools.count()
        self.best: dict[Layout, tuple[float, int]] = {source: (0.0, 0)}
        self.trail: dict[Layout, Step] = {}
        self.settled: set[Layout] = set()
        self.queue = [(0.0, 0, next(self.order), source)]

    def to(self, target: Layout) -> tuple[Step, ...]:
        while target not in self.settled:
            cost, length, _, at = heapq.heappop(self.queue)
            if at not in self.settled:
                self.settled.add(at)
                self._relax(at, cost, length)
        steps: list[Step] = []
        while target != self.source:
            steps.append(self.trail[target])
            target = self.trail[target].source
        return tuple(reversed(steps))

    def _relax(self, at: Layout, cost: float, length: int) -> None:
        best = self.best
        for price, step in _edges(self.problem, at, self.masks):
            found = (cost + price, length + 1)
            to = step.target
            if to not in best or found < best[to]:
                best[to] = found
                self.trail[to] = step
                heapq.heappush(self.queue, (*found, next(self.order), to))


@lru_cache(maxsize=2048)
def _search(problem: Problem, source: Layout, masks: bool) -> _Search:
    return _Search(problem, source, masks)


@lru_cache(maxsize=8192)
def _edges(problem: Problem, at: Layout, masks: bool) -> tuple[tuple[float, Step], ...]:
    """Every step out of a layout with its price. ``masks``: also those that make a pending sum of one summand."""
    found = [*_reductions(problem, at), *_dim_moves(problem, at), *_slices(problem, at), *_permutes(problem, at)]
    if masks:
        found += _masks(problem, at)
    return tuple((step.price(problem.launch_bytes), step) for step in found)


def _step(problem: Problem, name: str, attrs: Attrs, source: Layout, target: Layout) -> Step:
    before = sharded(problem.type, source, problem.mesh)
    after = sharded(problem.type, target, problem.mesh)
    return Step(name, attrs, source, target, transfer(name, attrs, before, after, problem.mesh))


def _reductions(problem: Problem, at: Layout) -> Iterator[Step]:
    for kind, axes in at.pending:
        for axes_now in _subsets(axes):
            rest = at.with_pending(kind, [a for a in axes if a not in axes_now], problem.mesh)
            yield _step(problem, "all_reduce", {"kind": kind, "axes": axes_now}, at, rest)
            for dim, ordered in itertools.product(range(len(at.dims)), itertools.permutations(axes_now)):
                if kind == "sum" and _fits(problem, at, dim, ordered):
                    to = rest.with_dim(dim, at.dims[dim] + ordered)
                    yield _step(problem, "reduce_scatter", {"kind": kind, "axes": ordered, "dim": dim}, at, to)


def _dim_moves(problem: Problem, at: Layout) -> Iterator[Step]:
    for dim, axes in enumerate(at.dims):
        for keep in range(len(axes)):
            rest, moved = axes[:keep], axes[keep:]
            if not nests(problem.type.shape[dim], problem.mesh.size(rest), problem.mesh.size(moved)):
                continue
            gathered = at.with_dim(dim, rest)
            yield _step(problem, "all_gather", {"axes": moved, "dim": dim}, at, gathered)
            for other in range(len(at.dims)):
                if other != dim and _fits(problem, at, other, moved):
                    to = gathered.with_dim(other, at.dims[other] + moved)
                    attrs: Attrs = {"axes": moved, "split_dim": other, "concat_dim": dim}
                    yield _step(problem, "all_to_all", attrs, at, to)


def _slices(problem: Problem, at: Layout) -> Iterator[Step]:
    # Several axes at once matter on uneven dims, where one at a time would not nest.
    for axes in _subsets(_free(problem.mesh, at)):
        for dim, ordered in itertools.product(range(len(at.dims)), itertools.permutations(axes)):
            if _fits(problem, at, dim, ordered):
                to = at.with_dim(dim, at.dims[dim] + ordered)
                yield _step(problem, "shard_slice", {"axes": ordered, "dim": dim}, at, to)


def _masks(problem: Problem, at: Layout) -> Iterator[Step]:
    for axis in _free(problem.mesh, at):
        to = at.with_pending("sum", (*dict(at.pending).get("sum", ()), axis), problem.mesh)
        yield _step(problem, "mask_leader", {"axes": (axis,)}, at, to)


def _free(mesh: Mesh, at: Layout) -> list[str]:
    return [a for a, n in zip(mesh.names, mesh.sizes, strict=True) if n > 1 and a not in at.axes]


def _permutes(problem: Problem, at: Layout) -> Iterator[Step]:
    if not any(at.dims):
        return
    mesh = problem.mesh
    usable = [a for a, n in zip(mesh.names, mesh.sizes, strict=True) if n > 1 and a not in at.pending_axes]
    for dims in _same_shards(mesh, [mesh.size(d) for d in at.dims], usable):
        if dims != at.dims:
            to = Layout(dims, at.pending)
            yield _step(problem, "permute", {"source": at, "target": to}, at, to)


def _same_shards(mesh: Mesh, shards: list[int], usable: list[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield every assignment of axes to dims with the given number of shards per dim."""
    if not shards:
        yield ()
        return
    for count in range(len(usable) + 1):
        for axes in itertools.permutations(usable, count):
            if mesh.size(axes) == shards[0]:
                for rest in _same_shards(mesh, shards[1:], [a for a in usable if a not in axes]):
                    yield (axes, *rest)


def _fits(problem: Problem, at: Layout, dim: int, axes: tuple[str, ...]) -> bool:
    return nests(problem.type.shape[dim], problem.mesh.size(at.dims[dim]), problem.mesh.size(axes))


def _subsets(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(1, len(axes) + 1):
        yield from itertools.combinations(axes, count)


@dataclass(frozen=True)
class Tree:
    """How all wanted layouts of one value are made from its home: for each layout, the step that makes it."""

    steps: tuple[Step, ...]
    price: float

    def maker(self, layout: Layout) -> Step | None:
        """The step whose target is ``layout`` (None for the home)."""
        return next((s for s in self.steps if s.target == layout), None)


@lru_cache(maxsize=8192)
def tree(problem: Problem, home: Layout, wanted: frozenset[Layout]) -> Tree:
    """Make every layout in ``wanted`` from what is already there, cheapest insertion first."""
    have = [home]
    steps: list[Step] = []
    price = 0.0
    missing = sorted(wanted - {home}, key=repr)
    while missing:
        routes = [
            (_cost(problem, path(problem, a, b)), i, j) for i, a in enumerate(have) for j, b in enumerate(missing)
        ]
        _, i, j = min(routes)
        for step in path(problem, have[i], missing[j]):
            if step.target not in have:
                steps.append(step)
                have.append(step.target)
                price += step.price(problem.launch_bytes)
        missing = [m for m in missing if m not in have]
    return Tree(tuple(steps), price)


def _cost(problem: Problem, steps: tuple[Step, ...]) -> float:
    return sum(s.price(problem.launch_bytes) for s in steps)
