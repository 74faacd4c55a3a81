"""All devices in one process, in lock-step: the oracle for local programs.

Every device runs its own program as a coroutine and stops at each collective. The scheduler goes on
only when all devices stand at the same collective with equal types; anything else is refused, since on
hardware it would hang. With ``poison`` every padding row is overwritten with garbage after each op, so a
program that reads padding without masking it gives visibly wrong numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from gshard_ir.backends.reference_numpy import run_op
from gshard_ir.errors import InternalError
from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import Array
from gshard_ir.passes.traffic import COLLECTIVES
from gshard_ir.sharding import Layout, chunk
from gshard_ir.types import ShardedType, TensorType

Coroutine = Generator[tuple[Op, Array], Array, tuple[Array, ...]]
COMBINE: dict[str, Callable[..., Array]] = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


class DivergenceError(Exception):
    """Devices disagree about their next collective: on hardware this program would hang."""


def run(module: Module, args: Sequence[Array], *, poison: bool = True) -> tuple[Array, ...]:
    """Run a local module on global arrays; shard the arguments, run every device, join the results.

    Raises :class:`DivergenceError` when the devices' collectives differ, ``InternalError`` when replicas of a
    result differ.
    """
    mesh, function = module.mesh, module.main
    shards = [shard(a, _sharded(p.type), mesh, poison) for a, p in zip(args, function.params, strict=True)]
    devices = [[s[d] for s in shards] for d in range(mesh.devices)]
    outputs = lockstep([module] * mesh.devices, devices, poison=poison)
    return tuple(unshard([out[i] for out in outputs], _sharded(v.type), mesh) for i, v in enumerate(function.results))


def lockstep(
    programs: Sequence[Module],
    args: Sequence[Sequence[Array]],
    *,
    poison: bool = False,
    watch: Callable[[int, Value, Array], None] | None = None,
) -> list[tuple[Array, ...]]:
    """Run one program per device side by side; ``watch(device, value, array)`` sees every local value."""
    mesh = programs[0].mesh
    running: list[Coroutine] = []
    for device, (program, given) in enumerate(zip(programs, args, strict=True)):
        running.append(_Device(program.mesh, device, poison, watch).run(program.main.body, given))
    answers: list[Array | None] = [None] * len(running)
    done: list[tuple[Array, ...] | None] = [None] * len(running)
    while True:
        at: list[tuple[Op, Array] | None] = []
        for device, routine in enumerate(running):
            try:
                answer = answers[device]
                at.append(next(routine) if answer is None else routine.send(answer))
            except StopIteration as stop:
                done[device] = stop.value
                at.append(None)
        if all(a is None for a in at):
            return [d for d in done if d is not None]
        _agree(at)
        answers = list(exchange([a for a in at if a is not None], mesh))


def _agree(at: Sequence[tuple[Op, Array] | None]) -> None:
    first = at[0]
    for device, other in enumerate(at):
        here, there = _describe(first), _describe(other)
        if here != there:
            raise DivergenceError(f"device 0 is at {here}, device {device} at {there}")


def _describe(at: tuple[Op, Array] | None) -> str:
    if at is None:
        return "its end"
    op, array = at
    attrs = ", ".join(f"{k}={v}" for k, v in sorted(op.attrs.items()))
    return f"{op.name}({array.dtype}{list(array.shape)}, {attrs})"


def exchange(at: Sequence[tuple[Op, Array]], mesh: Mesh) -> list[Array]:
    """Carry out one collective on all devices; entry d is device d's op and operand."""
    op = at[0][0]
    arrays = [a for _, a in at]
    shapes = [o.result.type.shape for o, _ in at]
    if op.name == "permute":
        return _permute(op, arrays, mesh)
    axes = _names(op.attrs["axes"])
    results: list[Array | None] = [None] * len(arrays)
    for group in _groups(mesh, axes):
        members = [arrays[d] for d in group]
        for place, device in enumerate(group):
            results[device] = _collective(op, members, place, shapes[device])
    return [r for r in results if r is not None]


