"""The numpy meaning of every op is jax's, edge cases included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from gshard_ir.opdef import infer, opdef
from gshard_ir.types import DTYPES, TensorType, dtype_of

FLOATS, INTS = ("f32", "bf16", "f16", "f64"), ("i8", "i32", "i64", "u8", "u32")
TOLERANCE = {"f64": 1e-12, "f32": 3e-6, "f16": 2e-3, "bf16": 1.6e-2}


@pytest.fixture(autouse=True)
def _wide_types():
    with jax.enable_x64(True):
        yield


def draw(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Mixed signs, ties, zeros, NaN, infinities, extremes."""
    rng, numpy = np.random.default_rng(seed), DTYPES[dtype].numpy()
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTS:
        info = np.iinfo(numpy)
        small = rng.integers(max(-9, info.min), 10, shape)
        extreme = rng.choice(np.array([info.min, info.max, info.max // 2, 0]), shape)
        return np.where(rng.random(shape) < 0.2, extreme, small).astype(numpy)
    x = np.where(rng.random(shape) < 0.5, rng.normal(0, 3, shape), rng.integers(-6, 7, shape) / 2)
    special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 100.0, -100.0], shape)
    return np.where(rng.random(shape) < 0.15, special, x).astype(numpy)


def tame(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Finite, moderate: for sums, whose order differs."""
    if dtype in INTS or dtype == "bool":
        return draw(dtype, shape, seed)
    return np.random.default_rng(seed).normal(0, 1, shape).astype(DTYPES[dtype].numpy())


def check(name: str, jaxed, *calls: tuple[np.ndarray, ...], slack: float = 1.0, **attrs) -> None:
    """Compare one op on several tuples of operands; jax compiles them together, which is what takes the time."""
    expected = jax.jit(lambda groups: [jaxed(*group) for group in groups])(calls)
    for arrays, goal in zip(calls, expected, strict=True):
        compare(name, np.asarray(goal), *arrays, slack=slack, **attrs)


def compare(name: str, expected: np.ndarray, *arrays: np.ndarray, slack: float = 1.0, **attrs) -> None:
    types = [TensorType(dtype_of(a), a.shape) for a in arrays]
    (type_,) = infer(name, types, attrs)
    found = opdef(name).reference(*arrays, **attrs)
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape) == (type_.dtype.numpy(), type_.shape) == (expected.dtype, expected.shape)
    if type_.dtype.is_float:
        loose = TOLERANCE[type_.dtype.name] * slack
        np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=loose, atol=loose, err_msg=name)
    else:
        np.testing.assert_array_equal(found, expected, err_msg=name)


UNARY = {
    "neg": (jnp.negative, FLOATS + INTS),
    "abs": (jnp.abs, FLOATS + INTS),
    "sign": (jnp.sign, FLOATS + INTS),
    "exp": (jnp.exp, FLOATS),
    "expm1": (jnp.expm1, FLOATS),
    "log": (jnp.log, FLOATS),
    "log1p": (jnp.log1p, FLOATS),
    "sqrt": (jnp.sqrt, FLOATS),
    "rsqrt": (lax.rsqrt, FLOATS),
    "tanh": (jnp.tanh, FLOATS),
    "sin": (jnp.sin, FLOATS),
    "cos": (jnp.cos, FLOATS),
    "logistic": (lax.logistic, FLOATS),
    "floor": (jnp.floor, FLOATS),
    "ceil": (jnp.ceil, FLOATS),
    "round": (jnp.round, FLOATS),
    "tan": (jnp.tan, FLOATS),
    "asin": (jnp.arcsin, FLOATS),
    "acos": (jnp.arccos, FLOATS),
    "atan": (jnp.arctan, FLOATS),
    "sinh": (jnp.sinh, FLOATS),
    "cosh": (jnp.cosh, FLOATS),
    "asinh": (jnp.arcsinh, FLOATS),
    "acosh": (jnp.arccosh, FLOATS),
    "atanh": (jnp.arctanh, FLOATS),
    "exp2": (lambda x: jnp.exp2(x.astype(jnp.promote_types(x.dtype, jnp.float32))).astype(x.dtype), FLOATS),
    "log2": (jnp.log2, FLOATS),
    "log10": (jnp.log10, FLOATS),
    "cbrt": (jnp.cbrt, FLOATS),
    "trunc": (jnp.trunc, FLOATS),
    "erf": (lax.erf, FLOATS),
    "erfc": (lax.erfc, FLOATS),
    "erf_inv": (lax.erf_inv, FLOATS),
    "lgamma": (lax.lgamma, FLOATS),
    "digamma": (lax.digamma, FLOATS),
    "population_count": (lax.population_count, INTS),
    "clz": (lax.clz, INTS),
    "stop_gradient": (lax.stop_gradient, ("bool", *FLOATS, *INTS)),
    "not": (jnp.bitwise_not, ("bool", *INTS)),
    "is_finite": (jnp.isfinite, FLOATS),
    "is_nan": (jnp.isnan, FLOATS),
}
EXACT_16 = ("f32", "f64", *INTS)
BINARY = {
    "add": (jnp.add, FLOATS + INTS),
    "sub": (jnp.subtract, FLOATS + INTS),
    "mul": (jnp.multiply, FLOATS + INTS),
    "div": (jnp.divide, FLOATS),
    "pow": (jnp.power, FLOATS + INTS),
    "max": (jnp.maximum, FLOATS + INTS),
    "min": (jnp.minimum, FLOATS + INTS),
    "fmax": (jnp.fmax, FLOATS + INTS),
    "fmin": (jnp.fmin, FLOATS + INTS),
    "atan2": (jnp.arctan2, FLOATS),
    "hypot": (jnp.hypot, FLOATS),
    "logaddexp": (jnp.logaddexp, FLOATS),
    "shift_left": (lax.shift_left, INTS),
    "shift_right_logical": (lax.shift_right_logical, INTS),
    "shift_right_arithmetic": (lax.shift_right_arithmetic, INTS),
    "rem": (lax.rem, FLOATS + INTS),
    # jax rounds 16-bit quotients at every step; the reference rounds once.
    "floor_div": (jnp.floor_divide, EXACT_16),
    "mod": (jnp.mod, EXACT_16),
    "and": (jnp.bitwise_and, ("bool", *INTS)),
    "or": (jnp.bitwise_or, ("bool", *INTS)),
    "xor": (jnp.bitwise_xor, ("bool", *INTS)),
    "eq": (jnp.equal, ("bool", *FLOATS, *INTS)),
    "ne": (jnp.not_equal, ("bool", *FLOATS, *INTS)),
    "lt": (jnp.less, ("bool", *FLOATS, *INTS)),
    "le": (jnp.less_equal, ("bool", *FLOATS, *INTS)),
    "gt": (jnp.greater, ("bool", *FLOATS, *INTS)),
    "ge": (jnp.greater_equal, ("bool", *FLOATS, *INTS)),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    jaxed, dtypes = UNARY[name]
    check(name, jaxed, *((draw(d, (9, 31), i),) for i, d in enumerate(dtypes)), (draw(dtypes[0], (), 3),))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    jaxed, dtypes = BINARY[name]
    pairs = [(draw(d, (9, 31), i), draw(d, (9, 31), 100 + i)) for i, d in enumerate(dtypes)]
    check(name, jaxed, *pairs, (draw(dtypes[0], (), 3), draw(dtypes[0], (), 4)))


def test_signed_zeros_and_sign_of_nan():
    zeros = np.array([0.0, -0.0, np.nan], np.float32)
    for name, expected in (("sign", [False, True]), ("neg", [True, False]), ("round", [False, True])):
        assert np.signbit(opdef(name).reference(zeros))[:2].tolist() == expected


def test_select():
    cases = [(draw("bool", (40,)), draw(d, (40,), 1), draw(d, (40,), 2)) for d in (*FLOATS, *INTS, "bool")]
    check("select", jnp.where, *cases)


@pytest.mark.parametrize("target", [*FLOATS, *INTS, "bool"])
def test_cast(target):
    edges = [np.nan, np.inf, -np.inf, 1e20, -1e20, 3.9, -3.9, 300, -1, -129, 2147483648.0, 4e9, -0.5, 128, 255.6, 0]
    inputs = [draw(d, (60,)) for d in (*FLOATS, *INTS, "bool")]
    with np.errstate(over="ignore"):
        inputs += [np.array(edges).astype(DTYPES[d].numpy()) for d in FLOATS]
    dtype = DTYPES[target]
    check("cast", lambda x: lax.convert_element_type(x, dtype.numpy()), *((x,) for x in inputs), dtype=dtype)


SPECS = [
    ("ab,bc->ac", (5, 7), (7, 3)),
    ("GSEC,GSM->EGCM", (2, 4, 3, 2), (2, 4, 5)),
    ("GSM,ME->GSE", (2, 3, 4), (4, 5)),
    ("a,b->ab", (3,), (4,)),
    ("ab,ab->", (3, 4), (3, 4)),
    ("abx,b->a", (3, 4, 2), (4,)),
    ("a,ab->ba", (3,), (3, 4)),
    (",ab->b", (), (3, 4)),
    ("ab->ba", (3, 4)),
    ("abc->b", (3, 4, 2)),
    ("ab,bc,cd->ad", (3, 4), (4, 2), (2, 5)),
    ("ab,b,ac->c", (3, 4), (4,), (3, 2)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s[0])
def test_einsum(spec):
    text, *shapes = spec

    def jaxed(*xs):
        # 16-bit floats are accumulated in f32 and rounded once.
        wide = [x.astype(jnp.float32) for x in xs] if xs[0].dtype.itemsize == 2 else xs
        return jnp.einsum(text, *wide).astype(xs[0].dtype)

    calls = [tuple(tame(d, s, i) for i, s in enumerate(shapes)) for d in ("f32", "bf16", "i8")]
    check("einsum", jaxed, *calls, slack=4, spec=text)


REDUCTIONS = {"reduce_sum": jnp.sum, "reduce_prod": jnp.prod, "reduce_max": jnp.max, "reduce_min": jnp.min}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [(1,), (0, 2), ()])
def test_reductions(name, axes):
    adds = name in ("reduce_sum", "reduce_prod")
    extra = (lambda x: {"dtype": x.dtype}) if adds else (lambda x: {})
    calls = [((tame if adds else draw)(d, (4, 5, 6)),) for d in ("f32", "bf16", "i8", "u32")]
    check(name, lambda x: REDUCTIONS[name](x, axis=axes, **extra(x)), *calls, slack=8, axes=axes)


def test_logical_reductions():
    x = draw("bool", (4, 3, 3))
    check("reduce_and", lambda x: jnp.all(x, axis=(1,)), (x,), axes=(1,))
    check("reduce_or", lambda x: jnp.any(x, axis=(1,)), (x,), axes=(1,))


def test_reductions_over_nothing_give_identities():
    calls = [(np.zeros((2, 0), DTYPES[d].numpy()),) for d in ("f32", "i8", "u8")]
    check("reduce_max", lambda x: lax.reduce_max(x, (1,)), *calls, axes=(1,))
    check("reduce_min", lambda x: lax.reduce_min(x, (1,)), *calls, axes=(1,))
    check("reduce_prod", lambda x: jnp.prod(x, axis=1, dtype=x.dtype), *calls, axes=(1,))


def test_half_sums_are_accumulated_in_f32():
    ones = np.ones(4000, np.float16)
    assert opdef("reduce_sum").reference(ones, axes=(0,)) == 4000
    assert opdef("einsum").reference(ones, ones, spec="a,a->") == 4000
    small = np.full(1000, 1, ml_dtypes.bfloat16)
    assert opdef("cumsum").reference(small, axis=0, reverse=False, exclusive=False)[-1] == 1000


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_argmax_and_argmin(axis):
    calls = [(draw(d, (6, 7, 3)),) for d in ("f32", "bf16", "i8", "u32")]
    check("argmax", lambda x: lax.argmax(x, axis, np.int32), *calls, axis=axis)
    check("argmin", lambda x: lax.argmin(x, axis, np.int32), *calls, axis=axis)


SCANS = {
    "cumsum": (lax.cumsum, tame, 0), "cumprod": (lax.cumprod, tame, 1), "cummax": (lax.cummax, draw, -np.inf),
    "cummin": (lax.cummin, draw, np.inf), "cumlogsumexp": (lax.cumlogsumexp, draw, -np.inf),
}  # fmt: skip


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", SCANS)
def test_scans(name, reverse):
    jaxed, make, _ = SCANS[name]
    dtypes = ("f32", "f64", "bf16") if name == "cumlogsumexp" else ("f32", "bf16", "i32", "i8", "u32")

    def theirs(x):
        # 16-bit floats are accumulated in f32 and rounded once.
        wide = x.astype(jnp.float32) if x.dtype.itemsize == 2 else x
        return jaxed(wide, 1, reverse=reverse).astype(x.dtype)

    calls = [(make(d, shape, seed),) for seed, d in enumerate(dtypes) for shape in ((3, 9), (2, 0), (4, 1))]
    check(name, theirs, *calls, slack=8, axis=1, reverse=reverse, exclusive=False)


@pytest.mark.parametrize("name", SCANS)
def test_exclusive_scans_are_inclusive_ones_moved_by_a_row(name):
    _, make, first = SCANS[name]
    x = make("f32", (7, 2))
    found = opdef(name).reference(x, axis=0, reverse=False, exclusive=True)
    inclusive = opdef(name).reference(x, axis=0, reverse=False, exclusive=False)
    np.testing.assert_array_equal(found, np.concatenate([np.full((1, 2), first, np.float32), inclusive[:-1]]))
    back = opdef(name).reference(x[::-1], axis=0, reverse=True, exclusive=True)
    np.testing.assert_array_equal(back[::-1], found)


def test_movement():
    x = draw("f32", (4, 6, 5))
    shape, dims = (4, 2, 6, 5), (0, 2, 3)
    check("broadcast", lambda y: lax.broadcast_in_dim(y, shape, dims), (x,), shape=shape, dims=dims)
    check("broadcast", lambda y: jnp.broadcast_to(y, (3, 2)), (draw("i8", ()),), shape=(3, 2), dims=())
    for shape in ((24, 5), (2, 2, 30), (120,), (4, 1, 6, 5)):
        check("reshape", lambda y, s=shape: y.reshape(s), (x,), shape=shape)
    check("transpose", lambda y: y.transpose(2, 0, 1), (x,), perm=(2, 0, 1))
    check("reverse", lambda y: lax.rev(y, (0, 2)), (x,), axes=(0, 2))
    box = {"starts": (1, 0, 2), "limits": (4, 6, 5), "strides": (2, 4, 1)}
    check("slice", lambda y: lax.slice(y, *box.values()), (x,), **box)
    parts = (x, draw("f32", (4, 0, 5)), draw("f32", (4, 2, 5)))
    check("concat", lambda *ys: jnp.concatenate(ys, 1), parts, axis=1)
    config, counts = [(0, 1, 0), (2, 0, 0), (0, 0, 0)], {"low": (0, 2, 0), "high": (1, 0, 0)}
    for value in (0.0, np.inf, 3):
        check("pad", lambda y, v=value: lax.pad(y, np.float32(v), config), (x,), **counts, value=value)


@pytest.mark.parametrize(("axis", "index"), [(0, "i32"), (1, "u32"), (2, "i64"), (1, "u8")])
def test_take(axis, index):
    lowest = -7 if index[0] == "i" else 0
    indices = np.random.default_rng(axis).integers(lowest, 7, (3, 6)).astype(DTYPES[index].numpy())
    tables = [draw(d, (5, 4, 3)) for d in ("f32", "bf16", "i8", "u8", "i32", "bool")]
    last = np.asarray(DTYPES[index].numpy().type(2))
    check("take", lambda x, i: jnp.take(x, i, axis=axis), *((x, indices) for x in tables), (tables[0], last), axis=axis)


def test_take_wraps_small_indices_by_the_true_size():
    # jnp.take adds the size in the index's own type, where 300 does not fit i8.
    x = np.arange(300, dtype=np.float32)
    assert opdef("take").reference(x, np.array([-1, 5], np.int8), axis=0).tolist() == [299, 5]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "u32"])
def test_sources(dtype):
    ours, numpy = DTYPES[dtype], DTYPES[dtype].numpy()
    check("iota", lambda: lax.broadcasted_iota(numpy, (3, 5), 1), (), dtype=ours, shape=(3, 5), axis=1)
    check("constant", lambda: jnp.full((2,), 3, numpy), (), value=3, dtype=ours, shape=(2,))


def test_bool_constants():
    check("constant", lambda: jnp.full((), True), (), value=True, dtype=DTYPES["bool"], shape=())
