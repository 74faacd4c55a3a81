"""Propagation: from the user's annotations to a layout for every value, each decision with its cause.

Iterative to a fixpoint, deterministic, monotone (axes are only ever appended to a dim). Within one
user round, forward sweeps run before backward ones, and backward ones by level: element-wise and data
movement, then broadcasts, then contractions, then factors that are reduced, scanned or looked up.
Backward sweeps also carry a split sideways, from one operand to another. A clash stops a proposal
there and is recorded with who made it and what stood in its way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gshard_ir.errors import fail
from gshard_ir.factors import Dims, Rule, to_factors
from gshard_ir.ir import Function, Op, Value
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import opdef
from gshard_ir.passes.plan import rules_of
from gshard_ir.sharding import Layout, Sharding
from gshard_ir.source import Span

LEVELS = 4


@dataclass(frozen=True)
class Cause:
    """Why ``value`` has an axis on a dim: an annotation, or a factor of ``op`` that carried it from ``source``.

    ``source`` is the (value, dim) it came from; None for an annotation, whose text is ``how``.
    """

    op: Op | None
    factor: str = ""
    source: tuple[Value, int] | None = None
    how: str = ""
    span: Span | None = None


@dataclass(frozen=True)
class Clash:
    """A proposal that lost: ``axes`` for a dim of ``value``, by ``op`` from ``source``; ``reason`` stood in its way."""

    value: Value
    dim: int
    axes: tuple[str, ...]
    op: Op
    factor: str
    source: tuple[Value, int]
    reason: str


@dataclass(frozen=True)
class Propagation:
    """Layouts by propagation alone (P0), the cause of every (value, dim, axis), and the clashes in order."""

    function: Function
    mesh: Mesh
    rules: Mapping[Op, Rule]
    layouts: Mapping[Value, Layout]
    causes: Mapping[tuple[Value, int, str], Cause]
    clashes: tuple[Clash, ...]
    pins: Mapping[Value, Pin]
    sweeps: int


@dataclass(frozen=True)
class Pin:
    """What an annotation demands of a value, on the refined mesh: axes, openness and round per dim; forbidden axes."""

    dims: tuple[tuple[str, ...], ...]
    open: tuple[bool, ...]
    rounds: tuple[int, ...]
    forbidden: frozenset[str]
    how: str
    span: Span | None

    @staticmethod
    def of(sharding: Sharding, mesh: Mesh, how: str, span: Span | None) -> Pin:
        dims = tuple(tuple(a for ref in d.axes for a in mesh.expand(ref)) for d in sharding.dims)
        forbidden = frozenset(a for ref in sharding.forbidden for a in mesh.expand(ref))
        opened = tuple(d.open for d in sharding.dims)
        return Pin(dims, opened, tuple(d.round for d in sharding.dims), forbidden, how, span)

    def honoured(self, layout: Layout) -> bool:
        """Does a layout give every dim what was asked?"""
        if layout.pending or any(a in self.forbidden for a in layout.axes):
            return False
        return all(
            got[: len(want)] == want if opened else got == want
            for got, want, opened in zip(layout.dims, self.dims, self.open, strict=True)
        )


def pins_of(function: Function, mesh: Mesh) -> dict[Value, Pin]:
    """Collect the demands of parameter types and ``annotate`` ops."""
    found: dict[Value, Pin] = {}
    for value, name, sharding in zip(function.params, function.param_names, function.param_shardings, strict=True):
        if sharding is not None and not sharding.says_nothing:
            how = f"{name}: {value.dtype}{sharding.show(value.shape)}"
            found[value] = Pin.of(sharding, mesh, how, value.span)
    for op in function.body.ops:
        asked = op.attrs.get("sharding") if op.name == "annotate" else None
        if isinstance(asked, Sharding):
            found[op.result] = Pin.of(asked, mesh, str(op.attrs["how"]), op.span)
    for pin in found.values():
        used = [a for d in pin.dims for a in d]
        if len(used) != len(set(used)) or any(a in pin.forbidden for a in used):
            raise fail(f"{pin.how} uses an axis twice, or one that it forbids", pin.span)
    return found


@dataclass
class _Slot:
    dims: list[tuple[str, ...]]
    open: list[bool]
    forbidden: frozenset[str]
    reserved: frozenset[str] = frozenset()


@dataclass
class _State:
    function: Function
    mesh: Mesh
    rules: Mapping[Op, Rule]
    slots: dict[Value, _Slot] = field(default_factory=dict)
    causes: dict[tuple[Value, int, str], Cause] = field(default_factory=dict)
    clashes: dict[tuple[int, int, tuple[str, ...], int], Clash] = field(default_factory=dict)
    changed: bool = False


def propagate(function: Function, mesh: Mesh) -> Propagation:
    """Run all rounds to their fixpoint. Raises ``GShardError`` for pins that contradict themselves."""
    state = _State(function, mesh, rules_of(function))
    pins = pins_of(function, mesh)
    for value in (*function.params, *(v for op in function.body.ops for v in op.results)):
        state.slots[value] = _slot(value, pins.get(value))
    rounds = sorted({r for pin in pins.values() for r in pin.rounds} | {0})
    sweeps = 0
    for now in rounds:
        for value, pin in pins.items():
            _activate(state, value, pin, now)
        sweeps += _fixpoint(state)
    _tie_like(state)
    layouts = {v: Layout(tuple(s.dims)) for v, s in state.slots.items()}
    clashes = tuple(state.clashes.values())
    return Propagation(function, mesh, state.rules, layouts, state.causes, clashes, pins, sweeps)


def _slot(value: Value, pin: Pin | None) -> _Slot:
    rank = value.type.rank
    if pin is None:
        return _Slot([()] * rank, [True] * rank, frozenset())
    # A pin of a later round is not a source yet, but nothing may take its place.
    reserved = frozenset(a for d in pin.dims for a in d)
    return _Slot([()] * rank, [o and not d for o, d in zip(pin.open, pin.dims, strict=True)], pin.forbidden, reserved)


def _activate(state: _State, value: Value, pin: Pin, now: int) -> None:
    slot = state.slots[value]
    for dim, (axes, opened, at) in enumerate(zip(pin.dims, pin.open, pin.rounds, strict=True)):
        if at == now:
            slot.dims[dim] = axes or slot.dims[dim]
            slot.open[dim] = opened
            for axis in axes:
                state.causes[value, dim, axis] = Cause(None, how=pin.how, span=pin.span)


def _fixpoint(state: _State) -> int:
    ops = state.function.body.ops
    sweeps = 0
    while True:
        state.changed = False
        for op in ops:
            _sweep_op(state, op, forward=True, level=LEVELS)
        sweeps += 1
        for level in range(LEVELS):
            state.changed = False
            for op in reversed(ops):
                _sweep_op(state, op, forward=False, level=level)
            sweeps += 1
            if state.changed:
                break
        else:
            return sweeps


def _level(op: Op, mark: str) -> int:
    if mark != "pass":
        return 3
    return {"elementwise": 0, "movement": 0, "annotation": 0, "broadcast": 1}.get(opdef(op.name).family, 2)


@dataclass(frozen=True)
class _Proposal:
    """``axes`` for a factor, read off dim ``dim`` of ``source``; ``rank`` orders the strongest first."""

    factor: int
    axes: tuple[str, ...]
    source: Value
    dim: int
    rank: tuple[int, int, int, int]


def _sweep_op(state: _State, op: Op, *, forward: bool, level: int) -> None:
    if op.name == "barrier" and op.attrs["direction"] in ("both", "forward" if forward else "backward"):
        return
    rule = state.rules[op]
    operands = list(zip(op.operands, rule.operands, strict=True))
    results = list(zip(op.results, rule.results, strict=True))
    if forward:
        sources, targets = operands[1:] if op.name == "like" else operands, results
    else:
        sources, targets = results + operands, operands
    proposals = [p for p in _proposals(state, op, rule, sources) if forward or p.rank[0] <= level]
    for value, dims in targets:
        for proposal in proposals:
            if proposal.source is not value:
                _offer(state, op, rule, value, dims, proposal)


def _proposals(state: _State, op: Op, rule: Rule, sources: Sequence[tuple[Value, Dims]]) -> list[_Proposal]:
    """Read what the sources' layouts propose: factors that pass through first, then larger tensors, then order."""
    found: list[_Proposal] = []
    for order, (value, dims) in enumerate(sources):
        slot = state.slots[value]
        if not any(slot.dims):
            continue
        for factor, axes in to_factors(rule, dims, Layout(tuple(slot.dims)), state.mesh).items():
            if rule.factors[factor].splittable:
                at = next(d for d, dim in enumerate(dims) if factor in dim)
                rank = (_level(op, rule.factors[factor].mark), -value.type.nbytes, order, at)
                found.append(_Proposal(factor, axes, value, at, rank))
    return sorted(found, key=lambda p: p.rank)


