"""Mesh axes in annotations and types: resolve names, check that a sharding can be honoured, read device orders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend.lower_emit import show
from gshard_ir.frontend.lower_values import nearest
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.sharding import DimSharding, Sharding
from gshard_ir.source import Span

Placed = tuple[AxisRef, Span]
"""An axis and where it is written."""


def resolve_axis(mesh: Mesh, name: str, span: Span, pre: int = 1, size: int = 0) -> AxisRef:
    """Return an axis of the mesh or a piece of one; raise a diagnostic for one that is unknown or does not divide."""
    if name not in mesh.names:
        declared = ", ".join(f"{n}={s}" for n, s in zip(mesh.names, mesh.sizes, strict=True))
        raise fail(
            f"the mesh has no axis {name}",
            span,
            f"the mesh is {declared}" if declared else "the program declares no mesh",
            suggestion=nearest(name, list(mesh.names)) or (f"mesh({name}=2)" if not mesh.names else None),
        )
    if not size:
        if pre != 1:
            raise fail(f"a piece of axis {name} has at least 1 device", span)
        return AxisRef(name)
    total = mesh.size(name)
    if pre < 1 or total % (pre * size):
        sizes = [n for n in range(1, total + 1) if total % n == 0][:12]
        raise fail(
            f"{name}:({pre}){size} is not a piece of axis {name}",
            span,
            f"{pre} * {size} = {pre * size} does not divide {total}, the size of {name}",
            suggestion=f"factors of {total}: {', '.join(map(str, sizes))}" if total > 1 else None,
        )
    return AxisRef(name) if pre == 1 and size == total else AxisRef(name, pre, size)


def overlap(a: AxisRef, b: AxisRef) -> bool:
    """Tell whether two axis references share devices' coordinates; an axis always overlaps itself."""
    if a.name != b.name:
        return False
    if a == b or not (a.size and b.size):
        return True
    return a.pre < b.pre * b.size and b.pre < a.pre * a.size


def refuse_overlap(placed: Sequence[Placed]) -> None:
    """Raise a diagnostic when an axis, or a piece of one, is used twice."""
    for i, (ref, span) in enumerate(placed):
        for earlier, where in placed[:i]:
            if overlap(ref, earlier):
                same = f"axis {ref} is used twice" if ref == earlier else f"{ref} and {earlier} overlap"
                raise GShardError(
                    Diagnostic(
                        same,
                        span,
                        ("each axis can split a tensor once",),
                        also=((where, "used first here"),) if where != span else (),
                    )
                )


def make_sharding(
    dims: Sequence[DimSharding],
    placed: Sequence[Placed],
    forbidden: Sequence[Placed] = (),
) -> Sharding:
    """Return a checked annotation; ``placed`` are the axes of all dims in order, with their spans."""
    refuse_overlap(placed)
    refuse_overlap(forbidden)
    for ref, span in forbidden:
        for used, where in placed:
            if overlap(ref, used):
                raise GShardError(
                    Diagnostic(
                        f"axis {used} is used and forbidden at once",
                        span,
                        also=((where, f"{used} splits a dim here"),),
                        suggestion=f"leave {ref} out of one of the two",
                    )
                )
    return Sharding(tuple(dims), tuple(ref for ref, _ in forbidden))


def axes_of_size(mesh: Mesh, n: int, span: Span, how: str) -> tuple[AxisRef, ...]:
    """Resolve the paper's integer form: the only axis of size ``n``, or the whole mesh.

    Raises a diagnostic that lists the axes when none or several fit.
    """
    if n == 1:
        return ()
    found = [name for name, size in mesh.shape.items() if size == n]
    if len(found) == 1:
        return (AxisRef(found[0]),)
    listed = ", ".join(f"{name}={size}" for name, size in mesh.shape.items()) or "one device"
    if len(found) > 1:
        raise fail(
            f"{how}: {len(found)} axes have size {n}",
            span,
            f"the mesh is {listed}",
            suggestion=f"name the axis: {' or '.join(found)}",
        )
    if mesh.devices == n:
        return tuple(AxisRef(name) for name, size in mesh.shape.items() if size > 1)
    raise fail(
        f"{how}: no axis has size {n}",
        span,
        f"the mesh is {listed}, {mesh.devices} devices in all",
        suggestion=f"name the axis: {' or '.join(mesh.names)}" if mesh.names else "mesh(..) to declare axes",
    )


