"""Collectives and device-dependent ops: the emitted form against the lock-step simulator, bytes against XLA."""

from __future__ import annotations

import numpy as np
import pytest
from support import Array, hostile

from gshard_ir.backends import spmd_numpy
from gshard_ir.backends.hlo_traffic import Measured, measure
from gshard_ir.backends.jax_run import Executable
from gshard_ir.backends.jax_shard_map import emit
from gshard_ir.builder import Builder
from gshard_ir.ir import Attr, Function, Module, Value
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.passes.traffic import of_module
from gshard_ir.sharding import Layout, sharded
from gshard_ir.types import BOOL, F16, F32, I8, I32, KEY, DType, ShardedType, TensorType

AB = Mesh(("a", "b"), (2, 4))


def layout(text: str, mesh: Mesh = AB, pending: str = "") -> Layout:
    """``a.b|`` splits dim 0 over (a, b) and leaves dim 1 alone; pending is ``sum:a`` or ``max:a.b``."""
    dims = tuple(tuple(w for w in dim.split(".") if w) for dim in text.split("|"))
    if not pending:
        return Layout(dims)
    kind, axes = pending.split(":")
    return Layout(dims).with_pending(kind, axes.split("."), mesh)


def of(builder: Builder, mesh: Mesh, *results: Value) -> Module:
    names = tuple(f"p{i}" for i in range(len(builder.params)))
    outs = tuple(f"r{i}" for i in range(len(results)))
    function = Function("main", builder.region(*results), names, outs, (None,) * len(names), (None,) * len(outs))
    return Module(mesh, {"main": function}, "main", local=True)


def check(local: Module, args: list[Array]) -> tuple[str, Measured]:
    """Same values as the simulator, same bytes as counted; return the text and what XLA sends."""
    text = emit(local)
    executable = Executable(text, local)
    for found, expected in zip(executable(*args), spmd_numpy.run(local, args), strict=True):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found.astype(expected.dtype), expected, text)
    measured = measure(executable.lower().compile().as_text())
    counted = sum(moved.sent for _, moved in of_module(local))
    assert measured.sent == pytest.approx(counted), text
    return text, measured


def step(
    name: str,
    shape: tuple[int, ...],
    before: Layout,
    after: Layout,
    *,
    mesh: Mesh = AB,
    dtype: DType = F32,
    **attrs: Attr,
) -> tuple[str, Measured]:
    """Check one relayout. A pending operand is made from a settled one by masking, as a leader would."""
    b = Builder()
    whole = TensorType(dtype, shape)
    x = b.param(sharded(whole, before.settled, mesh), "x")
    held = x
    for _, axes in before.pending:
        shift = b("cast", b("axis_index", axes=axes), dtype=dtype)
        wide = b("broadcast", shift, shape=x.shape, dims=()) if x.shape else shift
        held = b("add", held, wide, type=sharded(whole, before, mesh))
    y = b(name, held, type=sharded(whole, after, mesh), hint="y", **attrs)
    return check(of(b, mesh, y), [hostile(whole, 1)])


@pytest.mark.parametrize("dtype", [F32, I32, I8, F16], ids=str)
@pytest.mark.parametrize("axes", [("a",), ("b",), ("a", "b")])
def test_all_reduce_sum(axes: tuple[str, ...], dtype: DType) -> None:
    pending = layout("", pending=f"sum:{'.'.join(axes)}")
    step("all_reduce", (3,), pending, layout(""), kind="sum", axes=axes, dtype=dtype)


@pytest.mark.parametrize("kind", ["max", "min", "prod"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (8,), (16, 3)])
@pytest.mark.parametrize("dtype", [F32, I32], ids=str)
def test_all_reduce_of_other_kinds_keeps_nan(kind: str, shape: tuple[int, ...], dtype: DType) -> None:
    dims = Layout.replicated(len(shape))
    axes = ("a", "b") if len(shape) == 1 else ("b",)
    step("all_reduce", shape, dims.with_pending(kind, axes, AB), dims, kind=kind, axes=axes, dtype=dtype)


def test_a_built_all_reduce_costs_what_a_ring_does_when_it_divides() -> None:
    pending = layout("", pending="max:a.b")
    _, measured = step("all_reduce", (64,), pending, layout(""), kind="max", axes=("a", "b"))
    assert measured.sent == 2 * 7 / 8 * 64 * 4
    assert dict(measured.counts) == {"all-gather": 1, "all-to-all": 1}


def test_nan_of_one_device_survives_a_max() -> None:
    b = Builder()
    x = b.param(sharded(TensorType(F32, (8,)), layout("a.b"), AB), "x")
    top = b("reduce_max", x, axes=(0,), type=sharded(TensorType(F32, ()), Layout((), (("max", ("a", "b")),)), AB))
    y = b("all_reduce", top, kind="max", axes=("a", "b"), type=sharded(TensorType(F32, ()), Layout(()), AB))
    local = of(b, AB, y)
    for place in range(8):
        array = np.arange(8, dtype=np.float32)
        array[place] = np.nan
        (found,) = Executable(emit(local), local)(array)
        assert np.isnan(found)