def _offer(
    state: _State,
    op: Op,
    rule: Rule,
    value: Value,
    dims: Dims,
    proposal: _Proposal,
) -> None:
    factor, axes, source = proposal.factor, proposal.axes, (proposal.source, proposal.dim)
    dim = next((d for d, fs in enumerate(dims) if factor in fs), None)
    if dim is None:
        return
    slot = state.slots[value]
    held = to_factors(rule, dims, Layout(tuple(slot.dims)), state.mesh)
    mine = held.get(factor, ())
    if axes == mine[: len(axes)]:
        return
    for axis in axes[len(mine) :]:
        reason = _obstacle(state, rule, dims, slot, dim, factor, mine, axes, axis, held)
        if reason:
            key = (id(value), dim, axes, id(op))
            clash = Clash(value, dim, axes, op, rule.factors[factor].name, source, reason)
            state.clashes.setdefault(key, clash)
            return
        mine = (*mine, axis)
        held[factor] = mine
        slot.dims[dim] = tuple(a for f in dims[dim] for a in held.get(f, ()))
        state.causes[value, dim, axis] = Cause(op, rule.factors[factor].name, source, span=op.span)
        state.changed = True


def _obstacle(
    state: _State,
    rule: Rule,
    dims: Dims,
    slot: _Slot,
    dim: int,
    factor: int,
    mine: tuple[str, ...],
    axes: tuple[str, ...],
    axis: str,
    held: Mapping[int, tuple[str, ...]],
) -> str:
    """Say what forbids appending ``axis`` to ``factor`` of this tensor; empty when nothing does."""
    if mine != axes[: len(mine)]:
        return f"dim {dim} is already split over {', '.join(mine)}"
    if not slot.open[dim]:
        held_axes = ", ".join(slot.dims[dim])
        return f"dim {dim} is pinned to {held_axes}" if held_axes else f"dim {dim} is pinned unsplit"
    for other, used in enumerate(slot.dims):
        if axis in used:
            return f"{axis} already splits dim {other}"
    if axis in slot.forbidden:
        return f"{axis} is forbidden here"
    if axis in slot.reserved:
        return f"{axis} is reserved for a later round"
    if len(dims[dim]) > 1:
        if slot.dims[dim] != tuple(a for f in dims[dim] for a in held.get(f, ())):
            return f"dim {dim} is split in pieces that {rule.show()} cannot name"
        trial = {**held, factor: (*mine, axis)}
        together = tuple(a for f in dims[dim] for a in trial.get(f, ()))
        flat = Layout(tuple(slot.dims)).with_dim(dim, together)
        back = to_factors(rule, dims, flat, state.mesh)
        if any(back.get(f, ()) != trial.get(f, ()) for f in dims[dim]):
            return f"the pieces of dim {dim} would not lie next to each other"
    return ""


def _tie_like(state: _State) -> None:
    """``like(x, y)`` takes exactly the layout of y, with y as the cause."""
    for op in state.function.body.ops:
        if op.name == "like":
            tied, model = op.result, op.operands[1]
            for key, clash in state.clashes.items():
                if clash.value is tied and state.slots[tied].dims[clash.dim] != state.slots[model].dims[clash.dim]:
                    state.clashes[key] = replace(clash, reason="like gives it the layout of its model")
            for dim, axes in enumerate(state.slots[model].dims):
                # An axis that it has there already may have come to y from here: its cause stays.
                gained = [a for a in axes if a not in state.slots[tied].dims[dim]]
                state.slots[tied].dims[dim] = axes
                for axis in gained:
                    state.causes[tied, dim, axis] = Cause(op, f"dim {dim}", (model, dim), "like", op.span)
