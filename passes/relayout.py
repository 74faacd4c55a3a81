"""Relayout planner: the cheapest way from one layout of a tensor to another.

States are layouts; edges are the steps below; the search is Dijkstra's over bytes sent plus a price
per launch. Chunks that do not nest (10 rows over 2, then over 8) rule an edge out, and gathering the
dim is then what remains. Layouts are many as soon as there are many axes: above MOST_AXES only those that
the two layouts disagree about move, and where these are too many, the tensor is relaid dim by dim.

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

MOST_AXES, MOST_DIMS = 3, 4
"""Up to so many axes and dims a search may use all of them."""


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


@hash_once
@dataclass(frozen=True)
class Scope:
    """What a search may change: axes (in mesh order) that move, dims that they move to, and whether pending
    sums of one summand may be made.
    """

    axes: tuple[str, ...]
    dims: tuple[int, ...]
    masks: bool


def path(problem: Problem, source: Layout, target: Layout) -> tuple[Step, ...]:
    """Return the cheapest steps from ``source`` to ``target`` (fewest steps among equals)."""
    if source == target:
        return ()
    sliced = _only_slices(problem, source, target)
    if sliced is not None:
        return sliced
    scope = _scope(problem, source, target)
    if len(scope.axes) <= MOST_AXES:
        return _search(problem, source, scope).to(target)
    return _dim_by_dim(problem, source, target)


def _scope(problem: Problem, source: Layout, target: Layout) -> Scope:
    mesh = problem.mesh
    real = tuple(a for a, n in zip(mesh.names, mesh.sizes, strict=True) if n > 1)
    masks = bool(target.pending)
    if len(real) <= MOST_AXES and len(source.dims) <= MOST_DIMS:
        return Scope(real, tuple(range(len(source.dims))), masks)
    moving = source.pending_axes ^ target.pending_axes
    dims = []
    for dim, (have, want) in enumerate(zip(source.dims, target.dims, strict=True)):
        kept = _common(have, want)
        if not (_nests_from(problem, dim, have, kept) and _nests_from(problem, dim, want, kept)):
            kept = 0
        moving |= {*have[kept:], *want[kept:]}
        if have or want:
            dims.append(dim)
    return Scope(tuple(a for a in real if a in moving), tuple(dims), masks)


def _nests_from(problem: Problem, dim: int, axes: tuple[str, ...], kept: int) -> bool:
    return nests(problem.type.shape[dim], problem.mesh.size(axes[:kept]), problem.mesh.size(axes[kept:]))


def _common(have: Sequence[str], want: Sequence[str]) -> int:
    """How many leading axes two dims share."""
    return next((i for i, (a, b) in enumerate(zip(have, want, strict=False)) if a != b), min(len(have), len(want)))


@lru_cache(maxsize=2048)
def _dim_by_dim(problem: Problem, source: Layout, target: Layout) -> tuple[Step, ...]:
    """Pending sums first, then each dim in turn, axes that it takes from others gathered there."""
    goals = [_reduced(source, target)]
    for dim, want in enumerate(target.dims):
        last = goals[-1]
        dims = [_without(have, want) if d != dim else want for d, have in enumerate(last.dims)]
        goals.append(Layout(tuple(dims), last.pending))
    steps: list[Step] = []
    at = source
    for goal in (*goals, target):
        if at != goal:
            scope = _scope(problem, at, goal)
            near = len(scope.axes) <= MOST_AXES
            steps += _search(problem, at, scope).to(goal) if near else _direct(problem, at, goal)
            at = goal
    return tuple(steps)


def _reduced(source: Layout, target: Layout) -> Layout:
    """The source with what it owes and the target does not reduced, scattered where the target wants that."""
    owed = source.pending_axes - target.pending_axes
    dims = []
    for have, want in zip(source.dims, target.dims, strict=True):
        extra = want[len(have) :]
        dims.append(want if want[: len(have)] == have and owed.issuperset(extra) else have)
    pending = tuple((kind, tuple(a for a in axes if a not in owed)) for kind, axes in source.pending)
    return Layout(tuple(dims), tuple((kind, axes) for kind, axes in pending if axes))


def _without(have: tuple[str, ...], taken: Sequence[str]) -> tuple[str, ...]:
    """The leading axes of a dim up to the first that another dim takes."""
    return have[: next((i for i, a in enumerate(have) if a in taken), len(have))]


def _direct(problem: Problem, at: Layout, goal: Layout) -> list[Step]:
    """The way that always exists: reduce, gather each dim that differs, slice, mask."""
    steps: list[Step] = []

    def go(name: str, attrs: Attrs, to: Layout) -> None:
        steps.append(_step(problem, name, attrs, steps[-1].target if steps else at, to))

    now = at
    for kind, axes in at.pending:
        owed = tuple(a for a in axes if a not in goal.pending_axes)
        if owed:
            now = now.with_pending(kind, [a for a in axes if a not in owed], problem.mesh)
            go("all_reduce", {"kind": kind, "axes": owed}, now)
    changed = [d for d, want in enumerate(goal.dims) if now.dims[d] != want]
    for dim in changed:
        if now.dims[dim]:
            attrs: Attrs = {"axes": now.dims[dim], "dim": dim}
            now = now.with_dim(dim, ())
            go("all_gather", attrs, now)
    for dim in changed:
        if goal.dims[dim]:
            now = now.with_dim(dim, goal.dims[dim])
            go("shard_slice", {"axes": goal.dims[dim], "dim": dim}, now)
    for axis in problem.mesh.order(goal.pending_axes - now.pending_axes):
        now = now.with_pending("sum", (*dict(now.pending).get("sum", ()), axis), problem.mesh)
        go("mask_leader", {"axes": (axis,)}, now)
    return steps


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

    def __init__(self, problem: Problem, source: Layout, scope: Scope) -> None:
        self.problem, self.source, self.scope = problem, source, scope
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
        for price, step in _edges(self.problem, at, self.scope):
            found = (cost + price, length + 1)
            to = step.target
            if to not in best or found < best[to]:
                best[to] = found
                self.trail[to] = step
                heapq.heappush(self.queue, (*found, next(self.order), to))


@lru_cache(maxsize=2048)
def _search(problem: Problem, source: Layout, scope: Scope) -> _Search:
    return _Search(problem, source, scope)


@lru_cache(maxsize=8192)
def _edges(problem: Problem, at: Layout, scope: Scope) -> tuple[tuple[float, Step], ...]:
    """Every step out of a layout with its price."""
    moves = (_reductions, _dim_moves, _slices, _permutes, *[_masks] * scope.masks)
    found = [step for move in moves for step in move(problem, at, scope)]
    return tuple((step.price(problem.launch_bytes), step) for step in found)


def _step(problem: Problem, name: str, attrs: Attrs, source: Layout, target: Layout) -> Step:
    before = sharded(problem.type, source, problem.mesh)
    after = sharded(problem.type, target, problem.mesh)
    return Step(name, attrs, source, target, transfer(name, attrs, before, after, problem.mesh))


def _reductions(problem: Problem, at: Layout, scope: Scope) -> Iterator[Step]:
    for kind, axes in at.pending:
        for axes_now in _subsets([a for a in axes if a in scope.axes]):
            rest = at.with_pending(kind, [a for a in axes if a not in axes_now], problem.mesh)
            yield _step(problem, "all_reduce", {"kind": kind, "axes": axes_now}, at, rest)
            for dim, ordered in itertools.product(scope.dims, itertools.permutations(axes_now)):
                if kind == "sum" and _fits(problem, at, dim, ordered):
                    to = rest.with_dim(dim, at.dims[dim] + ordered)
                    yield _step(problem, "reduce_scatter", {"kind": kind, "axes": ordered, "dim": dim}, at, to)


def _dim_moves(problem: Problem, at: Layout, scope: Scope) -> Iterator[Step]:
    for dim, axes in enumerate(at.dims):
        for keep in range(len(_fixed(axes, scope)), len(axes)):
            rest, moved = axes[:keep], axes[keep:]
            if not nests(problem.type.shape[dim], problem.mesh.size(rest), problem.mesh.size(moved)):
                continue
            gathered = at.with_dim(dim, rest)
            yield _step(problem, "all_gather", {"axes": moved, "dim": dim}, at, gathered)
            for other in scope.dims:
                if other != dim and _fits(problem, at, other, moved):
                    to = gathered.with_dim(other, at.dims[other] + moved)
                    attrs: Attrs = {"axes": moved, "split_dim": other, "concat_dim": dim}
                    yield _step(problem, "all_to_all", attrs, at, to)


def _fixed(axes: tuple[str, ...], scope: Scope) -> tuple[str, ...]:
    """The leading axes of a dim, which stay where they are."""
    return tuple(itertools.takewhile(lambda a: a not in scope.axes, axes))


def _slices(problem: Problem, at: Layout, scope: Scope) -> Iterator[Step]:
    # Several axes at once matter on uneven dims, where one at a time would not nest.
    for axes in _subsets([a for a in scope.axes if a not in at.axes]):
        for dim, ordered in itertools.product(scope.dims, itertools.permutations(axes)):
            if _fits(problem, at, dim, ordered):
                to = at.with_dim(dim, at.dims[dim] + ordered)
                yield _step(problem, "shard_slice", {"axes": ordered, "dim": dim}, at, to)


def _masks(problem: Problem, at: Layout, scope: Scope) -> Iterator[Step]:
    for axis in (a for a in scope.axes if a not in at.axes):
        to = at.with_pending("sum", (*dict(at.pending).get("sum", ()), axis), problem.mesh)
        yield _step(problem, "mask_leader", {"axes": (axis,)}, at, to)


def _permutes(problem: Problem, at: Layout, scope: Scope) -> Iterator[Step]:
    if not any(at.dims):
        return
    mesh = problem.mesh
    fixed = [_fixed(axes, scope) for axes in at.dims]
    shards = [mesh.size(axes[len(kept) :]) for axes, kept in zip(at.dims, fixed, strict=True)]
    usable = [a for a in scope.axes if a not in at.pending_axes]
    for moved in _same_shards(mesh, shards, usable):
        dims = tuple(kept + axes for kept, axes in zip(fixed, moved, strict=True))
        if dims != at.dims:
            to = Layout(dims, at.pending)
            yield _step(problem, "permute", {"source": at, "target": to}, at, to)


def _same_shards(mesh: Mesh, shards: list[int], usable: list[str]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield every assignment of axes to dims with the given number of shards per dim."""
    if not shards:
        yield ()
        return
    if shards[0] == 1:
        for rest in _same_shards(mesh, shards[1:], usable):
            yield ((), *rest)
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