def test_all_reduce_of_flags() -> None:
    pending = layout("", pending="max:b")
    b = Builder()
    x = b.param(sharded(TensorType(BOOL, (4,)), layout("b"), AB), "x")
    y = b("reduce_or", x, axes=(0,), type=sharded(TensorType(BOOL, ()), Layout((), pending.pending), AB))
    z = b("all_reduce", y, kind="max", axes=("b",), type=sharded(TensorType(BOOL, ()), Layout(()), AB))
    check(of(b, AB, z), [np.array([False, False, True, False])])


@pytest.mark.parametrize(
    ("before", "after", "axes", "dim"),
    [("b|", "|", ("b",), 0), ("a.b|", "a|", ("b",), 0), ("b.a|", "|", ("b", "a"), 0), ("a|b", "a|", ("b",), 1)],
)
@pytest.mark.parametrize("shape", [(8, 4), (16, 12)])
def test_all_gather(before: str, after: str, axes: tuple[str, ...], dim: int, shape: tuple[int, int]) -> None:
    step("all_gather", shape, layout(before), layout(after), axes=axes, dim=dim)


def test_all_gather_trims_padding() -> None:
    text, _ = step("all_gather", (5, 2), layout("b|"), layout("|"), axes=("b",), dim=0)
    assert "tiled=True)[:5]" in text
    text, _ = step("all_gather", (2, 5), layout("|b"), layout("|"), axes=("b",), dim=1)
    assert "tiled=True)[:, :5]" in text


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("shape", [(8, 3), (6, 8), (7, 2)])
def test_reduce_scatter(kind: str, shape: tuple[int, int]) -> None:
    before, after = layout("|", pending=f"{kind}:b"), layout("b|")
    step("reduce_scatter", shape, before, after, kind=kind, axes=("b",), dim=0)


def test_reduce_scatter_over_two_axes_minor_first() -> None:
    before, after = layout("|", pending="sum:a.b"), layout("|b.a")
    step("reduce_scatter", (3, 16), before, after, kind="sum", axes=("b", "a"), dim=1)


@pytest.mark.parametrize(
    ("before", "after", "axes", "split", "concat"),
    [
        ("b|", "|b", ("b",), 1, 0),
        ("a.b|", "a|b", ("b",), 1, 0),
        ("a|b", "a.b|", ("b",), 0, 1),
        ("a.b|", "|a.b", ("a", "b"), 1, 0),
    ],
)
@pytest.mark.parametrize("shape", [(8, 8), (16, 8), (5, 7)])
def test_all_to_all(
    before: str, after: str, axes: tuple[str, ...], split: int, concat: int, shape: tuple[int, int]
) -> None:
    if shape == (5, 7) and "a" in (before + after) and len(axes) == 1:
        shape = (8, 7)  # chunks of one dim over two axes have to nest
    step("all_to_all", shape, layout(before), layout(after), axes=axes, split_dim=split, concat_dim=concat)


ABC = Mesh(("a", "b", "c"), (2, 2, 2))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a|", "b|"),
        ("a|b", "b|a"),
        ("a.b|", "b.a|"),
        ("a.b|c", "c.a|b"),
        ("a.b|", "a.c|"),
        ("a|b", "c|b"),
        ("a.b.c|", "c.b.a|"),
        ("a|", "c|"),
    ],
)
@pytest.mark.parametrize("shape", [(8, 8), (5, 3)])
def test_permute(before: str, after: str, shape: tuple[int, int]) -> None:
    source, target = layout(before), layout(after)
    text, measured = step("permute", shape, source, target, mesh=ABC, source=source, target=target)
    assert "lax.ppermute" in text
    assert dict(measured.counts) == {"collective-permute": 1}


@pytest.mark.parametrize("shape", [(8, 2), (5, 3), (2, 2)])
def test_shard_slice(shape: tuple[int, int]) -> None:
    step("shard_slice", shape, layout("|"), layout("b|"), axes=("b",), dim=0)
    step("shard_slice", shape, layout("|"), layout("|b.a"), axes=("b", "a"), dim=1)


def test_mask_leader() -> None:
    b = Builder()
    x = b.param(sharded(TensorType(F32, (3,)), layout(""), AB), "x")
    one = b("mask_leader", x, axes=("a", "b"), type=sharded(x.type, layout("", pending="sum:a.b"), AB))
    y = b("all_reduce", one, kind="sum", axes=("a", "b"), type=sharded(x.type, layout(""), AB))
    check(of(b, AB, y), [np.array([1, -2.5, np.nan], np.float32)])


