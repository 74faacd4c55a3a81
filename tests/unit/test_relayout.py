"""The relayout planner: what it costs, and that it moves every value bit for bit."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from gshard_ir.backends.spmd_numpy import run
from gshard_ir.builder import Builder
from gshard_ir.ir import Function, Module
from gshard_ir.mesh import Mesh
from gshard_ir.passes.relayout import Problem, nests, path
from gshard_ir.passes.traffic import of_module, sending_share
from gshard_ir.sharding import Layout, sharded
from gshard_ir.types import BOOL, F32, I8, TensorType

XY = Mesh(("x", "y"), (2, 4))


def layouts(rank: int, axes: tuple[str, ...]) -> list[Layout]:
    """Every layout without pending reductions."""
    found = set()
    for where in itertools.product(range(-1, rank), repeat=len(axes)):
        for order in itertools.permutations(range(len(axes))):
            dims: list[tuple[str, ...]] = [()] * rank
            for i in order:
                if where[i] >= 0:
                    dims[where[i]] = (*dims[where[i]], axes[i])
            found.add(Layout(tuple(dims)))
    return sorted(found, key=repr)


def local_program(mesh: Mesh, type_: TensorType, route: list[Layout]) -> Module:
    """A program that only relays its argument along ``route``."""
    builder = Builder()
    value = builder.param(sharded(type_, route[0], mesh), "x")
    for a, b in itertools.pairwise(route):
        for step in path(Problem(type_, mesh), a, b):
            value = builder(step.name, value, type=sharded(type_, step.target, mesh), **step.attrs)
    function = Function("f", builder.region(value), ("x",), ("y",), (None,), (None,))
    return Module(mesh, {"f": function}, "f", local=True)


def sent(mesh: Mesh, shape: tuple[int, ...], a: Layout, b: Layout) -> float:
    return sum(s.price(0) for s in path(Problem(TensorType(F32, shape), mesh), a, b))


def lay(*dims: str, pending: str = "") -> Layout:
    split = tuple(tuple(d) for d in dims)
    return Layout(split, (("sum", tuple(pending)),) if pending else ())


@pytest.mark.parametrize(
    ("source", "target", "at_most"),
    [
        (lay("x", ""), lay("", "y"), 2048),
        (lay("xy", ""), lay("", "xy"), 1792),
        (lay("", ""), lay("y", "x"), 0),
        (lay("", "", pending="y"), lay("y", ""), 12288),
        (lay("", "", pending="y"), lay("", ""), 24576),
        (lay("x", "y"), lay("x", ""), 6144),
        (lay("yx", ""), lay("xy", ""), 2048),
    ],
)
def test_bytes_on_two_axes(source: Layout, target: Layout, at_most: float) -> None:
    assert sent(XY, (64, 64), source, target) <= at_most


@pytest.mark.parametrize(
    ("mesh", "shape", "source", "target", "received"),
    [
        ((2, 2, 2), (16, 8), lay("xyz", ""), lay("x", ""), 48),
        ((2, 2, 2), (16, 8), lay("xz", "y"), lay("x", "yz"), 8),
        ((4, 2), (16, 8), lay("y", ""), lay("", "x"), 16),
        ((2, 2, 2), (16, 8), lay("xy", ""), lay("z", ""), 64),
        ((2, 2), (8, 8, 8), lay("x", "y", ""), lay("", "x", "y"), 192),
        ((2, 2, 2), (16, 8), lay("yxz", ""), lay("z", "y"), 40),
        ((2, 3), (12, 12), lay("x", ""), lay("y", ""), 48),
        ((2, 2), (4, 10), lay("", "x"), lay("xy", ""), 15),
    ],
)
def test_no_more_than_a_known_plan(
    mesh: tuple[int, ...], shape: tuple[int, ...], source: Layout, target: Layout, received: int
) -> None:
    names = ("x", "y", "z")[: len(mesh)]
    assert sent(Mesh(names, mesh), shape, source, target) <= 4 * received


@pytest.mark.parametrize(
    ("mesh", "shape"), [((2, 2), (8, 8)), ((2, 4), (16, 8)), ((2, 2), (5, 7)), ((2, 3), (7, 10)), ((2, 3), (1, 4))]
)
def test_triangle_inequality(mesh: tuple[int, ...], shape: tuple[int, ...]) -> None:
    grid = Mesh(("x", "y"), mesh)
    every = layouts(2, grid.names)
    cost = {(a, b): sent(grid, shape, a, b) for a in every for b in every}
    for a, b, c in itertools.product(every, repeat=3):
        assert cost[a, c] <= cost[a, b] + cost[b, c] + 1e-9


@pytest.mark.parametrize(
    "type_", [TensorType(F32, (5, 6)), TensorType(I8, (8, 4)), TensorType(BOOL, (1, 7)), TensorType(F32, (0, 3))]
)
def test_there_and_back_is_the_identity(type_: TensorType) -> None:
    mesh = Mesh(("x", "y"), (2, 3))
    rng = np.random.default_rng(0)
    array = rng.integers(-100, 100, type_.shape).astype(type_.dtype.numpy())
    if type_.dtype.is_float and array.size:
        array.flat[0] = np.nan
    every = layouts(2, mesh.names)
    for a, b in itertools.product(every, repeat=2):
        (back,) = run(local_program(mesh, type_, [a, b, a]), [array])
        assert back.tobytes() == array.tobytes()


def test_every_route_between_three_axes() -> None:
    mesh, type_ = Mesh(("x", "y", "z"), (2, 2, 2)), TensorType(F32, (8, 12))
    array = np.arange(96, dtype=np.float32).reshape(8, 12)
    every = layouts(2, mesh.names)
    for a, b in zip(every, every[::-1], strict=True):
        module = local_program(mesh, type_, [a, b])
        (out,) = run(module, [array])
        assert out.tobytes() == array.tobytes()
        assert sum(t.sent for _, t in of_module(module)) == sent(mesh, (8, 12), a, b)


def random_layout(draw: random.Random, mesh: Mesh, rank: int, pending: bool = False) -> Layout:
    dims: list[tuple[str, ...]] = [()] * rank
    owed = []
    for axis in draw.sample(mesh.names, len(mesh.names)):
        where = draw.randrange(-1, rank)
        if where >= 0:
            dims[where] = (*dims[where], axis)
        elif pending and draw.random() < 0.5:
            owed.append(axis)
    return Layout(tuple(dims)).with_pending("sum", owed, mesh)


@pytest.mark.parametrize(
    ("sizes", "shape"), [((2, 2, 2, 2), (8, 6, 5)), ((2, 3, 2, 2, 1), (12, 7)), ((2,) * 6, (8, 8))]
)
def test_more_axes_than_are_searched(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Every step of a route follows from the one before, and the data survives it."""
    mesh, type_ = Mesh(tuple("abcdef"[: len(sizes)]), sizes), TensorType(F32, shape)
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    draw = random.Random(0)
    real = Mesh(*zip(*((a, n) for a, n in zip(mesh.names, mesh.sizes, strict=True) if n > 1), strict=True))
    for _ in range(15):
        a, b, c = (random_layout(draw, real, len(shape)) for _ in range(3))
        (out,) = run(local_program(mesh, type_, [a, b, c]), [array])
        assert out.tobytes() == array.tobytes()
        owed, due = random_layout(draw, real, len(shape), True), random_layout(draw, real, len(shape), True)
        at = owed
        for step in path(Problem(type_, mesh), owed, due):
            assert step.source == at
            at = step.target
        assert at == due


