"""Refinement: propagation proposed a plan (P0); the search takes the cheapest admissible one.

A plan is admissible when it honours every pin, keeps P0's boundary layouts, gives no contraction more
local points than P0 does, does at most 1.02 times P0's other local work, and peaks at no more than 1.05
times P0's memory. Among those it has the least (bytes sent + launch price per collective, local work).
Prices come from the steps that the partitioner will emit. The search is coordinate descent over the
strategies of ops: sweeps forwards and backwards, strict improvement, to a fixpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gshard_ir.builder import Builder
from gshard_ir.factors import Rule
from gshard_ir.ir import Op, Value, users
from gshard_ir.mesh import LAUNCH_BYTES, Mesh
from gshard_ir.opdef import opdef
from gshard_ir.passes.expand import expansion
from gshard_ir.passes.partition import run_local
from gshard_ir.passes.plan import Plan, Strategy, local_space, operand_layout, result_layout, roots_of
from gshard_ir.passes.propagate import Propagation
from gshard_ir.passes.relayout import Problem, tree
from gshard_ir.passes.strategies import candidates, initial
from gshard_ir.passes.traffic import of_op
from gshard_ir.sharding import Layout, sharded

WORK_SLACK, MEMORY_SLACK = 1.02, 1.05
EXEMPT = ("source", "broadcast")
MOST_WORK = 2**256
"""What counts of an op's points: a concat has a factor per operand, and the product of thousands fits no float."""


@dataclass(frozen=True)
class Change:
    """One step of the search: an op left ``before`` for ``after`` and the plan's price fell by ``saved`` bytes."""

    op: Op
    before: Strategy
    after: Strategy
    saved: float


@dataclass(frozen=True)
class Alternative:
    """Another way to run one op, all others as planned: what it would add to the price (bytes plus launches).

    ``work`` is the change in local points of ops other than contractions; ``obstacle`` says why the way is
    closed whatever its price, and is empty when only the price speaks against it.
    """

    strategy: Strategy
    price: float
    work: int
    obstacle: str = ""


@dataclass(frozen=True)
class Refined:
    """The plan, the price of P0 and of the plan (bytes plus launches), and what was changed on the way."""

    plan: Plan
    first_price: float
    price: float
    changes: tuple[Change, ...]
    first: Mapping[Op, Strategy]
    _search: _Search = field(repr=False)

    def alternatives(self, op: Op) -> tuple[Alternative, ...]:
        """Every other admissible way to run ``op``, cheapest first."""
        return self._search.alternatives(op)

    def peak(self) -> int:
        """Bytes of live shards on one device where they are most, copies counted where they are used."""
        return self._search.peak()


def refine(propagation: Propagation, *, launch_bytes: float = LAUNCH_BYTES, search: bool = True) -> Refined:
    """Choose a strategy per op. With ``search`` off the result is P0 itself."""
    state = _Search(propagation, launch_bytes)
    first, suggested = state.total(), dict(state.chosen)
    if search:
        state.descend()
    function = propagation.function
    plan = Plan(
        function,
        propagation.mesh,
        propagation.rules,
        dict(state.chosen),
        tuple(propagation.layouts[v] for v in function.params),
        tuple(propagation.layouts[v] for v in function.results),
        launch_bytes,
    )
    return Refined(plan, first, state.total(), tuple(state.changes), suggested, state)


