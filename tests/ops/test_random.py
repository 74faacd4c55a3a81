"""Draws equal jax's bit for bit, and a shard draws its own part."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gshard_ir.opdef import opdef
from gshard_ir.ops.random import threefry2x32


def key_of(seed: int):
    key = jax.random.key(seed)
    return key, np.asarray(jax.random.key_data(key))


def test_threefry_matches_published_vectors():
    # Random123, kat_vectors: threefry2x32 20 rounds.
    for counter, key, expected in (
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ):
        words = threefry2x32(np.array(key, np.uint32), *np.array(counter, np.uint32)[:, None])
        assert tuple(int(w[0]) for w in words) == expected


@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 5), (3, 0, 2), (2, 3, 4)])
@pytest.mark.parametrize("seed", [0, 7, 2**31 - 1])
def test_uniform_equals_jax(shape, seed):
    key, words = key_of(seed)
    assert jax.config.jax_threefry_partitionable
    found = opdef("uniform").reference(words, shape=shape)
    expected = np.asarray(jax.random.uniform(key, shape))
    assert (found.dtype, found.shape) == (np.float32, shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("data", [np.int32(0), np.int32(5), np.int32(-3), np.uint32(2**32 - 1)])
def test_fold_in_equals_jax(data):
    key, words = key_of(3)
    found = opdef("fold_in").reference(words, np.asarray(data))
    expected = np.asarray(jax.random.key_data(jax.random.fold_in(key, jnp.asarray(data))))
    np.testing.assert_array_equal(found, expected)
    assert (found.dtype, found.shape) == (np.uint32, (2,))


def test_shards_of_uniform_make_up_the_whole():
    _, words = key_of(11)
    whole = opdef("uniform").reference(words, shape=(7, 10))
    shard = opdef("uniform_shard").reference
    for i in range(3):
        for j in range(2):
            part = shard(words, np.int32(3 * i), np.int32(5 * j), shape=(3, 5), whole=(7, 10))
            rows = min(3, 7 - 3 * i)
            np.testing.assert_array_equal(part[:rows], whole[3 * i : 3 * i + rows, 5 * j : 5 * j + 5])
            assert part.shape == (3, 5)
