"""Do the unsharded program, the simulator and jax agree, and if not, where do they part?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gshard_ir.backends import reference_numpy, spmd_numpy
from gshard_ir.errors import InternalError
from gshard_ir.ir import Function, Module, Op, Region, Value
from gshard_ir.opdef import Array
from gshard_ir.program import Program
from gshard_ir.reasons import names_of, short
from gshard_ir.types import ShardedType

FRACTION_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
TOLERANCE = {"float64": 256.0, "float32": 256.0, "float16": 16.0, "bfloat16": 8.0}
"""Largest error that counts as rounding, in units in the last place of the largest value of the output."""

_SETTLE: dict[str, Callable[..., Array]] = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod}


@dataclass(frozen=True)
class Difference:
    """How far one output lies from the unsharded one.

    ``error`` is the largest absolute error, ``ulps`` the same in units in the last place of the output's
    largest value; infinite where one is NaN or infinite and the other is not, or where exact types differ.
    """

    against: str
    output: str
    type: str
    error: float
    ulps: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.ulps <= self.tolerance

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain data; an infinite error is null."""
        fields: dict[str, object] = {"against": self.against, "output": self.output, "type": self.type}
        error = self.error if np.isfinite(self.error) else None
        ulps = self.ulps if np.isfinite(self.ulps) else None
        return fields | {"error": error, "ulps": ulps, "tolerance": self.tolerance, "agrees": self.agrees}


@dataclass(frozen=True)
class Parting:
    """The first op whose sharded result differs although its operands were the unsharded ones."""

    against: str
    op: str
    value: str
    place: str
    error: float
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain data."""
        error = self.error if np.isfinite(self.error) else None
        fields: dict[str, object] = {"against": self.against, "op": self.op, "value": self.value}
        return fields | {"place": self.place, "error": error, "note": self.note}

    def __str__(self) -> str:
        size = f"largest error {self.error:.3g}" if np.isfinite(self.error) else "values differ"
        where = f" ({self.place})" if self.place else ""
        return f"{self.against} parts at {self.value}, {self.op}{where}: {self.note or size}"


@dataclass(frozen=True)
class Verdict:
    """Differences of every output; where they part when some output is off (None: no single op does)."""

    differences: tuple[Difference, ...]
    partings: tuple[Parting, ...]

    @property
    def agrees(self) -> bool:
        return all(d.agrees for d in self.differences)


def difference(against: str, output: str, type_: str, expected: Array, found: Array) -> Difference:
    """Compare two arrays of one type; NaN equals NaN."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return Difference(against, output, type_, np.inf, np.inf, 0.0)
    bits = FRACTION_BITS.get(expected.dtype.name)
    if bits is None:
        if np.array_equal(expected, found):
            return Difference(against, output, type_, 0.0, 0.0, 0.0)
        wide = np.abs(expected.astype(object) - found.astype(object)) if expected.dtype != bool else expected != found
        error = float(wide.max(initial=0))
        return Difference(against, output, type_, error, np.inf, 0.0)
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    error = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))
    largest = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    least = float(np.finfo(np.float64).tiny) if bits == 52 else 2.0**-126 if bits in (23, 7) else 2.0**-14
    unit = 2.0 ** (np.floor(np.log2(max(largest, least))) - bits)
    return Difference(against, output, type_, error, float(error / unit), TOLERANCE[expected.dtype.name])


def verify(program: Program, args: Sequence[Array], *, jax: bool = True) -> Verdict:
    """Run the program in every way there is and compare with its unsharded meaning."""
    main = program.lowered.main
    expected = reference_numpy.run(program.lowered, args)
    differences: list[Difference] = []
    partings: list[Parting] = []

    def against(name: str, found: Sequence[Array]) -> bool:
        new = [
            difference(name, label or "result", str(value.type), a, b)
            for label, value, a, b in zip(main.result_names, main.results, expected, found, strict=True)
        ]
        differences.extend(new)
        return all(d.agrees for d in new)

    try:
        agreed = against("simulator", spmd_numpy.run(program.local, args))
    except (spmd_numpy.DivergenceError, InternalError) as error:
        agreed = False
        differences += [
            Difference("simulator", label or "result", str(value.type), np.inf, np.inf, 0.0)
            for label, value in zip(main.result_names, main.results, strict=True)
        ]
        partings.append(Parting("simulator", "the local program", program.title, "", np.inf, str(error)))
    if not agreed:
        found = first_parting(program, args)
        partings = [found] if found is not None else partings
    if jax and not against("jax", program.executable(*args)) and agreed:
        found = first_parting_of_jax(program, args)
        partings += [found] if found is not None else []
    return Verdict(tuple(differences), tuple(partings))