@dataclass
class _Search:
    propagation: Propagation
    launch_bytes: float
    chosen: dict[Op, Strategy] = field(default_factory=dict)
    options: dict[Op, list[Strategy]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def __post_init__(self) -> None:
        function, mesh = self.propagation.function, self.propagation.mesh
        self.mesh, self.rules, self.ops = mesh, self.propagation.rules, function.body.ops
        self.roots = roots_of(function)
        self.users: dict[Value, list[tuple[Op, int]]] = {}
        for value, uses in users(function.body).items():
            self.users.setdefault(self.roots[value], []).extend(u for u in uses if u[0].name != "barrier")
        self.boundary: dict[Value, list[Layout]] = {}
        self.producer: dict[Value, tuple[Op, int]] = {v: (op, i) for op in self.ops for i, v in enumerate(op.results)}
        for value in function.results:
            self.boundary.setdefault(self.roots[value], []).append(self.propagation.layouts[value])
        self.problems = {v: Problem(v.type, mesh, self.launch_bytes) for v in self.roots.values()}
        self.internal: dict[tuple[Op, Strategy], float] = {}
        self.touched = {op: tuple(dict.fromkeys(self.roots[v] for v in (*op.operands, *op.results))) for op in self.ops}
        tied = {op.operands[1] for op in self.ops if op.name == "like"}
        for op in self.ops:
            self.chosen[op] = initial(op, self.propagation)
            fixed = op.name == "barrier" or any(v in tied for v in op.results)
            self.options[op] = [self.chosen[op]] if fixed else candidates(op, self.propagation, self.chosen[op])
        self.work = {op: self.work_of(op, self.chosen[op]) for op in self.ops}
        self.work_limit = WORK_SLACK * sum(self.work.values())
        self.memory_limit = MEMORY_SLACK * self.peak()
        self.prices = {v: self.value_price(v) for v in self.problems}

    def work_of(self, op: Op, strategy: Strategy) -> int:
        """Local points of ops other than contractions (those are held one by one) and exempt ones."""
        family = opdef(op.name).family
        if family in EXEMPT or family == "contraction":
            return 0
        return min(local_space(self.rules[op], strategy.split, self.mesh), MOST_WORK)

    def home(self, value: Value) -> Layout:
        made = self.producer.get(value)
        if made is None:
            return self.propagation.layouts[value]
        return result_layout(self.rules[made[0]], self.chosen[made[0]], made[1], self.mesh)

    def value_price(self, value: Value) -> float:
        """Price of all copies of one root value under the strategies chosen now."""
        wanted = {operand_layout(self.rules[op], self.chosen[op], i, self.mesh) for op, i in self.users.get(value, ())}
        wanted.update(self.boundary.get(value, ()))
        home = self.home(value)
        wanted.discard(home)
        return tree(self.problems[value], home, frozenset(wanted)).price if wanted else 0.0

    def op_price(self, op: Op) -> float:
        """Price of the exchanges inside an op's own local form."""
        key = (op, self.chosen[op])
        if key not in self.internal:
            self.internal[key] = inner_price(op, self.rules[op], self.chosen[op], self.mesh, self.launch_bytes)
        return self.internal[key]

    def near(self, op: Op) -> float:
        """Price of everything that the strategy of ``op`` touches, computed afresh."""
        return sum(map(self.value_price, self.touched[op])) + self.op_price(op)

    def total(self) -> float:
        return sum(self.prices.values()) + sum(map(self.op_price, self.ops))

    def peak(self) -> int:
        """Largest sum of live shards over the program, operands' relaid copies counted where they are used."""
        last = {v: i for i, op in enumerate(self.ops) for v in op.operands}
        size: dict[Value, int] = {}
        live = peak = 0
        for value in self.propagation.function.params:
            size[value] = self._bytes(value, self.home(value))
            live += size[value]
        for i, op in enumerate(self.ops):
            copies = 0
            for k, value in enumerate(op.operands):
                layout = operand_layout(self.rules[op], self.chosen[op], k, self.mesh)
                copies += self._bytes(value, layout) if layout.dims != self.home(value).dims else 0
            for value in op.results:
                size[value] = self._bytes(value, self.home(value))
                live += size[value]
            peak = max(peak, live + copies)
            live -= sum(size[v] for v in dict.fromkeys(op.operands) if last[v] == i and v in self.producer)
        return peak

    def _bytes(self, value: Value, layout: Layout) -> int:
        return layout.local_size(value.shape, self.mesh) * value.dtype.itemsize

    def descend(self) -> None:
        """Sweep until no op has a better strategy given all others."""
        improved = True
        while improved:
            improved = False
            for order in (self.ops, tuple(reversed(self.ops))):
                for op in order:
                    improved |= self._improve(op)

    def alternatives(self, op: Op) -> tuple[Alternative, ...]:
        """Price every other option of one op against the strategies chosen now."""
        kept, found = self.chosen[op], []
        before, spare = self.near(op), self.work_limit - sum(self.work.values())
        for option in self.options[op]:
            if option == kept:
                continue
            self.chosen[op] = option
            work = self.work_of(op, option) - self.work[op]
            obstacle = ""
            if work > spare:
                obstacle = f"{work:,} more local steps; {max(0, int(spare)):,} are left"
            elif self.peak() > self.memory_limit:
                obstacle = f"a peak of {self.peak():,} bytes; the limit is {int(self.memory_limit):,}"
            found.append(Alternative(option, self.near(op) - before, work, obstacle))
        self.chosen[op] = kept
        return tuple(sorted(found, key=lambda a: a.price))

    def _improve(self, op: Op) -> bool:
        old = self.chosen[op]
        before = sum(self.prices[v] for v in self.touched[op]) + self.op_price(op)
        # A strategy can only help when something near is paid for, or local work can fall.
        best, best_key = old, (0.0, 0)
        spare = self.work_limit - sum(self.work.values())
        for option in self.options[op]:
            work = self.work_of(op, option) - self.work[op]
            if option == old or work > spare or (before == 0 and work >= 0):
                continue
            self.chosen[op] = option
            key = (round(self.near(op) - before, 6), work)
            if key < best_key and self.peak() <= self.memory_limit:
                best, best_key = option, key
        self.chosen[op] = best
        if best is old:
            return False
        self.work[op] = self.work_of(op, best)
        self.prices.update({v: self.value_price(v) for v in self.touched[op]})
        self.changes.append(Change(op, old, best, -best_key[0]))
        return True


def inner_price(op: Op, rule: Rule, strategy: Strategy, mesh: Mesh, launch_bytes: float) -> float:
    """Emit the local form of an op on the side and add up what its exchanges send."""
    if expansion(op, strategy, rule) is None:
        return 0.0
    builder = Builder(op.span)
    operands = tuple(
        builder.param(sharded(v.type, operand_layout(rule, strategy, i, mesh), mesh)) for i, v in enumerate(op.operands)
    )
    run_local(builder, op, rule, strategy, mesh, operands)
    moved = [of_op(o, mesh) for o in builder.ops]
    return sum(t.sent + launch_bytes for t in moved if t is not None)