def _collective(op: Op, members: list[Array], place: int, shape: tuple[int, ...]) -> Array:
    if op.name == "all_gather":
        return trim(np.concatenate(members, axis=_int(op.attrs["dim"])), shape)
    if op.name == "all_to_all":
        split, concat = _int(op.attrs["split_dim"]), _int(op.attrs["concat_dim"])
        pieces = [_piece(m, split, shape[split], place) for m in members]
        return trim(np.concatenate(pieces, axis=concat), shape)
    total = members[0].copy()
    for other in members[1:]:
        with np.errstate(all="ignore"):
            total = COMBINE[str(op.attrs["kind"])](total, other).astype(total.dtype)
    if op.name == "reduce_scatter":
        dim = _int(op.attrs["dim"])
        return _piece(total, dim, shape[dim], place)
    return total


def _piece(array: Array, dim: int, rows: int, place: int) -> Array:
    """Rows ``[place*rows, (place+1)*rows)`` of a dim, zeros past its end."""
    short = max(0, (place + 1) * rows - array.shape[dim])
    if short:
        array = np.pad(array, [(0, short if d == dim else 0) for d in range(array.ndim)])
    return np.take(array, np.arange(place * rows, (place + 1) * rows), axis=dim)


def trim(array: Array, shape: tuple[int, ...]) -> Array:
    """Drop rows past ``shape`` in every dim."""
    for dim, rows in enumerate(shape):
        array = array[(slice(None),) * dim + (slice(0, rows),)]
    return array


def permute_pairs(source: Layout, target: Layout, mesh: Mesh) -> list[tuple[int, int]]:
    """(from, to) device pairs: each block goes from its holders to those who need it, staying put where it can."""
    places = range(mesh.devices)

    def block(layout: Layout, device: int) -> tuple[int, ...]:
        pending = tuple(mesh.index(device, (a,)) for _, axes in layout.pending for a in axes)
        return (*pending, *(mesh.index(device, axes) for axes in layout.dims))

    holders: dict[tuple[int, ...], list[int]] = {}
    for d in places:
        holders.setdefault(block(source, d), []).append(d)
    pairs = []
    waiting = []
    for d in places:
        if d in holders[block(target, d)]:
            holders[block(target, d)].remove(d)
            pairs.append((d, d))
        else:
            waiting.append(d)
    pairs += [(holders[block(target, d)].pop(0), d) for d in waiting]
    return sorted(pairs, key=lambda pair: pair[1])


def _permute(op: Op, arrays: list[Array], mesh: Mesh) -> list[Array]:
    source, target = op.attrs["source"], op.attrs["target"]
    assert isinstance(source, Layout) and isinstance(target, Layout)
    return [arrays[a] for a, _ in permute_pairs(source, target, mesh)]


