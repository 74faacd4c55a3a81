"""What expressions mean: each is lowered, run on the reference and compared with numpy or jax.nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_ir.backends import reference_numpy
from gshard_ir.frontend.lower import lower
from gshard_ir.frontend.parser import parse
from gshard_ir.ir import Module
from gshard_ir.source import SourceFile
from gshard_ir.verify import verify

Array = np.ndarray[Any, np.dtype[Any]]

PARAMS = """x: f32[3,4], y: f32[4], z: f32[3,1], i: i32[3,4], j: i32[5], b: bool[3,4], h: bf16[3,4], s: f32[2,3,4],
         t: f32[], k: key"""


def program(text: str, name: str = "test.gshard", **options: Any) -> Module:
    module = lower(parse(SourceFile(name, text)), **options)
    verify(module)
    return module


def inputs() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=(3, 4)).astype(np.float32),
        "y": rng.normal(size=4).astype(np.float32),
        "z": rng.normal(size=(3, 1)).astype(np.float32),
        "i": rng.integers(-5, 6, (3, 4), np.int32),
        "j": np.array([0, 2, -1, 1, 2], np.int32),
        "b": rng.random((3, 4)) < 0.5,
        "h": np.asarray(jnp.asarray(rng.normal(size=(3, 4)), jnp.bfloat16)),
        "s": rng.normal(size=(2, 3, 4)).astype(np.float32),
        "t": np.float32(1.5),
        "k": np.array([1, 2], np.uint32),
    }


def value(expression: str) -> Array:
    """Evaluate one expression over the shared inputs."""
    module = program(f"def main({PARAMS}):\n    return {expression}\n")
    (result,) = reference_numpy.run(module, [np.asarray(a) for a in inputs().values()])
    return result


NUMPY: list[tuple[str, Callable[[dict[str, Array]], Any]]] = [
    # arithmetic and broadcasting
    ("x + y", lambda v: v["x"] + v["y"]),
    ("x * z - y / 2", lambda v: v["x"] * v["z"] - v["y"] / 2),
    ("s + x * z", lambda v: v["s"] + v["x"] * v["z"]),
    ("1 - x", lambda v: 1 - v["x"]),
    ("2 / (x * x + 1)", lambda v: 2 / (v["x"] * v["x"] + 1)),
    ("-x + t", lambda v: -v["x"] + v["t"]),
    ("i // 3", lambda v: v["i"] // 3),
    ("i % 3", lambda v: v["i"] % 3),
    ("7 // (i * i + 1)", lambda v: 7 // (v["i"] * v["i"] + 1)),
    ("x ** 2", lambda v: v["x"] * v["x"]),
    ("x ** 3", lambda v: v["x"] * (v["x"] * v["x"])),
    ("x ** 0", lambda v: np.ones((3, 4), np.float32)),
    ("(x + 5) ** -1", lambda v: 1 / (v["x"] + 5)),
    ("abs(x) ** 0.5", lambda v: np.abs(v["x"]) ** np.float32(0.5)),
    ("i & 3 | 8", lambda v: v["i"] & 3 | 8),
    ("i ^ i", lambda v: v["i"] ^ v["i"]),
    ("~b", lambda v: ~v["b"]),
    ("b & (x > 0.0) | ~b", lambda v: v["b"] & (v["x"] > 0) | ~v["b"]),
    ("x >= y", lambda v: v["x"] >= v["y"]),
    ("0 < i", lambda v: v["i"] > 0),
    ("i == 2", lambda v: v["i"] == 2),
    ("x if 2 > 1 else y", lambda v: v["x"]),
    ("x + (1 if False or not True else 2)", lambda v: v["x"] + 2),
    # functions
    ("maximum(x, 0)", lambda v: np.maximum(v["x"], 0)),
    ("minimum(y, x)", lambda v: np.minimum(v["y"], v["x"])),
    ("fmod(i, 3)", lambda v: np.fmod(v["i"], 3)),
    ("where(b, x, 0.0)", lambda v: np.where(v["b"], v["x"], np.float32(0))),
    ("where(x > y, z, t)", lambda v: np.where(v["x"] > v["y"], v["z"], v["t"])),
    ("where(b, 1, 2)", lambda v: np.where(v["b"], np.int32(1), np.int32(2))),
    ("clip(x, -0.5, 0.5)", lambda v: np.clip(v["x"], -0.5, 0.5)),
    ("clip(x, max=y)", lambda v: np.minimum(v["x"], v["y"])),
    ("relu(x)", lambda v: np.maximum(v["x"], 0)),
    ("square(x)", lambda v: v["x"] ** 2),
    ("isnan(log(x))", lambda v: v["x"] < 0),
    ("isinf(x / 0.0)", lambda v: v["x"] != 0),
    ("isfinite(1 / (x * 0))", lambda v: np.zeros((3, 4), bool)),
    ("logical_and(b, i > 0)", lambda v: v["b"] & (v["i"] > 0)),
    ("logical_xor(b, True)", lambda v: ~v["b"]),
    ("logical_not(b)", lambda v: ~v["b"]),
    ("round(x * 3)", lambda v: np.rint(v["x"] * 3)),
    ("floor(i)", lambda v: v["i"]),
    ("sign(x)", lambda v: np.sign(v["x"])),
    ("cast(x * 3, i32)", lambda v: np.trunc(v["x"] * 3).astype(np.int32)),
    ("cast(b, f32)", lambda v: v["b"].astype(np.float32)),
    ("cast(2, i64) + cast(i, i64)", lambda v: v["i"].astype(np.int64) + 2),
    ("asin(x / 8.0) + acos(x / 8.0) + atan(x)", lambda v: np.float32(np.pi / 2) + np.arctan(v["x"])),
    ("arctan2(x, y) + tan(x)", lambda v: np.arctan2(v["x"], v["y"]) + np.tan(v["x"])),
    ("sinh(x) - cosh(x) + asinh(x)", lambda v: np.arcsinh(v["x"]) - np.exp(-v["x"])),
    ("acosh(x * x + 1.0) + atanh(x / 8.0)", lambda v: np.arccosh(v["x"] ** 2 + 1) + np.arctanh(v["x"] / 8)),
    ("exp2(x) + log2(x * x) + log10(x * x)", lambda v: 2 ** v["x"] + np.log2(v["x"] ** 2) + np.log10(v["x"] ** 2)),
    ("cbrt(x) + trunc(x * 3)", lambda v: np.cbrt(v["x"]) + np.trunc(v["x"] * 3)),
    ("trunc(i)", lambda v: v["i"]),
    ("hypot(x, y)", lambda v: np.hypot(v["x"], v["y"])),
    ("logaddexp(x, 0.5)", lambda v: np.logaddexp(v["x"], np.float32(0.5))),
    ("fmax(x, nan) + fmin(nan, y)", lambda v: v["x"] + v["y"]),
    ("erf(x) + erfc(x) + erf_inv(erf(y))", lambda v: 1 + 0 * v["x"] + v["y"]),
    ("exp(lgamma(full([1], 5.0))) + digamma(full([1], 1.0))", lambda v: np.array([24 - 0.5772157], np.float32)),
    ("left_shift(i, 3)", lambda v: v["i"] << 3),
    ("right_shift(i, 1)", lambda v: v["i"] >> 1),
    ("shift_left(i, j[:3][:, None] * 0 + 40)", lambda v: v["i"] * 0),
    ("shift_right_logical(cast(i, u8), cast(1, u8))", lambda v: v["i"].astype(np.uint8) >> 1),
    ("right_shift(cast(i, u8), cast(1, u8))", lambda v: v["i"].astype(np.uint8) >> 1),
    ("shift_right_arithmetic(i, 99)", lambda v: -(v["i"] < 0).astype(np.int32)),
    ("population_count(i)", lambda v: np.bitwise_count(v["i"].view(np.uint32)).astype(np.int32)),
    ("bitwise_count(i * 0 - 1)", lambda v: np.full_like(v["i"], 32, dtype=np.uint8)),
    ("clz(i * 0 + 5)", lambda v: np.full_like(v["i"], 29)),
    ("isposinf(x * inf) | isneginf(x * inf)", lambda v: v["x"] != 0),
    ("clamp(-0.5, x, y[0])", lambda v: np.minimum(np.maximum(v["x"], np.float32(-0.5)), v["y"][0])),
    ("x * sinh(0.5) + cbrt(8.0) + trunc(-2.5)", lambda v: v["x"] * np.float32(np.sinh(0.5))),
    ("power(x * x, 1.5)", lambda v: np.power(v["x"] * v["x"], np.float32(1.5))),
    # reductions
    ("sum(x)", lambda v: v["x"].sum(dtype=np.float32)),
    ("sum(s, axis=[0, -1])", lambda v: v["s"].sum((0, 2))),
    ("sum(s, axis=1, keepdims=True)", lambda v: v["s"].sum(1, keepdims=True)),
    ("prod(i, axis=0)", lambda v: v["i"].prod(0, dtype=np.int32)),
    ("max(x, axis=-1)", lambda v: v["x"].max(-1)),
    ("min(x, 0)", lambda v: v["x"].min(0)),
    ("any(b, axis=0)", lambda v: v["b"].any(0)),
    ("all(b)", lambda v: v["b"].all()),
    ("mean(x, axis=0)", lambda v: v["x"].mean(0, dtype=np.float32)),
    ("var(s, axis=[1, 2])", lambda v: v["s"].var((1, 2), dtype=np.float32)),
    ("std(x, axis=0, ddof=1)", lambda v: v["x"].std(0, ddof=1, dtype=np.float32)),
    ("argmax(x, axis=1)", lambda v: v["x"].argmax(1).astype(np.int32)),
    ("argmin(x)", lambda v: np.int32(v["x"].argmin())),
    ("argmax(i, axis=0, keepdims=True)", lambda v: v["i"].argmax(0, keepdims=True).astype(np.int32)),
    ("count_nonzero(i, axis=1)", lambda v: np.count_nonzero(v["i"], axis=1).astype(np.int32)),
    ("cumsum(x, axis=1)", lambda v: v["x"].cumsum(1)),
    ("cumsum(i)", lambda v: v["i"].cumsum(dtype=np.int32)),
    ("cumsum(i, axis=0, reverse=True)", lambda v: v["i"][::-1].cumsum(0, dtype=np.int32)[::-1]),
    ("cumsum(i, axis=1, exclusive=True)", lambda v: v["i"].cumsum(1, dtype=np.int32) - v["i"]),
    ("cumsum(x, axis=1, exclusive=True)[:, 1:]", lambda v: v["x"].cumsum(1)[:, :-1]),
    ("cumsum(x, axis=0, reverse=True, exclusive=True)[:2]", lambda v: v["x"][::-1].cumsum(0)[::-1][1:]),
    ("cumprod(i, axis=1)", lambda v: v["i"].cumprod(1, dtype=np.int32)),
    ("cumprod(x)", lambda v: v["x"].ravel().cumprod()),
    ("cumprod(x, axis=0, exclusive=True)", lambda v: np.cumprod(np.vstack([np.ones((1, 4), "f"), v["x"]])[:3], 0)),
    ("cummax(x, axis=1)", lambda v: np.maximum.accumulate(v["x"], 1)),
    ("cummin(i, reverse=True)", lambda v: np.minimum.accumulate(v["i"][::-1])[::-1]),
    ("cummax(i, axis=1, exclusive=True)[:, 0]", lambda v: np.full(3, -(2**31), np.int32)),
    ("cumlogsumexp(x, axis=-1)", lambda v: np.log(np.cumsum(np.exp(v["x"]), 1))),
    ("cumlogsumexp(x * -inf * 0.0 - inf)", lambda v: np.full((3, 4), np.nan, np.float32)),
    ("one_hot(j, 3)", lambda v: (v["j"][:, None] == np.arange(3)).astype(np.float32)),
    ("one_hot(j, 3, dtype=i32, axis=0)", lambda v: (v["j"] == np.arange(3)[:, None]).astype(np.int32)),
    ("one_hot(cast(i, i8), 300, dtype=bool)", lambda v: v["i"][..., None] == np.arange(300)),
    # shapes
    ("reshape(s, [6, -1])", lambda v: v["s"].reshape(6, -1)),
    ("reshape(s, (4, 3, 2))", lambda v: v["s"].reshape(4, 3, 2)),
    ("reshape(x, 12)", lambda v: v["x"].reshape(12)),
    ("ravel(s)", lambda v: v["s"].ravel()),
    ("transpose(s)", lambda v: v["s"].T),
    ("transpose(s, [1, 0, -1])", lambda v: v["s"].transpose(1, 0, 2)),
    ("swapaxes(s, 0, -1)", lambda v: v["s"].swapaxes(0, -1)),
    ("moveaxis(s, 0, 2)", lambda v: np.moveaxis(v["s"], 0, 2)),
    ("expand_dims(x, [0, -1])", lambda v: np.expand_dims(v["x"], (0, -1))),
    ("squeeze(z)", lambda v: v["z"].squeeze()),
    ("squeeze(z[None], axis=0)", lambda v: v["z"]),
    ("broadcast_to(z, [2, 3, 4])", lambda v: np.broadcast_to(v["z"], (2, 3, 4))),
    ("concat([x, y[None]], axis=0)", lambda v: np.concatenate([v["x"], v["y"][None]])),
    ("stack([y, y * 2], axis=-1)", lambda v: np.stack([v["y"], v["y"] * 2], -1)),
    ("concat(array_split(x, 3, axis=1)[::-1], axis=1)", lambda v: np.hstack(np.array_split(v["x"], 3, 1)[::-1])),
    ("array_split(y, [1, -1, 9])[1]", lambda v: v["y"][1:-1]),
    ("array_split(y, [3, 1])[1]", lambda v: v["y"][3:1]),
    ("stack(unstack(x, axis=1))", lambda v: v["x"].T),
    ("pad(x, [(1, 0), (0, 2)])", lambda v: np.pad(v["x"], [(1, 0), (0, 2)])),
    ("pad(i, 1, constant_values=-1)", lambda v: np.pad(v["i"], 1, constant_values=-1)),
    ("pad(y, (2, 1))", lambda v: np.pad(v["y"], (2, 1))),
    ("flip(x)", lambda v: np.flip(v["x"])),
    ("flip(x, axis=-1)", lambda v: np.flip(v["x"], -1)),
    ("roll(x, 1, axis=1)", lambda v: np.roll(v["x"], 1, 1)),
    ("roll(x, -7)", lambda v: np.roll(v["x"], -7)),
    ("roll(s, [1, 2], axis=[0, 2])", lambda v: np.roll(v["s"], (1, 2), (0, 2))),
    ("repeat(x, 2, axis=1)", lambda v: np.repeat(v["x"], 2, 1)),
    ("repeat(x, 3)", lambda v: np.repeat(v["x"], 3)),
    ("tile(x, [2, 1])", lambda v: np.tile(v["x"], (2, 1))),
    ("take(x, j, axis=0)", lambda v: v["x"][v["j"]]),
    ("take(y, i % 4)", lambda v: v["y"][v["i"] % 4]),
    ("take(x, -1, axis=1)", lambda v: v["x"][:, -1]),
    # subscripts
    ("x[1]", lambda v: v["x"][1]),
    ("x[:, 1:]", lambda v: v["x"][:, 1:]),
    ("x[-1, ::2]", lambda v: v["x"][-1, ::2]),
    ("x[::-1, -1:0:-2]", lambda v: v["x"][::-1, -1:0:-2]),
    ("x[5:, :]", lambda v: v["x"][5:, :]),
    ("s[..., None, 0]", lambda v: v["s"][..., None, 0]),
    ("s[1, ..., 1:3]", lambda v: v["s"][1, ..., 1:3]),
    ("x[None, :, None, -100:100:3]", lambda v: v["x"][None, :, None, -100:100:3]),
    ("y[None] * z[..., 0][:, None]", lambda v: v["y"] * v["z"]),
    # bands
    ("tril(x)", lambda v: np.tril(v["x"])),
    ("triu(s, k=-1)", lambda v: np.triu(v["s"], -1)),
    ("tril(b, k=9)", lambda v: np.tril(v["b"], 9)),
    ("diagonal(x)", lambda v: v["x"].diagonal()),
    ("diagonal(s, offset=-1, axis1=2, axis2=0)", lambda v: v["s"].diagonal(-1, 2, 0)),
    ("diagonal(s, 1, 1, 2)", lambda v: v["s"].diagonal(1, 1, 2)),
    ("diagonal(x, offset=7)", lambda v: v["x"].diagonal(7)),
    ("diagonal(b[:, :3])", lambda v: v["b"][:, :3].diagonal()),
    ("trace(i, offset=1)", lambda v: np.int32(v["i"].trace(1))),
    ("trace(s, axis1=1, axis2=2)", lambda v: v["s"].trace(0, 1, 2)),
    ("diag(y)", lambda v: np.diag(v["y"])),
    ("diag(y, k=2) + diag(y, -2)", lambda v: np.diag(v["y"], 2) + np.diag(v["y"], -2)),
    ("diag(x * inf, 1)", lambda v: np.diag(v["x"] * np.float32(np.inf), 1)),
    ("eye(3)", lambda v: np.eye(3, dtype=np.float32)),
    ("eye(2, 5, k=-1, dtype=i32)", lambda v: np.eye(2, 5, -1, np.int32)),
    ("tri(3, 4, 1, bool)", lambda v: np.tri(3, 4, 1, bool)),
    ("eye(3, k=10 ** 15)", lambda v: np.zeros((3, 3), np.float32)),
    ("stop_gradient(i)", lambda v: v["i"]),
    # sources
    ("zeros([2, 3])", lambda v: np.zeros((2, 3), np.float32)),
    ("ones(3, dtype=i32)", lambda v: np.ones(3, np.int32)),
    ("full([2], 7)", lambda v: np.full(2, 7, np.int32)),
    ("full([2, 2], t)", lambda v: np.full((2, 2), v["t"])),
    ("full_like(i, 3)", lambda v: np.full_like(v["i"], 3)),
    ("ones_like(b)", lambda v: np.ones_like(v["b"])),
    ("arange(5)", lambda v: np.arange(5, dtype=np.int32)),
    ("arange(2, 11, 3)", lambda v: np.arange(2, 11, 3, dtype=np.int32)),
    ("arange(3, dtype=f32)", lambda v: np.arange(3, dtype=np.float32)),
    ("arange(0.0, 1.0, 0.25)", lambda v: np.arange(0, 1, 0.25, dtype=np.float32)),
    ("arange(4, 0, -1)", lambda v: np.arange(4, 0, -1, dtype=np.int32)),
    ("iota(f32, 4)", lambda v: np.arange(4, dtype=np.float32)),
    ("broadcasted_iota(i32, [2, 3], 1)", lambda v: np.broadcast_to(np.arange(3, dtype=np.int32), (2, 3))),
    # contractions
    ("x @ transpose(x)", lambda v: v["x"] @ v["x"].T),
    ("x @ y", lambda v: v["x"] @ v["y"]),
    ("y @ y", lambda v: v["y"] @ v["y"]),
    ("y @ transpose(x)", lambda v: v["y"] @ v["x"].T),
    ("s @ transpose(x)", lambda v: v["s"] @ v["x"].T),
    ("s[:1] @ swapaxes(s, 1, 2)", lambda v: v["s"][:1] @ v["s"].swapaxes(1, 2)),
    ("s[:, None] @ swapaxes(s, 1, 2)[None]", lambda v: v["s"][:, None] @ v["s"].swapaxes(1, 2)[None]),
    ('einsum("ab,b->a", x, y)', lambda v: v["x"] @ v["y"]),
    ('einsum("ab -> ba", x)', lambda v: v["x"].T),
    ('einsum("ab,cb,c,b->a", x, x, z[:, 0], y)',
     lambda v: np.einsum("ab,cb,c,b->a", v["x"], v["x"], v["z"][:, 0], v["y"])),
    ('einsum("...b,b->...", s, y)', lambda v: v["s"] @ v["y"]),
    ('einsum("b...,...->b...", s, z)', lambda v: v["s"] * v["z"]),
    ('einsum("...ab,cb->...ca", s, x)', lambda v: np.einsum("...ab,cb->...ca", v["s"], v["x"])),
    # compile-time values
    ("x * (2 ** 3 - 10 // 4 % 3)", lambda v: v["x"] * 6),
    ("x * sqrt(16) + int(7.9) - len(x.shape)", lambda v: v["x"] * 4 + 7 - 2),
    ("full([x.shape[1], x.ndim], x.size)", lambda v: np.full((4, 2), 12, np.int32)),
    ("cast(i, x.dtype)", lambda v: v["i"].astype(np.float32)),
    ("zeros([max(2, 3), min(4, 1)])", lambda v: np.zeros((3, 1), np.float32)),
    ("x * inf", lambda v: v["x"] * np.float32(np.inf)),
    ("(x, y)[1]", lambda v: v["y"]),
    ("x + 1_000", lambda v: v["x"] + 1000),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), NUMPY, ids=[e for e, _ in NUMPY])
def test_as_numpy(expression: str, expected: Callable[[dict[str, Array]], Any]) -> None:
    with np.errstate(all="ignore"):
        wanted = np.asarray(expected(inputs()))
        found = value(expression)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


JAX: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("softmax(x)", lambda v: jax.nn.softmax(v["x"])),
    ("softmax(s, axis=[0, 2])", lambda v: jax.nn.softmax(v["s"], (0, 2))),
    ("softmax(h)", lambda v: jax.nn.softmax(v["h"])),
    ("softmax(x * 1000)", lambda v: jax.nn.softmax(v["x"] * 1000)),
    ("log_softmax(s, axis=1)", lambda v: jax.nn.log_softmax(v["s"], 1)),
    ("logsumexp(s, axis=-1)", lambda v: jax.nn.logsumexp(v["s"], -1)),
    ("logsumexp(s)", lambda v: jax.nn.logsumexp(v["s"])),
    ("logsumexp(x * -inf, axis=0, keepdims=True)", lambda v: jax.nn.logsumexp(v["x"] * -jnp.inf, 0, keepdims=True)),
    ("gelu(x)", lambda v: jax.nn.gelu(v["x"])),
    ("gelu(x * 3, approximate=False)", lambda v: jax.nn.gelu(v["x"] * 3, approximate=False)),
    ("relu6(x * 9.0)", lambda v: jax.nn.relu6(v["x"] * 9)),
    ("celu(x, 0.5)", lambda v: jax.nn.celu(v["x"], 0.5)),
    ("selu(x)", lambda v: jax.nn.selu(v["x"])),
    ("mish(x)", lambda v: jax.nn.mish(v["x"])),
    ("glu(x)", lambda v: jax.nn.glu(v["x"])),
    ("glu(s, axis=0)", lambda v: jax.nn.glu(v["s"], 0)),
    ("hard_tanh(x * 2)", lambda v: jax.nn.hard_tanh(v["x"] * 2)),
    ("hard_sigmoid(x * 2)", lambda v: jax.nn.hard_sigmoid(v["x"] * 2)),
    ("hard_swish(x * 2)", lambda v: jax.nn.hard_swish(v["x"] * 2)),
    ("soft_sign(x)", lambda v: jax.nn.soft_sign(v["x"])),
    ("squareplus(x)", lambda v: jax.nn.squareplus(v["x"])),
    ("silu(x)", lambda v: jax.nn.silu(v["x"])),
    ("swish(x)", lambda v: jax.nn.swish(v["x"])),
    ("sigmoid(x)", lambda v: jax.nn.sigmoid(v["x"])),
    ("softplus(x * 50)", lambda v: jax.nn.softplus(v["x"] * 50)),
    ("log_sigmoid(x)", lambda v: jax.nn.log_sigmoid(v["x"])),
    ("elu(x, 0.5)", lambda v: jax.nn.elu(v["x"], 0.5)),
    ("leaky_relu(x)", lambda v: jax.nn.leaky_relu(v["x"])),
    ("mean(h, axis=1)", lambda v: jnp.mean(v["h"], 1)),
    ("var(h)", lambda v: jnp.var(v["h"])),
    ("exp(h) + sum(h, axis=0)", lambda v: jnp.exp(v["h"]) + jnp.sum(v["h"], 0)),
    ("uniform(k, [3, 5])", lambda v: jax.random.uniform(v["k"], (3, 5))),
    ("uniform(fold_in(k, 7), [4], minval=-2.0, maxval=3.0)",
     lambda v: jax.random.uniform(jax.random.fold_in(v["k"], 7), (4,), minval=-2.0, maxval=3.0)),
    ("uniform(k)", lambda v: jax.random.uniform(v["k"])),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), JAX, ids=[e for e, _ in JAX])
def test_as_jax(expression: str, expected: Callable[[dict[str, Any]], Any]) -> None:
    with jax.threefry_partitionable(True):
        wanted = np.asarray(expected({n: jnp.asarray(a) for n, a in inputs().items()}))
    found = value(expression)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    tolerance = 1e-2 if found.dtype.itemsize == 2 else 3e-6
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_norms() -> None:
    orders = {"None": None, "0": 0, "1": 1, "3": 3, "2.5": 2.5, "inf": np.inf, "-inf": -np.inf}
    calls = ", ".join(f"norm(x, {text}, axis=1)" for text in orders)
    text = f"from std.nn import norm\ndef main(x: f32[3,4]):\n    return {calls}, norm(x, keepdims=True)\n"
    x = inputs()["x"]
    *found, whole = reference_numpy.run(program(text), [x])
    for order, y in zip(orders.values(), found, strict=True):
        np.testing.assert_allclose(y, np.linalg.norm(x, order, axis=1), rtol=1e-6)
    np.testing.assert_allclose(whole, np.linalg.norm(x, keepdims=True), rtol=1e-6)


def test_std_nn() -> None:
    module = program(
        """from std.nn import dot_product_attention, layer_norm, relu6, rms_norm, softmax_cross_entropy as loss