def test_a_mesh_of_thirty_axes_is_planned() -> None:
    mesh = Mesh(tuple(f"a{i}" for i in range(30)), (2,) * 30)
    a = Layout((mesh.names[:10], mesh.names[10:20]))
    b = Layout((mesh.names[25:30] + mesh.names[:5], mesh.names[20:25] + mesh.names[5:10]))
    steps = path(Problem(TensorType(F32, (2**20, 2**20)), mesh), a, b)
    assert steps[-1].target == b
    assert len(steps) < 20


@pytest.mark.parametrize("sizes", [(2, 4), (2, 3), (6, 4), (2, 3, 4), (3, 2, 2)])
def test_the_share_of_devices_that_send_is_counted(sizes: tuple[int, ...]) -> None:
    """Against every device's own position, also where radices do not nest."""
    mesh = Mesh(tuple("xyz"[: len(sizes)]), sizes)
    for a, b in itertools.product(layouts(2, mesh.names), repeat=2):
        if a != b and all(mesh.size(p) == mesh.size(q) for p, q in zip(a.dims, b.dims, strict=True)):
            places = [[[mesh.index(k, axes) for axes in at.dims] for k in range(mesh.devices)] for at in (a, b)]
            moving = sum(p != q for p, q in zip(*places, strict=True))
            assert sending_share(a, b, mesh) == pytest.approx(moving / mesh.devices, abs=1e-12)


def test_shares_need_no_table_of_devices() -> None:
    mesh = Mesh(("x", "y"), (2**15, 2**15))
    assert sending_share(lay("x", "y"), lay("y", "x"), mesh) == 1 - 2**-15


def test_launch_price_prefers_fewer_collectives() -> None:
    type_ = TensorType(F32, (64, 64))
    a, b = lay("x", "y"), lay("y", "x")
    cheap = path(Problem(type_, XY, 0), a, b)
    few = path(Problem(type_, XY, 1e9), a, b)
    assert len([s for s in few if s.transfer]) <= len([s for s in cheap if s.transfer])
    assert sum(s.price(0) for s in cheap) <= sum(s.price(0) for s in few)


def test_chunks_that_do_not_nest_are_gathered() -> None:
    assert not nests(10, 2, 4)
    steps = path(Problem(TensorType(F32, (10,)), XY), lay("xy"), lay("x"))
    assert [s.name for s in steps] == ["all_gather", "shard_slice"]