def _groups(mesh: Mesh, axes: tuple[str, ...]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for device in range(mesh.devices):
        base = device - sum(mesh.index(device, (a,)) * mesh.stride(a) for a in axes)
        groups.setdefault(base, []).append(device)
    return [sorted(g, key=lambda d: mesh.index(d, axes)) for g in groups.values()]


class _Device:
    """One device's interpreter: local ops at once, collectives yielded."""

    def __init__(
        self, mesh: Mesh, device: int, poison: bool, watch: Callable[[int, Value, Array], None] | None
    ) -> None:
        self.mesh, self.device, self.poison, self.watch = mesh, device, poison, watch

    def run(self, body: Region, args: Sequence[Array]) -> Coroutine:
        env: dict[Value, Array] = dict(zip(body.params, args, strict=True))
        for op in body.ops:
            operands = [env[v] for v in op.operands]
            if op.name in COLLECTIVES:
                answer = yield op, operands[0]
                found: tuple[Array, ...] = (answer,)
            else:
                found = LOCAL[op.name](self, op, operands) if op.name in LOCAL else run_op(op, operands)
            for value, array in zip(op.results, found, strict=True):
                env[value] = self._finish(op, value, array)
        return tuple(env[v] for v in body.results)

    def _finish(self, op: Op, value: Value, array: Array) -> Array:
        if tuple(array.shape[: value.type.rank]) != value.type.shape:
            raise InternalError(f"{value.hint}: computed {list(array.shape)}, the type says {value.type}")
        if self.poison and op.name != "mask_padding" and isinstance(value.type, ShardedType):
            array = spoil(array, value.type, self.mesh, self.device)
        if self.watch is not None:
            self.watch(self.device, value, array)
        return array

    def axis_index(self, op: Op, _: list[Array]) -> tuple[Array, ...]:
        return (np.asarray(self.mesh.index(self.device, _names(op.attrs["axes"])), dtype=np.int32),)

    def shard_slice(self, op: Op, operands: list[Array]) -> tuple[Array, ...]:
        dim = _int(op.attrs["dim"])
        place = self.mesh.index(self.device, _names(op.attrs["axes"]))
        return (_piece(operands[0], dim, op.result.type.shape[dim], place),)

    def mask_padding(self, op: Op, operands: list[Array]) -> tuple[Array, ...]:
        (x,) = operands
        dim, size = _int(op.attrs["dim"]), _int(op.attrs["size"])
        start = self.mesh.index(self.device, _names(op.attrs["axes"])) * x.shape[dim]
        out = x.copy()
        out[(slice(None),) * dim + (slice(max(0, size - start), None),)] = op.attrs["value"]
        return (out,)

    def mask_leader(self, op: Op, operands: list[Array]) -> tuple[Array, ...]:
        leads = self.mesh.index(self.device, _names(op.attrs["axes"])) == 0
        return (operands[0] if leads else np.zeros_like(operands[0]),)


LOCAL: Mapping[str, Callable[[_Device, Op, list[Array]], tuple[Array, ...]]] = {
    "axis_index": _Device.axis_index,
    "shard_slice": _Device.shard_slice,
    "mask_padding": _Device.mask_padding,
    "mask_leader": _Device.mask_leader,
}


def garbage(dtype: np.dtype[Any]) -> object:
    """What padding is filled with: NaN, or an extreme that no sum survives."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max - 3
    return True if dtype.kind == "b" else np.nan


def spoil(array: Array, type_: ShardedType, mesh: Mesh, device: int) -> Array:
    """Overwrite the padding rows of one device's shard with garbage."""
    for dim, axes in enumerate(type_.layout.dims):
        rows = type_.shape[dim]
        valid = max(0, type_.whole[dim] - mesh.index(device, axes) * rows) if axes else rows
        if valid < rows:
            array = array.copy()
            array[(slice(None),) * dim + (slice(valid, None),)] = garbage(array.dtype)
    return array


def shard(array: Array, type_: ShardedType, mesh: Mesh, poison: bool = True) -> list[Array]:
    """Cut a global array into one padded shard per device; padding is garbage when ``poison``."""
    shards = []
    for device in range(mesh.devices):
        piece = array
        for dim, axes in enumerate(type_.layout.dims):
            if axes:
                piece = _piece(piece, dim, type_.shape[dim], mesh.index(device, axes))
        shards.append(spoil(piece, type_, mesh, device) if poison else piece)
    return shards


def unshard(shards: Sequence[Array], type_: ShardedType, mesh: Mesh) -> Array:
    """Join shards; replicas must agree bit for bit."""
    first = shards[0]
    tail = first.shape[type_.rank :]
    whole = np.zeros((*type_.whole, *tail), dtype=first.dtype)
    seen: dict[tuple[int, ...], Array] = {}
    for device, piece in enumerate(shards):
        place = tuple(mesh.index(device, axes) for axes in type_.layout.dims)
        where = []
        for dim, at in enumerate(place):
            rows = chunk(type_.whole[dim], mesh.size(type_.layout.dims[dim]))
            start = min(at * rows, type_.whole[dim])
            where.append(slice(start, min(start + rows, type_.whole[dim])))
        valid = trim(piece, tuple(w.stop - w.start for w in where))
        if place in seen and seen[place].tobytes() != valid.tobytes():
            raise InternalError(f"replicas of a value laid out as {type_} differ: device {device}")
        seen.setdefault(place, valid)
        whole[tuple(where)] = valid
    return whole


def _sharded(type_: TensorType) -> ShardedType:
    if not isinstance(type_, ShardedType):
        raise InternalError(f"{type_} has no global meaning")
    return type_


def _names(attr: object) -> tuple[str, ...]:
    assert isinstance(attr, tuple)
    return tuple(str(a) for a in attr)


def _int(attr: object) -> int:
    assert isinstance(attr, int)
    return attr