def main(q: f32[2,3,2,4], k: f32[2,5,2,4], v: f32[2,5,2,4], mask: bool[3,5], x: f32[3,4], g: f32[4], labels: i32[3]):
    a = dot_product_attention(q, k, v, mask=mask)
    c = dot_product_attention(q, q, q, causal=True)
    return a, c, layer_norm(x, g, g), rms_norm(x, g), loss(x, labels), relu6(x * 9.0)
"""
    )
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, n, 2, 4)).astype(np.float32) for n in (3, 5, 5))
    mask = np.array([[1, 1, 0, 1, 0], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1]], bool)
    x, g, labels = (
        rng.normal(size=(3, 4)).astype(np.float32),
        rng.normal(size=4).astype(np.float32),
        np.array([2, 0, 3]),
    )
    found = reference_numpy.run(module, [q, k, v, mask, x, g, labels.astype(np.int32)])
    center = x - x.mean(-1, keepdims=True)
    wanted = [
        jax.nn.dot_product_attention(q, k, v, mask=jnp.broadcast_to(mask, (2, 2, 3, 5))),
        jax.nn.dot_product_attention(q, q, q, is_causal=True),
        center / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * g + g,
        x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * g,
        -jax.nn.log_softmax(x)[np.arange(3), labels],
        jax.nn.relu6(x * 9),
    ]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
