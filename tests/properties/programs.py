"""Random programs for property tests: every op, hostile sizes, annotations and meshes."""

from __future__ import annotations

from properties.makers import MAKERS
from properties.state import MESHES, Chooser, Program, State, parameter, random_shape, random_sharding

from gshard_ir.ir import Function, Module
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import OpError
from gshard_ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, KEY, U8, U32


def generate(choose: Chooser, *, exact_only: bool = False, most: int = 12) -> Program:
    """Build one random program."""
    sizes = MESHES[choose.below(len(MESHES))]
    mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
    s = State(choose, mesh, exact_only)
    kinds = [F32, F32, F32, I32, BOOL] + ([BF16] if exact_only else [F64, F16, BF16, I8, U8, I64, U32])
    for _ in range(1 + choose.below(3)):
        parameter(s, s.pick(kinds), random_shape(s, 0))
    for _ in range(2 + choose.below(most)):
        try:
            value = s.pick(MAKERS)(s)
        except OpError:
            continue
        if value is not None and value.type.size <= 4096:
            s.values.append(value)
    results = list(s.values[-3:])
    if choose.below(3) == 0:
        results.append(s.pick(s.values))
    body = s.builder.region(*results)
    names = tuple(f"p{i}" for i in range(len(s.args)))
    outs = tuple(f"r{i}" for i in range(len(results)))
    pins = tuple(
        random_sharding(s, v.type.rank) if v.type.rank and v.dtype != KEY and s.chance(4) else None for v in results
    )
    function = Function("main", body, names, outs, tuple(s.shardings), pins)
    return Program(Module(mesh, {"main": function}, "main"), s.args)