@pytest.mark.parametrize(("value", "dtype"), [(0.0, F32), (float("-inf"), F32), (-128, I8), (True, BOOL)])
def test_mask_padding(value: float | bool, dtype: DType) -> None:
    b = Builder()
    whole = TensorType(dtype, (5, 2))
    x = b.param(sharded(whole, layout("b|"), AB), "x")
    y = b("mask_padding", x, dim=0, axes=("b",), size=5, value=value, type=x.type)
    # As a tensor of 8 whole rows, what stands in the padding is seen.
    seen = ShardedType(dtype, x.shape, (8, 2), layout("b|"))
    z = b("all_gather", Value(seen), axes=("b",), dim=0, type=sharded(TensorType(dtype, (8, 2)), layout("|"), AB))
    gather = b.ops.pop()
    b.ops.append(type(gather)(gather.name, (y,), gather.results, gather.attrs))
    (found,) = Executable(emit(of(b, AB, z)), of(b, AB, z))(hostile(whole, 2))
    np.testing.assert_array_equal(found[5:], np.full((3, 2), value, dtype.numpy()))
    np.testing.assert_array_equal(found[:5], hostile(whole, 2))


def test_draws_of_a_shard_are_those_of_the_whole() -> None:
    b = Builder()
    key = b.param(sharded(TensorType(KEY, ()), Layout(()), AB), "key")
    start = b("mul", b("axis_index", axes=("b", "a")), b.constant(1, I32))
    type_ = sharded(TensorType(F32, (8, 3)), layout("b.a|"), AB)
    y = b("uniform_shard", key, start, b.constant(0, I32), shape=(1, 3), whole=(8, 3), type=type_)
    local = of(b, AB, y)
    words = np.array([3, 9], np.uint32)
    text, measured = check(local, [words])
    assert measured.sent == 0
    one = Builder()
    key = one.param(sharded(TensorType(KEY, ()), Layout(()), AB), "key")
    everything = one("uniform", key, shape=(8, 3), type=sharded(TensorType(F32, (8, 3)), layout("|"), AB))
    (whole,) = Executable(emit(of(one, AB, everything)), of(one, AB, everything))(words)
    (found,) = Executable(text, local)(words)
    np.testing.assert_array_equal(found, whole)


def test_empty_tensors_send_nothing() -> None:
    text, measured = step("all_gather", (0, 4), layout("b|"), layout("|"), axes=("b",), dim=0)
    assert measured.sent == 0
    assert "all_gather(" not in text.split("def main")[1]


def test_pieces_of_an_axis_become_axes() -> None:
    mesh = Mesh(("model", "data"), (4, 2)).refine([AxisRef("model", 1, 2)])
    assert mesh.names == ("model:(1)2", "model:(2)2", "data")
    before = Layout((("model:(1)2", "model:(2)2"), ()))
    after = Layout((("model:(1)2",), ("model:(2)2",)))
    text, _ = step("all_to_all", (8, 6), before, after, mesh=mesh, axes=("model:(2)2",), split_dim=1, concat_dim=0)
    assert 'MESH = {"model": 4, "data": 2}' in text
    assert 'Mesh(mesh.devices.reshape((2, 2, 2)), ("model_0", "model_1", "data"))' in text
    assert 'P(("model_0", "model_1"))' in text
    assert "model:(" not in text.replace("over model:(2)2", "")


def test_a_name_that_a_piece_would_take_is_avoided() -> None:
    mesh = Mesh(("m", "m_0"), (4, 2)).refine([AxisRef("m", 2, 2)])
    text = step("all_gather", (8,), Layout((("m:(1)2",),)), Layout(((),)), mesh=mesh, axes=("m:(1)2",), dim=0)[0]
    assert '("m_0_", "m_1", "m_0")' in text


def test_a_block_that_is_all_padding_can_be_exchanged() -> None:
    mesh = Mesh(("a", "b"), (2, 2))
    b = Builder()
    x = b.param(sharded(TensorType(F32, (4, 1, 2, 6)), Layout((("a",), (), (), ("b",))), mesh), "x")
    y = b.param(sharded(TensorType(F32, (7, 2, 6)), Layout(((), (), ("b",))), mesh), "y")
    split, owed = (("a",), (), ()), (("sum", ("b",)),)
    partial = sharded(TensorType(F32, (4, 1, 2)), Layout(split, owed), mesh)
    z = b("einsum", x, y, spec="abcd,ecd->abc", type=partial)
    z = b("all_reduce", z, kind="sum", axes=("b",), type=sharded(partial, Layout(split), mesh))
    moved = sharded(partial, Layout(((), ("a",), ())), mesh)
    z = b("all_to_all", z, axes=("a",), split_dim=1, concat_dim=0, hint="z", type=moved)
    rng = np.random.default_rng(0)
    args = [rng.integers(-3, 4, s).astype(np.float32) for s in ((4, 1, 2, 6), (7, 2, 6))]
    text, measured = check(of(b, mesh, z), args)
    assert measured.counts["all-to-all"] == 1
    assert "optimization_barrier" in text
