"""Partition: a global function and a plan in, the program of one device out.

Operands are relaid on demand along each value's tree of copies, ops run on shards, reductions stay
pending until somebody needs them settled. Annotations leave no op behind: they have become layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gshard_ir.builder import Builder
from gshard_ir.errors import InternalError
from gshard_ir.factors import Rule
from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import infer, opdef
from gshard_ir.passes.expand import Site, expansion, mask_padding
from gshard_ir.passes.plan import TRANSPARENT, Plan, Strategy, operand_layout
from gshard_ir.passes.relayout import Problem, Tree, tree
from gshard_ir.passes.traffic import Transfer, of_op
from gshard_ir.sharding import Layout, sharded
from gshard_ir.types import same_array


@dataclass(frozen=True)
class Comm:
    """Why one collective is there: which global value it moves, between which layouts, and for whom.

    ``consumer`` is the op that needs the target layout, None when the function returns it.
    ``note`` is set where the exchange is part of an op's own local form (a scan, an arg-reduce).
    """

    value: Value
    producer: Op | None
    consumer: Op | None
    source: Layout | None
    target: Layout | None
    transfer: Transfer
    note: str = ""


@dataclass(frozen=True)
class Partitioned:
    """The local module, why each of its collectives exists, and how its values correspond to the global ones.

    ``origin`` maps a local value to the global one that it is a copy of; ``local`` maps a global value to
    its copy in its home layout.
    """

    module: Module
    plan: Plan
    comms: Mapping[Op, Comm]
    origin: Mapping[Value, Value]
    local: Mapping[Value, Value]


@dataclass
class _State:
    plan: Plan
    builder: Builder = field(default_factory=Builder)
    copies: dict[tuple[Value, Layout], Value] = field(default_factory=dict)
    trees: dict[Value, Tree] = field(default_factory=dict)
    producer: dict[Value, Op] = field(default_factory=dict)
    comms: dict[Op, Comm] = field(default_factory=dict)
    origin: dict[Value, Value] = field(default_factory=dict)
    moved: dict[tuple[Value, Layout], Value] = field(default_factory=dict)


def partition(module: Module, plan: Plan) -> Partitioned:
    """Return the local program of ``module``'s entry under ``plan``."""
    state = _State(plan)
    function = plan.function
    for value, wanted in plan.needs().items():
        problem = Problem(value.type, plan.mesh, plan.launch_bytes)
        state.trees[value] = tree(problem, plan.home[value], frozenset(wanted))
    for value in function.params:
        local = state.builder.param(sharded(value.type, plan.home[value], plan.mesh), value.hint, value.span)
        _keep(state, value, plan.home[value], local)
    for op in function.body.ops:
        state.producer.update(dict.fromkeys(op.results, op))
        _localize(state, op)
    results = [_fetch(state, v, layout, None) for v, layout in zip(function.results, plan.results, strict=True)]
    body = Region(tuple(state.builder.params), _live(state.builder.ops, results), tuple(results))
    local_module = Module(plan.mesh, {module.entry: function.with_body(body)}, module.entry, local=True)
    homes = {v: state.copies[plan.roots[v], plan.home[v]] for v in plan.home}
    comms = {op: state.comms[op] for op in body.ops if op in state.comms}
    return Partitioned(local_module, plan, comms, state.origin, homes)


def _live(ops: list[Op], results: list[Value]) -> tuple[Op, ...]:
    """Leave out what nobody reads, such as the model of a ``like``."""
    read, found = set(results), []
    for op in reversed(ops):
        if any(v in read for v in op.results):
            read.update(op.operands)
            found.append(op)
    return tuple(reversed(found))


def _keep(state: _State, value: Value, layout: Layout, local: Value) -> None:
    state.copies[value, layout] = local
    state.origin.setdefault(local, value)


def _fetch(state: _State, value: Value, layout: Layout, consumer: Op | None) -> Value:
    """Return a copy of ``value`` in ``layout``, making it and what it is made from."""
    value = state.plan.roots[value]
    found = state.copies.get((value, layout))
    if found is not None:
        return found
    step = state.trees[value].maker(layout)
    if step is None:
        raise InternalError(f"no way to make {value.hint or 'a value'} as {layout}")
    source = _fetch(state, value, step.source, consumer)
    # An annotated value starts from a copy of its operand: what was made of that copy is not made again.
    if (again := state.moved.get((source, layout))) is not None:
        _keep(state, value, layout, again)
        return again
    # A copy made for an annotation is the annotated value: it takes its name and its line.
    named = consumer.result if consumer is not None and consumer.name == "annotate" else value
    type_ = sharded(value.type, layout, state.plan.mesh)
    local = state.builder(step.name, source, hint=named.hint or value.hint, span=named.span, type=type_, **step.attrs)
    if step.transfer is not None:
        made = state.builder.ops[-1]
        comm = Comm(value, state.producer.get(value), consumer, step.source, layout, step.transfer)
        state.comms[made] = comm
    state.copies[value, layout] = state.moved[source, layout] = local
    state.origin[local] = named
    return local


def _localize(state: _State, op: Op) -> None:
    plan = state.plan
    rule, strategy = plan.rules[op], plan.strategies[op]
    if op.name == "barrier":
        return
    operands = tuple(
        _fetch(state, v, operand_layout(rule, strategy, i, plan.mesh), op)
        for i, v in enumerate(op.operands)
        if not (op.name == "like" and i)
    )
    if op.name in TRANSPARENT:
        _keep(state, op.result, plan.home[op.result], operands[0])
        return
    made = run_local(state.builder, op, rule, strategy, plan.mesh, operands)
    for value, local in zip(op.results, made.results, strict=True):
        _keep(state, value, plan.home[value], local)
    for at, note in made.notes.items():
        exchange = next(o for o in reversed(state.builder.ops) if at in o.results)
        moved = of_op(exchange, plan.mesh)
        assert moved is not None
        state.comms[exchange] = Comm(op.result, op, op, None, None, moved, note)


@dataclass(frozen=True)
class Made:
    """Local results of one op, with a note for each value that an exchange inside it produced."""

    results: tuple[Value, ...]
    notes: Mapping[Value, str]


def run_local(
    builder: Builder, op: Op, rule: Rule, strategy: Strategy, mesh: Mesh, operands: tuple[Value, ...]
) -> Made:
    """Emit one op on shards whose layouts are those that ``strategy`` asks for."""
    site = mask_padding(Site(builder, op, rule, strategy, mesh, operands))
    special = expansion(op, strategy, rule)
    if special is not None:
        return Made((special(site),), site.notes)
    types = tuple(site.result_type(i) for i in range(len(op.results)))
    record = opdef(op.name)
    attrs = op.attrs
    if record.localize is not None:
        attrs = record.localize(attrs, tuple(v.type for v in site.operands), types)
    inferred = infer(op.name, [v.type for v in site.operands], attrs)
    for found, stated in zip(inferred, types, strict=True):
        if not same_array(found, stated):
            raise InternalError(f"{op.name}: one device computes {found}, the layout says {stated}")
    values = tuple(Value(t, v.hint, v.span) for t, v in zip(types, op.results, strict=True))
    builder.ops.append(Op(op.name, site.operands, values, attrs, op.regions, op.span))
    return Made(values, {})
