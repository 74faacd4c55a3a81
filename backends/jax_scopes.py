"""Undo inlining for the reader: ops that came from one call of a def become one call again.

The result is a tree of items, ops and calls. Lazy ops (constants, broadcasts) are in no item: they are
written inside each of their users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Union

from gshard_ir.backends.jax_ops import LAZY
from gshard_ir.ir import Op, Region, Value
from gshard_ir.source import Span

REARRANGING = frozenset({"broadcast", "reshape", "transpose", "slice", "reverse"})
"""Ops that leave a tensor filled with one number as it is, but for its shape."""

MIN_OPS, MAX_INPUTS, MAX_OUTPUTS = 3, 8, 6


@dataclass(frozen=True, eq=False)
class Call:
    """A function to write and its only call: what it reads and what others read of it, in order."""

    callee: str
    site: Span
    items: tuple[Item, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


Item = Union[Op, Call]  # noqa: UP007  (the name is used before Call exists)


def ops_of(items: Sequence[Item]) -> Iterator[Op]:
    """Every op of the items, those inside calls included, in order."""
    for item in items:
        if isinstance(item, Call):
            yield from ops_of(item.items)
        else:
            yield item


@dataclass(frozen=True)
class Graph:
    """A region seen through its lazy ops: who makes a value, and which solid values it is written with."""

    region: Region
    producer: Mapping[Value, Op]
    live: frozenset[Op]
    lazy_ops: frozenset[Op]

    @staticmethod
    def of(region: Region) -> Graph:
        """Index a region; ops that reach no result are not live."""
        producer = {value: op for op in region.ops for value in op.results}
        live: set[Op] = set()
        queue = [producer[v] for v in region.results if v in producer]
        while queue:
            op = queue.pop()
            if op not in live:
                live.add(op)
                queue += [producer[v] for v in op.operands if v in producer]
        splats: set[Op] = set()
        for op in region.ops:
            made_of = (producer.get(v) for v in op.operands)
            if op.name == "constant" or (op.name in REARRANGING and all(o in splats for o in made_of)):
                splats.add(op)
        lazy = splats | {op for op in region.ops if op.name in LAZY}
        return Graph(region, producer, frozenset(live), frozenset(lazy))

    def lazy(self, value: Value) -> Op | None:
        """The lazy op that makes ``value``, if one does."""
        op = self.producer.get(value)
        return op if op in self.lazy_ops else None

    def leaves(self, value: Value) -> Iterator[Value]:
        """The named values in the text of ``value``, once per occurrence."""
        op = self.lazy(value)
        if op is None:
            yield value
        else:
            shown = op.operands[:1] if op.name in ("like", "barrier") else op.operands
            for operand in shown:
                yield from self.leaves(operand)

    def solid_ops(self) -> list[Op]:
        """Live ops that get a place of their own."""
        return [op for op in self.region.ops if op in self.live and op not in self.lazy_ops]

    @cached_property
    def readers(self) -> dict[Value, list[Op | None]]:
        """The ops with a place of their own that a solid value is written into; None stands for the results."""
        found: dict[Value, list[Op | None]] = {}
        for op in self.solid_ops():
            for value in self.reads(op):
                found.setdefault(value, []).append(op)
        for result in self.region.results:
            for value in self.leaves(result):
                found.setdefault(value, []).append(None)
        return found

    def read_outside(self, value: Value, inside: set[Op]) -> bool:
        """Is a value read by others than the ops ``inside``?"""
        return any(op not in inside for op in self.readers.get(value, ()))

    def reads(self, item: Item) -> Iterator[Value]:
        """Solid values that an item reads, once per occurrence."""
        if isinstance(item, Call):
            yield from item.inputs
        else:
            for operand in item.operands:
                yield from self.leaves(operand)


def arrange(graph: Graph) -> tuple[Item, ...]:
    """Group a region's ops by the calls they came from."""
    return _arrange(graph, graph.solid_ops(), 0)


def _arrange(graph: Graph, ops: list[Op], depth: int) -> tuple[Item, ...]:
    keys = {op: _frame(op, depth) for op in ops}
    for key in dict.fromkeys(k for k in keys.values() if k is not None):
        ops = _gather(graph, ops, {op for op in ops if keys[op] == key})
    items: list[Item] = []
    for run in _runs(ops, keys):
        if keys[run[0]] is None:
            items += run
            continue
        shared, own = _shared(graph, run)
        inner = _arrange(graph, own, depth + 1)
        call = _call(graph, own, inner, depth) if own else None
        items += _arrange(graph, run, depth + 1) if call is None else (*shared, call)
    return tuple(items)


def _shared(graph: Graph, run: list[Op]) -> tuple[list[Op], list[Op]]:
    """Split off what a call computes from its inputs alone and others use too: it is passed in, not returned."""
    made = {value for op in run for value in op.results}
    inside = set(run)
    used = {value for op in run for value in graph.reads(op)}
    shared: dict[Op, None] = {}
    for op in run:
        passed = all(v in used and graph.read_outside(v, inside) for v in op.results)
        if passed and made.isdisjoint(graph.reads(op)):
            shared[op] = None
            made -= set(op.results)
    return list(shared), [op for op in run if op not in shared]


def _frames(span: Span | None) -> list[tuple[Span, str]]:
    """Call sites and callees, outermost first."""
    found = []
    while span is not None and span.caller is not None:
        found.append((span.caller, span.callee or ""))
        span = span.caller
    return found[::-1]


def _frame(op: Op, depth: int) -> tuple[object, ...] | None:
    frames = _frames(op.span)
    if len(frames) <= depth:
        return None
    site, callee = frames[depth]
    return (site.file.name, site.line, site.column, site.end_line, site.end_column, callee)


def _gather(graph: Graph, ops: list[Op], members: set[Op]) -> list[Op]:
    """Reorder so that ``members`` stand together, if dependences allow; order is otherwise kept."""
    places = [i for i, op in enumerate(ops) if op in members]
    first, last = places[0], places[-1]
    if last - first + 1 == len(places):
        return ops
    before: list[Op] = []
    inside: list[Op] = []
    after: list[Op] = []
    late: set[Value] = set()
    tainted: set[Value] = set()
    for op in ops[first : last + 1]:
        reads = set(graph.reads(op))
        if op in members:
            if reads & late:
                return ops
            inside.append(op)
            tainted |= set(op.results)
        elif reads & (tainted | late):
            after.append(op)
            late |= set(op.results)
        else:
            before.append(op)
    return [*ops[:first], *before, *inside, *after, *ops[last + 1 :]]


def _runs(ops: list[Op], keys: Mapping[Op, object]) -> list[list[Op]]:
    runs: list[list[Op]] = []
    for op in ops:
        if runs and keys[runs[-1][0]] == keys[op]:
            runs[-1].append(op)
        else:
            runs.append([op])
    return runs


def _call(graph: Graph, run: list[Op], items: tuple[Item, ...], depth: int) -> Call | None:
    """A call made of one run, or None when a function would not help the reader."""
    inside = set(run)
    made = {value: None for op in run for value in op.results}
    inputs = dict.fromkeys(v for op in run for v in graph.reads(op) if v not in made)
    outputs = [v for v in made if graph.read_outside(v, inside)]
    site, callee = _frames(run[0].span)[depth]
    sized = len(run) >= MIN_OPS and len(inputs) <= MAX_INPUTS and 1 <= len(outputs) <= MAX_OUTPUTS
    return Call(callee, site, items, tuple(inputs), tuple(outputs)) if sized else None
