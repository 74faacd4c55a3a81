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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gshard_ir.ir import Attrs
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


@dataclass(frozen=True)
class Problem:
    """What is fixed while one tensor is relaid: its global type, the mesh, the price of a launch."""

    type: TensorType
    mesh: Mesh
    launch_bytes: float = 0.0


def path(problem: Problem, source: Layout, target: Layout) -> tuple[Step, ...]:
    """Return the cheapest steps from ``source`` to ``target`` (fewest steps among equals)."""
    return _path(problem, source, target)


@lru_cache(maxsize=65536)
def _path(problem: Problem, source: Layout, target: Layout) -> tuple[Step, ...]:
    if source == target:
        return ()
    order = itertools.count()
    best: dict[Layout, tuple[float, int]] = {source: (0.0, 0)}
    trail: dict[Layout, Step] = {}
    queue = [(0.0, 0, next(order), source)]
    while queue:
        cost, length, _, at = heapq.heappop(queue)
        if at == target:
            break
        if (cost, length) > best[at]:
            continue
        for step in _edges(problem, at, target):
            found = (cost + step.price(problem.launch_bytes), length + 1)
            if step.target not in best or found < best[step.target]:
                best[step.target] = found
                trail[step.target] = step
                heapq.heappush(queue, (*found, next(order), step.target))
    steps: list[Step] = []
    while target != source:
        steps.append(trail[target])
        target = trail[target].source
    return tuple(reversed(steps))


def _edges(problem: Problem, at: Layout, goal: Layout) -> Iterator[Step]:
    yield from _reductions(problem, at, goal)
    yield from _dim_moves(problem, at, goal)
    yield from _permutes(problem, at, goal)
    yield from _slices(problem, at, goal)


def _step(problem: Problem, name: str, attrs: Attrs, source: Layout, target: Layout) -> Step:
    before = sharded(problem.type, source, problem.mesh)
    after = sharded(problem.type, target, problem.mesh)
    return Step(name, attrs, source, target, transfer(name, attrs, before, after, problem.mesh))


def _reductions(problem: Problem, at: Layout, goal: Layout) -> Iterator[Step]:
    keep = dict(goal.pending)
    for kind, axes in at.pending:
        owed = [a for a in axes if a not in keep.get(kind, ())]
        for axes_now in _subsets(owed):
            rest = at.with_pending(kind, [a for a in axes if a not in axes_now], problem.mesh)
            yield _step(problem, "all_reduce", {"kind": kind, "axes": axes_now}, at, rest)
            for dim in range(len(at.dims)):
                for ordered in itertools.permutations(axes_now):
                    if kind == "sum" and _helps(goal, dim, ordered) and _fits(problem, at, dim, ordered):
                        to = rest.with_dim(dim, at.dims[dim] + ordered)
                        yield _step(problem, "reduce_scatter", {"kind": kind, "axes": ordered, "dim": dim}, at, to)


def _dim_moves(problem: Problem, at: Layout, goal: Layout) -> Iterator[Step]:
    for dim, axes in enumerate(at.dims):
        for keep in range(len(axes)):
            rest, moved = axes[:keep], axes[keep:]
            if not nests(problem.type.shape[dim], problem.mesh.size(rest), problem.mesh.size(moved)):
                continue
            gathered = at.with_dim(dim, rest)
            yield _step(problem, "all_gather", {"axes": moved, "dim": dim}, at, gathered)
            for other in range(len(at.dims)):
                if other != dim and _helps(goal, other, moved) and _fits(problem, at, other, moved):
                    to = gathered.with_dim(other, at.dims[other] + moved)
                    attrs: Attrs = {"axes": moved, "split_dim": other, "concat_dim": dim}
                    yield _step(problem, "all_to_all", attrs, at, to)


def _slices(problem: Problem, at: Layout, goal: Layout) -> Iterator[Step]:
    free = [a for a in problem.mesh.names if a in goal.axes and a not in at.axes]
    for dim, wanted_here in enumerate(goal.dims):
        for axes in _subsets([a for a in wanted_here if a in free]):
            for ordered in itertools.permutations(axes):
                if _fits(problem, at, dim, ordered):
                    to = at.with_dim(dim, at.dims[dim] + ordered)
                    yield _step(problem, "shard_slice", {"axes": ordered, "dim": dim}, at, to)
    wanted = dict(goal.pending).get("sum", ())
    for axes in _subsets([a for a in free if a in wanted]):
        to = at.with_pending("sum", (*dict(at.pending).get("sum", ()), *axes), problem.mesh)
        yield _step(problem, "mask_leader", {"axes": axes}, at, to)


def _permutes(problem: Problem, at: Layout, goal: Layout) -> Iterator[Step]:
    usable = [a for a in problem.mesh.names if a not in at.pending_axes and (a in at.axes or a in goal.axes)]
    if not any(at.dims):
        return
    right = _in_place(at.dims, goal)
    for dims in _same_shards(problem.mesh, [problem.mesh.size(d) for d in at.dims], usable):
        if _in_place(dims, goal) > right:
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


def _in_place(dims: tuple[tuple[str, ...], ...], goal: Layout) -> int:
    """Number of axes that stand where the goal wants them, counted from the major end of each dim."""
    count = 0
    for have, want in zip(dims, goal.dims, strict=True):
        for a, b in zip(have, want, strict=False):
            if a != b:
                break
            count += 1
    return count


def _helps(goal: Layout, dim: int, axes: tuple[str, ...]) -> bool:
    """Does the goal want any of these axes on this dim? Steps that bring none there are not searched."""
    return any(a in goal.dims[dim] for a in axes)


def _fits(problem: Problem, at: Layout, dim: int, axes: tuple[str, ...]) -> bool:
    return nests(problem.type.shape[dim], problem.mesh.size(at.dims[dim]), problem.mesh.size(axes))


def _subsets(axes: list[str]) -> Iterator[tuple[str, ...]]:
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


@lru_cache(maxsize=65536)
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