def first_parting(program: Program, args: Sequence[Array]) -> Parting | None:
    """Run the local program op by op, each fed with shards of the unsharded operands, and compare results."""
    compiled, local = program.compiled, program.local
    mesh, origin = local.mesh, compiled.partitioned.origin
    unsharded = reference_numpy.trace(compiled.prepared, args)
    names = names_of(compiled.prepared.main)
    held: dict[Value, list[Array]] = {}
    for value, arg in zip(local.main.params, args, strict=True):
        assert isinstance(value.type, ShardedType)
        held[value] = spmd_numpy.shard(arg, value.type, mesh)
    for op in local.main.body.ops:
        for value, shards in zip(op.results, _step(local, op, [held[v] for v in op.operands]), strict=True):
            held[value] = shards
            source = origin.get(value)
            if source is None or not isinstance(value.type, ShardedType):
                continue
            expected = unsharded[source]
            place = short(op.span) if op.span else ""
            try:
                found = _whole(local, value.type, shards)
            except InternalError as error:
                return Parting("simulator", op.name, names[source], place, np.inf, str(error))
            gap = difference("simulator", names[source], str(source.type), expected, found)
            if not gap.agrees:
                return Parting("simulator", op.name, names[source], place, gap.error)
            if not value.type.layout.pending:
                held[value] = spmd_numpy.shard(expected, value.type, mesh)
    return None


def _step(local: Module, op: Op, operands: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """Run one op on all devices; return per result the shards."""
    distinct = tuple(dict.fromkeys(op.operands))
    given = [operands[op.operands.index(v)] for v in distinct]
    names = tuple(str(i) for i in range(max(len(distinct), len(op.results))))
    n, m = len(distinct), len(op.results)
    function = Function(op.name, Region(distinct, (op,), op.results), names[:n], names[:m], (None,) * n, (None,) * m)
    module = local.with_main(function)
    devices = range(local.mesh.devices)
    found = spmd_numpy.lockstep([module for _ in devices], [[g[d] for g in given] for d in devices], poison=True)
    return [[found[d][i] for d in devices] for i in range(m)]


def _whole(local: Module, type_: ShardedType, shards: Sequence[Array]) -> Array:
    """Settle what is pending, without the help of any collective, and join the shards."""
    mesh = local.mesh
    for kind, axes in type_.layout.pending:
        groups: dict[tuple[int, ...], list[int]] = {}
        kept = [a for a in mesh.names if a not in axes]
        places = [tuple(mesh.index(d, (a,)) for a in kept) for d in range(mesh.devices)]
        for device, place in enumerate(places):
            groups.setdefault(place, []).append(device)
        with np.errstate(all="ignore"):
            sums = {p: _SETTLE[kind](np.stack([shards[d] for d in group]), axis=0) for p, group in groups.items()}
        shards = [sums[place].astype(shards[0].dtype) for place in places]
    settled = ShardedType(type_.dtype, type_.shape, type_.whole, type_.layout.settled)
    return spmd_numpy.unshard(shards, settled, mesh)


def first_parting_of_jax(program: Program, args: Sequence[Array]) -> Parting | None:
    """Emit the local program with every settled value as a further result; return the first that is off."""
    from gshard_ir.backends import jax_run, jax_shard_map

    compiled = program.compiled
    unsharded = reference_numpy.trace(compiled.prepared, args)
    names = names_of(compiled.prepared.main)
    watched: list[tuple[Value, Value, Op]] = []
    for op in program.local.main.body.ops:
        for value in op.results:
            source = compiled.partitioned.origin.get(value)
            if source is not None and isinstance(value.type, ShardedType) and not value.type.layout.pending:
                watched.append((value, source, op))
    main = program.local.main
    values = tuple(v for v, _, _ in watched)
    labels = tuple(f"watched_{i}" for i in range(len(values)))
    body = Region(main.params, main.body.ops, values)
    wide = Function(main.name, body, main.param_names, labels, main.param_shardings, (None,) * len(values), main.span)
    local = program.local.with_main(wide)
    found = jax_run.run(jax_shard_map.emit(local), local, args)
    for (_, source, op), array in zip(watched, found, strict=True):
        gap = difference("jax", names[source], str(source.type), unsharded[source], array)
        if not gap.agrees:
            return Parting("jax", op.name, names[source], short(op.span) if op.span else "", gap.error)
    return None
