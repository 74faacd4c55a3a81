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
            suggestion=nearest(name, list(mesh.names)) or " or ".join(mesh.names[:4]) or f"mesh({name}=2)",
        )
    if not size:
        if pre != 1:
            raise fail(f"a piece of axis {name} has at least 1 device", span)
        return AxisRef(name)
    total = mesh.size(name)
    if pre < 1 or total % (pre * size):
        raise fail(
            f"{name}:({pre}){size} is not a piece of axis {name}",
            span,
            f"{pre} * {size} = {pre * size} does not divide {total}, the size of {name}",
            suggestion=_piece(name, pre, size, total),
        )
    return AxisRef(name) if pre == 1 and size == total else AxisRef(name, pre, size)


def _piece(name: str, pre: int, size: int, total: int) -> str:
    """Return the piece of an axis that is most like one that does not divide it."""
    first = max(n for n in _divisors(total) if n <= max(pre, 1))
    sizes = [n for n in _divisors(total // first) if n > 1]
    best = min(sizes, key=lambda n: (abs(n - size), n), default=0)
    return str(AxisRef(name, first, best)) if best and best < total else name


def _divisors(n: int) -> list[int]:
    """Return the divisors of a number below 2**31, in about its square root of steps."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return [*small, *(n // k for k in reversed(small) if k * k != n)]


def overlap(a: AxisRef, b: AxisRef) -> bool:
    """Tell whether two axis references share devices' coordinates; an axis always overlaps itself."""
    if a.name != b.name:
        return False
    if a == b or not (a.size and b.size):
        return True
    return a.pre < b.pre * b.size and b.pre < a.pre * a.size


def refuse_overlap(placed: Sequence[Placed], mesh: Mesh | None = None) -> None:
    """Raise a diagnostic when an axis, or a piece of one, is used twice; ``mesh`` offers another axis."""
    for i, (ref, span) in enumerate(placed):
        for earlier, where in placed[:i]:
            if overlap(ref, earlier):
                used = {used.name for used, _ in placed}
                free = [name for name in mesh.names if name not in used] if mesh else []
                raise GShardError(
                    Diagnostic(
                        f"axis {ref} is used twice" if ref == earlier else f"{ref} and {earlier} overlap",
                        span,
                        ("each axis can split a tensor once",),
                        " or ".join(free[:4]) or f"leave {ref} out of one of the two",
                        also=((where, "used first here"),) if where != span else (),
                    )
                )


def make_sharding(
    dims: Sequence[DimSharding],
    placed: Sequence[Placed],
    forbidden: Sequence[Placed] = (),
    mesh: Mesh | None = None,
) -> Sharding:
    """Return a checked annotation; ``placed`` are the axes of all dims in order, with their spans."""
    refuse_overlap(placed, mesh)
    for i, (ref, span) in enumerate(forbidden):
        if any(overlap(ref, earlier) for earlier, _ in forbidden[:i]):
            raise fail(f"axis {ref} is forbidden twice", span, suggestion="once is enough")
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


def device_order(
    mesh: Mesh, tiles: Sequence[int], devices: Sequence[int], span: Span, places: Sequence[Span] = ()
) -> list[tuple[AxisRef, ...]]:
    """Read the axes that split each dim off an explicit device order.

    ``devices[i]``, written at ``places[i]`` of ``span``, holds piece ``i``, pieces counted row-major over
    ``tiles`` (pieces per dim). The order must be what some axes or pieces of axes give, exactly; raises a
    diagnostic with the numbers otherwise.
    """
    pieces = math.prod(tiles)
    if len(devices) != pieces:
        message = f"{show(tiles)} makes {pieces} pieces, devices lists {len(devices)}"
        raise fail(message, span, suggestion=in_order(mesh) if pieces == mesh.devices else None)
    if pieces != mesh.devices:
        raise fail(
            f"{pieces} pieces for {mesh.devices} devices: each device holds exactly one",
            span,
            f"the mesh is {mesh}" if mesh.names else "the mesh is one device",
        )
    _check_devices(devices, places or [span] * pieces)
    if devices[0]:
        raise fail(
            f"the first piece is on device {devices[0]}",
            span,
            "axes always give the first piece to device 0; an order that starts elsewhere has no axes",
            suggestion=in_order(mesh),
        )
    found = []
    stride = pieces
    for d, n in enumerate(tiles):
        stride //= n
        found.append(_dim_axes(mesh, [devices[k * stride] for k in range(n)], d, span))
    _check_order(mesh, tiles, devices, found, span)
    return found


def _check_devices(devices: Sequence[int], places: Sequence[Span]) -> None:
    """Refuse numbers that are not each of the devices once."""
    absent = min(set(range(len(devices))) - set(devices), default=0)
    seen: set[int] = set()
    for device, place in zip(devices, places, strict=True):
        if not 0 <= device < len(devices):
            raise fail(f"there is no device {device}, they are 0 to {len(devices) - 1}", place, suggestion=f"{absent}")
        if device in seen:
            note = "each device holds exactly one piece"
            raise fail(f"device {device} is listed twice", place, note, suggestion=f"{absent}")
        seen.add(device)


def mesh_order(mesh: Mesh, tiles: Sequence[int], span: Span) -> list[tuple[AxisRef, ...]]:
    """Return the axes that split each dim when pieces, counted row-major over ``tiles``, lie on devices 0, 1, 2, ..

    The pieces must be as many as the devices; raises a diagnostic when no axes or pieces of axes do that.
    """
    left = [(name, 1, size) for name, size in mesh.shape.items() if size > 1]
    found = []
    for d, n in enumerate(tiles):
        refs: list[AxisRef] = []
        while n > 1:
            name, pre, size = left.pop(0)
            run = math.gcd(n, size)
            if run == 1:
                raise fail(
                    f"{show(tiles)} pieces along dim {d} do not follow mesh axes",
                    span,
                    f"the mesh is {mesh}, and {n} of the pieces meet {size} devices of {name}",
                    suggestion="sizes that are products of the axes, major to minor",
                )
            refs.append(AxisRef(name) if run == mesh.size(name) else AxisRef(name, pre, run))
            if run < size:
                left.insert(0, (name, pre * run, size // run))
            n //= run
        found.append(tuple(refs))
    return found


def in_order(mesh: Mesh) -> str:
    """Return a device order that every mesh allows, as a suggestion."""
    return f"[{', '.join(map(str, range(mesh.devices)))}]" if mesh.devices <= 16 else "leave devices= out"


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
                suggestion=in_order(mesh),
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
                suggestion=in_order(mesh),
            )