def device_order(mesh: Mesh, tiles: Sequence[int], devices: Sequence[int], span: Span) -> list[tuple[AxisRef, ...]]:
    """Read the axes that split each dim off an explicit device order.

    ``devices[i]`` holds piece ``i``, pieces counted row-major over ``tiles`` (pieces per dim). The order must
    be what some axes or pieces of axes give, exactly; raises a diagnostic with the numbers otherwise.
    """
    pieces = math.prod(tiles)
    if len(devices) != pieces:
        raise fail(f"{show(tiles)} makes {pieces} pieces, devices lists {len(devices)}", span)
    if pieces != mesh.devices:
        raise fail(
            f"{pieces} pieces for {mesh.devices} devices: each device holds exactly one",
            span,
            f"the mesh is {mesh}" if mesh.names else "the mesh is one device",
        )
    seen: set[int] = set()
    for device in devices:
        if not 0 <= device < pieces:
            raise fail(f"there is no device {device}, they are 0 to {pieces - 1}", span)
        if device in seen:
            raise fail(f"device {device} is listed twice", span, "each device holds exactly one piece")
        seen.add(device)
    if devices[0]:
        raise fail(
            f"the first piece is on device {devices[0]}",
            span,
            "axes always give the first piece to device 0; an order that starts elsewhere has no axes",
        )
    found = []
    stride = pieces
    for d, n in enumerate(tiles):
        stride //= n
        found.append(_dim_axes(mesh, [devices[k * stride] for k in range(n)], d, span))
    _check_order(mesh, tiles, devices, found, span)
    return found


def _dim_axes(mesh: Mesh, line: Sequence[int], dim: int, span: Span) -> tuple[AxisRef, ...]:
    """Return the axes, major to minor, along which the devices of one line of pieces lie."""
    found: list[AxisRef] = []
    step, n = 1, len(line)
    while step < n:
        stride, run = line[step], 1
        while run * step < n and line[run * step] == run * stride:
            run += 1
        axis, rest = _axis_at(mesh, stride)
        run = math.gcd(run, n // step, rest)
        if axis is None or run == 1:
            raise fail(
                f"the device order along dim {dim} does not follow mesh axes",
                span,
                f"its pieces are on devices {', '.join(map(str, line[:16]))}{', ..' * (n > 16)}",
                f"neighbours along the axes are {_strides(mesh)} apart",
            )
        whole = run == mesh.size(axis)
        found.append(AxisRef(axis) if whole else AxisRef(axis, _pre(mesh, axis, stride, run), run))
        step *= run
    return _merged(tuple(reversed(found)), mesh)


def _axis_at(mesh: Mesh, stride: int) -> tuple[str | None, int]:
    """Return the axis that a step of ``stride`` devices moves along, and how many such steps it has."""
    for name, size in mesh.shape.items():
        unit = mesh.stride(name)
        if size > 1 and unit <= stride < unit * size and stride % unit == 0 and size % (stride // unit) == 0:
            return name, size // (stride // unit)
    return None, 1


def _pre(mesh: Mesh, axis: str, stride: int, run: int) -> int:
    return mesh.size(axis) // (stride // mesh.stride(axis) * run)


def _merged(refs: tuple[AxisRef, ...], mesh: Mesh) -> tuple[AxisRef, ...]:
    """Join neighbouring pieces of one axis."""
    merged: list[AxisRef] = []
    for ref in refs:
        last = merged[-1] if merged else None
        if last and last.size and ref.size and last.name == ref.name and last.pre * last.size == ref.pre:
            whole = AxisRef(ref.name, last.pre, last.size * ref.size)
            merged[-1] = AxisRef(ref.name) if whole.size == mesh.size(ref.name) else whole
        else:
            merged.append(ref)
    return tuple(merged)


def _strides(mesh: Mesh) -> str:
    return ", ".join(f"{mesh.stride(n)} ({n})" for n in mesh.names)


def _position(mesh: Mesh, ref: AxisRef, device: int) -> tuple[int, int]:
    """Return a device's position along an axis or a piece, and the number of positions."""
    size = ref.size or mesh.size(ref.name)
    at = device // mesh.stride(ref.name) % mesh.size(ref.name)
    return at // (mesh.size(ref.name) // (ref.pre * size)) % size, size


def _check_order(
    mesh: Mesh, tiles: Sequence[int], devices: Sequence[int], axes: Iterable[Sequence[AxisRef]], span: Span
) -> None:
    """Refuse a device order that differs anywhere from what the axes give."""
    found = list(axes)
    for piece, device in enumerate(devices):
        index = 0
        for n, refs in zip(tiles, found, strict=True):
            at = 0
            for ref in refs:
                position, size = _position(mesh, ref, device)
                at = at * size + position
            index = index * n + at
        if index != piece:
            names = "; ".join(f"dim {d}: {', '.join(map(str, refs)) or '_'}" for d, refs in enumerate(found))
            raise fail(
                "the device order does not follow mesh axes",
                span,
                f"its first pieces lie along {names}, which gives piece {index} to device {device}",
                f"the list gives it piece {piece}",
            )
