"""What must hold of every compiled program; shared by the property tests and the sweep."""

from __future__ import annotations

import random

import numpy as np
from properties.state import Chooser, Program

from gshard_ir.backends import reference_numpy, spmd_numpy
from gshard_ir.ir import Module
from gshard_ir.opdef import opdef
from gshard_ir.passes.partition import partition
from gshard_ir.passes.plan import Plan, local_space
from gshard_ir.passes.propagate import propagate
from gshard_ir.passes.strategies import candidates, initial
from gshard_ir.passes.traffic import of_module
from gshard_ir.pipeline import Compiled, compile_module, prepare
from gshard_ir.verify import verify


class Seeded:
    """A chooser for sweeps: a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def below(self, n: int) -> int:
        return self.random.randrange(n)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal shape, type and values, NaN equal to NaN; the sign of zero may differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "biu":
        a, b = a.astype(np.float64), b.astype(np.float64)
        return bool(np.array_equal(a, b, equal_nan=True))
    return bool(np.array_equal(a, b))


def check(program: Program, *, search: bool = True, launch_bytes: float = 16384) -> Compiled:
    """Compile, run both oracles, and assert the invariants."""
    compiled = compile_module(program.module, launch_bytes=launch_bytes, search=search)
    expected = reference_numpy.run(program.module, program.args)
    found = spmd_numpy.run(compiled.partitioned.module, program.args)
    for name, a, b in zip(program.module.main.result_names, expected, found, strict=True):
        assert same(a, b), f"{name}: unsharded\n{a}\nsharded\n{b}"
    honoured(compiled)
    admissible(compiled)
    nothing_dead(compiled.partitioned.module)
    return compiled


def nothing_dead(local: Module) -> None:
    """What a device computes and sends, somebody reads."""
    read = {v for op in local.main.body.walk() for v in op.operands} | set(local.main.results)
    for op in local.main.body.walk():
        assert any(v in read for v in op.results), f"{op.name} of {op.results[0].hint or 'a value'} is read by nobody"


def check_any_plan(program: Program, choose: Chooser) -> None:
    """Run every op in a way picked at random, cheap or not: what the rules claim must hold on all of them."""
    prepared = prepare(program.module)
    main, mesh = prepared.main, prepared.mesh
    found = propagate(main, mesh)
    tied = {op.operands[1] for op in main.body.ops if op.name == "like"}
    strategies = {}
    for op in main.body.ops:
        ways = candidates(op, found, initial(op, found))
        free = not any(v in tied for v in op.results)
        strategies[op] = ways[choose.below(len(ways))] if free else ways[0]
    params = tuple(found.layouts[v] for v in main.params)
    results = tuple(found.layouts[v] for v in main.results)
    local = partition(prepared, Plan(main, mesh, found.rules, strategies, params, results)).module
    verify(local)
    expected = reference_numpy.run(program.module, program.args)
    for name, a, b in zip(main.result_names, expected, spmd_numpy.run(local, program.args), strict=True):
        assert same(a, b), f"{name}: unsharded\n{a}\nsharded\n{b}"


def honoured(compiled: Compiled) -> None:
    """Every annotation got exactly what it asked for."""
    for value, pin in compiled.propagation.pins.items():
        layout = compiled.refined.plan.home[value]
        assert pin.honoured(layout), f"{pin.how} became {layout}"


def admissible(compiled: Compiled) -> None:
    """Never more bytes than propagation alone, and no contraction with more local work."""
    refined, mesh = compiled.refined, compiled.prepared.mesh
    assert refined.price <= refined.first_price
    for op, rule in refined.plan.rules.items():
        if opdef(op.name).family == "contraction":
            first = initial(op, compiled.propagation)
            assert local_space(rule, refined.plan.strategies[op].split, mesh) <= local_space(rule, first.split, mesh)
    sent = sum(t.sent + refined.plan.launch_bytes for _, t in of_module(compiled.partitioned.module))
    assert sent <= refined.price + 1e-6, "the emitted steps cost more than the plan was priced at"


def check_on_jax(program: Program, *, search: bool = True) -> None:
    """Emit, run on fake devices, and compare with the unsharded numpy meaning."""
    from gshard_ir.backends import jax_run, jax_shard_map

    compiled = compile_module(program.module, search=search)
    expected = reference_numpy.run(program.module, program.args)
    local = compiled.partitioned.module
    found = jax_run.run(jax_shard_map.emit(local), local, program.args)
    for name, a, b in zip(program.module.main.result_names, expected, found, strict=True):
        assert same(a, b), f"{name}: unsharded\n{a}\non jax\n{b}"
