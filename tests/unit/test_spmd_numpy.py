"""The lock-step simulator: it refuses what would hang, and its poison shows unmasked padding."""

from __future__ import annotations

import numpy as np
import pytest

from gshard_ir.backends.spmd_numpy import DivergenceError, lockstep, permute_pairs, run, shard, unshard
from gshard_ir.builder import Builder
from gshard_ir.errors import InternalError
from gshard_ir.ir import Function, Module
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Layout, sharded
from gshard_ir.types import F32, TensorType

MESH = Mesh(("a",), (2,))
WHOLE = TensorType(F32, (3,))
SPLIT = Layout((("a",),))


def program(*ops: str) -> Module:
    """Sum the shards of x over a with the given collectives."""
    builder = Builder()
    x = builder.param(sharded(WHOLE, SPLIT, MESH), "x")
    if "mask" in ops:
        x = builder("mask_padding", x, dim=0, axes=("a",), size=3, value=0, type=x.type)
    scalar = TensorType(F32, ())
    total = builder("reduce_sum", x, axes=(0,), type=sharded(scalar, Layout((), (("sum", ("a",)),)), MESH))
    if "max" in ops:
        total = builder("all_reduce", total, kind="max", axes=("a",), type=sharded(scalar, Layout(()), MESH))
    if "sum" in ops:
        total = builder("all_reduce", total, kind="sum", axes=("a",), type=sharded(scalar, Layout(()), MESH))
    function = Function("f", builder.region(total), ("x",), ("y",), (None,), (None,))
    return Module(MESH, {"f": function}, "f", local=True)


X = np.array([-1, 2, 5], np.float32)


def test_masked_padding_is_not_seen() -> None:
    (y,) = run(program("mask", "sum"), [X])
    assert y == 6


def test_poison_shows_unmasked_padding() -> None:
    (y,) = run(program("sum"), [X])
    assert np.isnan(y)
    (hidden,) = run(program("sum"), [X], poison=False)
    assert hidden == 6


@pytest.mark.parametrize("other", [("max",), (), ("max", "sum")])
def test_devices_that_disagree_are_refused(other: tuple[str, ...]) -> None:
    programs = [program("sum"), program(*other)]
    shards = shard(X, programs[0].main.params[0].type, MESH)  # type: ignore[arg-type]
    with pytest.raises(DivergenceError, match="device 1 at"):
        lockstep(programs, [[s] for s in shards])


def test_replicas_that_differ_are_refused() -> None:
    type_ = sharded(TensorType(F32, (2,)), Layout(((),)), MESH)
    with pytest.raises(InternalError, match="replicas"):
        unshard([np.zeros(2, np.float32), np.ones(2, np.float32)], type_, MESH)


def test_shards_join_to_the_whole() -> None:
    mesh = Mesh(("a", "b"), (3, 2))
    for dims in [(("a", "b"), ()), (("b",), ("a",)), ((), ("b", "a")), ((), ())]:
        for shape in [(7, 4), (1, 5), (0, 2), (6, 6)]:
            type_ = sharded(TensorType(F32, shape), Layout(dims), mesh)
            array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            assert unshard(shard(array, type_, mesh), type_, mesh).tobytes() == array.tobytes()


def test_permute_pairs_are_a_bijection_that_moves_least() -> None:
    mesh = Mesh(("x", "y"), (2, 4))
    pairs = permute_pairs(Layout(((), ("x", "y"))), Layout(((), ("y", "x"))), mesh)
    assert sorted(pairs) == [(0, 0), (1, 4), (2, 1), (3, 5), (4, 2), (5, 6), (6, 3), (7, 7)]
    assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == list(range(8))
