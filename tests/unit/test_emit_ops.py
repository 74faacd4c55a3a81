"""Every op as jax says it: the emitted line computes what the op's numpy meaning computes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import gshard_ir.ops  # noqa: F401
from gshard_ir.backends import reference_numpy
from gshard_ir.backends.jax_ops import TABLE
from gshard_ir.backends.jax_run import run
from gshard_ir.backends.jax_shard_map import TABLES, emit
from gshard_ir.builder import Builder
from gshard_ir.ir import Function, Module, Value
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import REGISTRY
from gshard_ir.sharding import Layout, sharded
from gshard_ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I8, I32, I64, KEY, U8, U32, DType, TensorType

ONE = Mesh(("a",), (1,))
EXAMPLES = [(name, i) for name in TABLE for i in range(len(REGISTRY[name].examples))]
INEXACT = {
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "logistic", "pow", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "cbrt", "erf", "erfc", "erf_inv",
    "lgamma", "digamma", "atan2", "hypot", "logaddexp", "cumlogsumexp",
}  # fmt: skip


def tensor(text: str) -> TensorType:
    found = re.fullmatch(r"(\w+)(?:\[([\d,]*)\])?", text)
    assert found is not None
    return TensorType(DTYPES[found[1]], tuple(int(n) for n in (found[2] or "").split(",") if n))


def sample(type_: TensorType, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if type_.dtype == KEY:
        return rng.integers(0, 1 << 32, (*type_.shape, 2), dtype=np.uint32)
    if type_.dtype == BOOL:
        return rng.integers(0, 2, type_.shape).astype(bool)
    low = 0 if type_.dtype.kind == "u" else -4
    array = rng.integers(low, 5, type_.shape)
    return (array / 2 if type_.dtype.is_float else array).astype(type_.dtype.numpy())


def module(builder: Builder, *results: Value) -> tuple[Module, Module]:
    """The program as a global module, and the same on one device as a local one."""
    names = tuple(f"p{i}" for i in range(len(builder.params)))
    outs = tuple(f"r{i}" for i in range(len(results)))
    function = Function("main", builder.region(*results), names, outs, (None,) * len(names), (None,) * len(outs))
    whole = Module(ONE, {"main": function}, "main")
    return whole, localized(whole)


def localized(whole: Module) -> Module:
    """Every value replicated on a mesh of one device."""
    renamed: dict[Value, Value] = {}
    main = whole.main

    def local(value: Value) -> Value:
        layout = Layout.replicated(value.type.rank)
        return renamed.setdefault(value, Value(sharded(value.type, layout, ONE), value.hint, value.span))

    body = type(main.body)(
        tuple(local(v) for v in main.params),
        tuple(
            type(op)(
                op.name,
                tuple(local(v) for v in op.operands),
                tuple(local(v) for v in op.results),
                op.attrs,
                op.regions,
                op.span,
            )
            for op in main.body.ops
        ),
        tuple(local(v) for v in main.results),
    )
    return Module(ONE, {"main": main.with_body(body)}, "main", local=True)


def check(builder: Builder, *results: Value, args: list[np.ndarray[Any, Any]], ulps: int = 0, near: float = 0) -> str:
    """Run both and compare: dtypes, shapes and values, NaN equal to NaN; return the emitted text."""
    whole, local = module(builder, *results)
    text = emit(local)
    found = run(text, local, args)
    expected = reference_numpy.run(whole, args)
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), text
        wide = np.float64 if a.dtype.kind not in "iub" else a.dtype
        eps = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}.get(a.dtype.itemsize, 0.0)
        tolerance = ulps * eps if wide is np.float64 else 0
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=near * eps, err_msg=text)
    return text


def test_the_table_covers_the_registry() -> None:
    assert set(TABLES) == set(REGISTRY) - {"call"}, "calls are inlined before anything is emitted"
    assert set(TABLE) == {name for name, op in REGISTRY.items() if op.rule is not None and name != "call"}


@pytest.mark.parametrize(("name", "index"), EXAMPLES)
def test_examples(name: str, index: int) -> None:
    types, attrs = REGISTRY[name].examples[index]
    builder = Builder()
    values = [builder.param(tensor(t)) for t in types]
    args = [sample(v.type, seed) for seed, v in enumerate(values)]
    results = builder.add(name, tuple(values), **attrs)
    near = 16 if name in ("lgamma", "digamma") else 0  # they cross zero where XLA has lost the digits
    check(builder, *results, args=args, ulps=16 if name in INEXACT else 0, near=near)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16, I8, I32, I64, U8, U32], ids=str)
def test_reductions_keep_the_dtype(dtype: DType) -> None:
    b = Builder()
    x = b.param(TensorType(dtype, (3, 200)))
    array = (np.arange(600).reshape(3, 200) % 3).astype(dtype.numpy())
    results = [b("reduce_sum", x, axes=(1,)), b("reduce_prod", x, axes=(0, 1)), b("reduce_max", x, axes=(0,))]
    results += [b("argmax", x, axis=1), b("argmin", x, axis=0)]
    results += [
        b("cumsum", x, axis=0, reverse=False, exclusive=False),
        b("cumsum", x, axis=0, reverse=True, exclusive=False),
    ]
    results += [b("einsum", x, spec="ab->b"), b("einsum", x, x, spec="ab,cb->ac")]
    check(b, *results, args=[array])


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16], ids=str)
def test_float_literals(dtype: DType) -> None:
    b = Builder()
    x = b.param(TensorType(dtype, (3,)))
    results = []
    for value in (0.0, -0.0, 1.0, -2.5, 1e-9, 60000.0 if dtype == F16 else 1e30, np.nan, np.inf, -np.inf):
        constant = b.constant(float(value), dtype, (3,))
        results += [b("mul", x, constant), b("select", b("lt", x, x), x, constant), constant, b("neg", constant)]
    args = [np.array([1, 2, -3], dtype.numpy())]
    whole, local = module(b, *results)
    found, expected = run(emit(local), local, args), reference_numpy.run(whole, args)
    for a, e in zip(found, expected, strict=True):
        assert a.dtype == e.dtype
        np.testing.assert_array_equal(np.signbit(a[~np.isnan(e)]), np.signbit(e[~np.isnan(e)]))
        np.testing.assert_array_equal(a.astype(np.float64), e.astype(np.float64))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((2**31 - 1, -(2**31), 0, -1), I32),
        ((2**32 - 1, 2**31, 1), U32),
        ((255, 1), U8),
        ((-128, 127), I8),
        ((2**63 - 1, -(2**63), 2**40, 3), I64),
    ],
    ids=lambda v: str(v) if isinstance(v, DType) else "",
)
def test_integer_literals(values: tuple[int, ...], dtype: DType) -> None:
    b = Builder()
    x = b.param(TensorType(dtype, (2,)))
    results = []
    for value in values:
        constant = b.constant(value, dtype, (2,))
        results += [b("sub", x, constant), b("max", constant, x), b("eq", constant, x), constant]
        results.append(b("add", constant, constant))
    check(b, *results, args=[np.array([1, 0], dtype.numpy())])


def test_sixteen_bit_literals_round_once() -> None:
    value = 1.00390625 + 2.0**-40  # just above a tie between two bf16 numbers, lost when rounded to f32 first
    b = Builder()
    x = b.param(TensorType(BF16, (1,)))
    check(b, b("mul", x, b.constant(value, BF16, (1,))), args=[np.ones(1, BF16.numpy())])


def test_bool_literals_and_logic() -> None:
    b = Builder()
    x = b.param(TensorType(BOOL, (2,)))
    yes, no = b.constant(True, BOOL, (2,)), b.constant(False, BOOL, (2,))
    results = [b("and", x, yes), b("xor", b("or", x, no), b("not", x)), yes, b("select", x, no, yes)]
    check(b, *results, args=[np.array([True, False])])


def test_precedence_survives() -> None:
    b = Builder()
    x, y, z = (b.param(TensorType(F32, (4,))) for _ in range(3))
    results = [
        b("sub", x, b("sub", y, z)),
        b("sub", b("sub", x, y), z),
        b("mul", b("add", x, y), b("neg", b("div", y, z))),
        b("div", x, b("mul", y, z)),
        b("neg", b("pow", b("neg", x), b.constant(2.0, F32, (4,)))),
        b("cast", b("eq", b("lt", x, y), b("gt", y, z)), dtype=I32),
        b("pow", b("abs", x), b("neg", b("abs", y))),
    ]
    args = [np.array([1, -2, 3, 0.5], np.float32), np.array([2, 2, -1, 4], np.float32), np.ones(4, np.float32) * 2]
    check(b, *results, args=args, ulps=4)


def test_integer_precedence_survives() -> None:
    b = Builder()
    x, y = (b.param(TensorType(I32, (5,))) for _ in range(2))
    results = [
        b("and", b("or", x, y), b("xor", x, y)),
        b("not", b("add", x, y)),
        b("mod", b("mul", x, y), b("floor_div", x, y)),
        b("cast", b("and", b("lt", x, y), b("ne", x, y)), dtype=U8),
        b("rem", b("neg", x), y),
    ]
    check(b, *results, args=[np.array([7, -7, 5, 0, 3], np.int32), np.array([2, 3, 0, -4, -2], np.int32)])


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_broadcasts_in_element_wise_ops(dims: tuple[int, ...]) -> None:
    shape = (2, 3, 4)
    b = Builder()
    x = b.param(TensorType(F32, shape))
    y = b.param(TensorType(F32, tuple(shape[d] for d in dims)))
    wide = b("broadcast", y, shape=shape, dims=dims)
    scaled = b("mul", b("neg", wide), b.constant(2.0, F32, shape))
    results = [b("add", x, wide), scaled, b("einsum", wide, x, spec="abc,abc->a"), b("reduce_sum", scaled, axes=(0,))]
    check(b, *results, args=[sample(x.type), sample(y.type, 1)])


def test_broadcast_of_a_broadcast() -> None:
    b = Builder()
    x = b.param(TensorType(F32, (3,)))
    y = b.param(TensorType(F32, ()))
    one = b("broadcast", x, shape=(2, 3), dims=(1,))
    two = b("broadcast", one, shape=(2, 5, 3, 4), dims=(0, 2))
    scalar = b("broadcast", y, shape=(2, 5, 3, 4), dims=())
    results = [b("add", two, scalar), two, scalar, b("transpose", two, perm=(3, 2, 1, 0))]
    check(b, *results, args=[sample(x.type), np.float32(3)])


def test_a_reduction_put_back_at_once_keeps_its_dims() -> None:
    b = Builder()
    x = b.param(TensorType(F32, (2, 3, 4)), "x")
    top = b("reduce_max", x, axes=(1,))
    text = check(b, b("sub", x, b("broadcast", top, shape=(2, 3, 4), dims=(0, 2)), hint="y"), args=[sample(x.type)])
    assert "p0 - jnp.max(p0, axis=1, keepdims=True)" in text


def test_well_known_idioms() -> None:
    b = Builder()
    x = b.param(TensorType(F32, (2, 3)), "x")
    e = b("argmax", x, axis=1, hint="e")
    wide = b("broadcast", e, shape=(2, 3), dims=(0,))
    hot = b("cast", b("eq", wide, b("iota", dtype=I32, shape=(2, 3), axis=1)), dtype=F32, hint="hot")
    h = b("max", x, b.constant(0.0, F32, (2, 3)), hint="h")
    text = check(b, hot, h, args=[sample(x.type)])
    assert "jax.nn.one_hot(e, 3, dtype=jnp.float32)" in text
    assert "jax.nn.relu(p0)" in text


def test_empty_shapes() -> None:
    b = Builder()
    x = b.param(TensorType(F32, (0, 3)))
    results = [b("reduce_sum", x, axes=(0,)), b("neg", x), b("concat", x, x, axis=0), b("transpose", x, perm=(1, 0))]
    check(b, *results, args=[np.zeros((0, 3), np.float32)])


@pytest.mark.parametrize("shape", [(), (1,), (5,), (3, 4), (2, 3, 4)])
def test_draws_equal_those_of_jax(shape: tuple[int, ...]) -> None:
    import jax

    b = Builder()
    key = b.param(TensorType(KEY, ()))
    data = b.param(TensorType(I32, ()))
    folded = b("fold_in", key, data)
    results = [b("uniform", key, shape=shape), b("uniform", folded, shape=shape), folded]
    words = np.array([7, 2**32 - 5], np.uint32)
    text = check(b, *results, args=[words, np.asarray(-3, np.int32)])
    _, local = module(b, *results)
    found = run(text, local, [words, np.asarray(-3, np.int32)])
    theirs = jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")
    np.testing.assert_array_equal(found[0], jax.random.uniform(theirs, shape, jax.numpy.float32))
    again = jax.random.fold_in(theirs, jax.numpy.int32(-3))
    np.testing.assert_array_equal(found[1], jax.random.uniform(again, shape, jax.numpy.float32))
    np.testing.assert_array_equal(found[2], jax.random.key_data(again))
