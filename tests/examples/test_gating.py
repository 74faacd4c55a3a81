"""std.moe: top-2 gating against hand-checked cases, its invariants, and how much it drops."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gshard_ir.backends import reference_numpy
from gshard_ir.errors import GShardError
from gshard_ir.frontend.lower import lower
from gshard_ir.frontend.parser import parse
from gshard_ir.ir import Module
from gshard_ir.source import SourceFile

Array = np.ndarray[Any, np.dtype[Any]]
Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parent / "top2_cases.json").read_text())["cases"]


def program(shape: tuple[int, ...], capacity: int, options: Case, *, valid: str = "", draws: bool = False) -> Module:
    """A program that is one call of top2_gating; masks and draws are parameters when given."""
    groups, tokens, _ = shape
    params = [f"gates: f32{list(shape)}"]
    args = ["gates", str(capacity)]
    if valid:
        params.append(f"valid: {valid}[{groups},{tokens}]")
        args.append("valid=valid")
    if draws:
        params.append(f"draws: f32[{groups},{tokens}]")
        args.append("draws=draws")
    args += [f"{k}={json.dumps(v) if isinstance(v, str) else v}" for k, v in options.items()]
    text = (
        "from std.moe import top2_gating\n"
        f"def main({', '.join(params)}):\n"
        f"    combine, dispatch, aux = top2_gating({', '.join(args)})\n"
        "    return combine, dispatch, aux\n"
    )
    return lower(parse(SourceFile("gating.gshard", text)))


def route(gates: Array, capacity: int, valid: Array | None = None, draws: Array | None = None, **options: Any) -> Any:
    """Run top2_gating on the reference: combine, dispatch, aux."""
    mask = "" if valid is None else "bool" if valid.dtype == bool else "f32"
    module = program(gates.shape, capacity, options, valid=mask, draws=draws is not None)
    return reference_numpy.run(module, [a for a in (gates, valid, draws) if a is not None])


def case_arrays(case: Case) -> tuple[Array, Array | None, Array | None]:
    gates = np.array(case["gates"], np.float32)
    valid = None if case["valid"] is None else np.array(case["valid"], bool)
    draws = None if case["draws"] is None else np.array(case["draws"], np.float32)
    return gates, valid, draws


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_case(case: Case) -> None:
    gates, valid, draws = case_arrays(case)
    combine, dispatch, aux = route(gates, case["capacity"], valid, draws, **case["options"])
    weights, kept = np.zeros(combine.shape), np.zeros(combine.shape)
    for *cell, weight in case["routes"]:
        weights[tuple(cell)] = weight
        kept[tuple(cell)] = 1
    assert dispatch.dtype == combine.dtype == np.float32
    np.testing.assert_array_equal(dispatch, kept)
    np.testing.assert_allclose(combine, weights, rtol=0, atol=1e-7)
    assert aux == pytest.approx(case["aux"], abs=1e-6)
    real = np.ones(gates.shape[:2], bool) if valid is None else valid
    assert (real & (dispatch.sum((2, 3)) == 0)).sum() == case["unserved"]


def softmax(logits: Array) -> Array:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).astype(np.float32)


def random_gates(seed: int, shape: tuple[int, int, int] = (3, 24, 5)) -> Array:
    return softmax(np.random.default_rng(seed).normal(size=shape) * 2)


def by_hand(gates: Array, capacity: int, accepted: Array, real: Array, *, keep_slot: bool = False) -> Array:
    """The paper's loop: first choices of all tokens, then second choices; returns the dispatch mask."""
    groups, tokens, experts = gates.shape
    dispatch = np.zeros((groups, tokens, experts, capacity))
    order = np.argsort(-gates, axis=-1, kind="stable")
    for g in range(groups):
        count = np.zeros(experts, int)
        for rank in (0, 1):
            for s in range(tokens):
                e = order[g, s, rank]
                if not real[g, s]:
                    continue
                if rank == 1 and not accepted[g, s]:
                    count[e] += keep_slot
                    continue
                if count[e] < capacity:
                    dispatch[g, s, e, count[e]] = 1
                count[e] += 1
    return dispatch


@pytest.mark.parametrize("capacity", [1, 3, 8, 24])
@pytest.mark.parametrize("keep_slot", [False, True])
def test_masks_are_those_of_the_paper_s_loop(capacity: int, keep_slot: bool) -> None:
    gates = random_gates(capacity)
    rng = np.random.default_rng(7)
    draws, real = rng.random(gates.shape[:2], np.float32), rng.random(gates.shape[:2]) < 0.8
    best = np.sort(gates, -1)
    accepted = draws < best[..., -2] / (best[..., -1] + best[..., -2] + np.float32(1e-9)) / 0.5
    combine, dispatch, _ = route(
        gates, capacity, real, draws, policy="random", threshold=0.5, rejected_keep_slot=keep_slot
    )
    np.testing.assert_array_equal(dispatch, by_hand(gates, capacity, accepted, real, keep_slot=keep_slot))
    assert np.all(combine[dispatch == 0] == 0)
    assert np.all(combine.sum((2, 3)) <= 1 + 2**-22)
    assert np.all(dispatch.sum(1) <= 1), "a slot holds one token at most"
    assert np.all(dispatch.sum((2, 3)) <= 2) and np.all(dispatch.sum(3) <= 1)


def test_groups_do_not_see_each_other() -> None:
    gates, draws = random_gates(1), np.random.default_rng(2).random((3, 24), np.float32)
    order = np.array([2, 0, 1])
    combine, dispatch, aux = route(gates, 6, draws=draws, policy="random", threshold=0.2)
    moved = route(gates[order], 6, draws=draws[order], policy="random", threshold=0.2)
    np.testing.assert_array_equal(combine[order], moved[0])
    np.testing.assert_array_equal(dispatch[order], moved[1])
    assert aux == pytest.approx(float(moved[2]), rel=1e-6)


def test_everything_fits_when_capacity_is_the_group() -> None:
    gates = random_gates(3)
    _, dispatch, _ = route(gates, 24)
    assert np.all(dispatch.sum((2, 3)) == 2)


@pytest.mark.parametrize("policy", ["none", "threshold"])
def test_policies(policy: str) -> None:
    gates = random_gates(4)
    best = np.sort(gates, -1)
    g2 = best[..., -2] / (best[..., -1] + best[..., -2])
    combine, dispatch, _ = route(gates, 24, policy=policy, threshold=0.3)
    kept = np.zeros_like(g2) if policy == "none" else g2 > 0.3
    np.testing.assert_array_equal(dispatch.sum((2, 3)), 1 + kept)
    # The first gate is not renormalised when the second is dropped.
    np.testing.assert_allclose(combine.sum((2, 3)), 1 - g2 * (kept == 0), rtol=1e-5)


def test_auxiliary_loss_variants() -> None:
    gates, real = random_gates(5), np.random.default_rng(6).random((3, 24)) < 0.7
    share = (np.eye(5)[gates.argmax(-1)] * real[..., None]).sum(1)
    mass = (gates * real[..., None]).sum(1)
    valid, size = real.sum(1)[:, None], 24
    for options, expected in (
        ({}, 5 * (share / valid * mass / valid).sum(1)),
        ({"aux_denominator": "size"}, 5 * (share / size * mass / size).sum(1)),
        ({"aux_scale": "paper"}, (share / valid * mass / valid).sum(1) / 5),
    ):
        _, _, aux = route(gates, 4, real, **options)
        assert aux == pytest.approx(expected.mean(), rel=1e-5)


def test_mask_may_be_numbers() -> None:
    gates, real = random_gates(8), np.random.default_rng(9).random((3, 24)) < 0.5
    for a, b in zip(route(gates, 4, real), route(gates, 4, real.astype(np.float32)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_key_draws_are_uniform_of_a_folded_key() -> None:
    text = """from std.moe import top2_gating
def main(gates: f32[2,16,4], key: key):
    _, a, _ = top2_gating(gates, 16, key, policy="random", threshold=0.5)
    _, b, _ = top2_gating(gates, 16, policy="random", draws=uniform(fold_in(key, 0), [2, 16]), threshold=0.5)
    _, c, _ = top2_gating(gates, 16, key, noise="gumbel")
    return a, b, c
"""
    module = lower(parse(SourceFile("keys.gshard", text)))
    gates = random_gates(10, (2, 16, 4))
    a, b, c = reference_numpy.run(module, [gates, np.array([3, 4], np.uint32)])
    np.testing.assert_array_equal(a, b)
    assert 32 < a.sum() < 64
    # Noise moves second choices only, and never onto the first.
    first = np.eye(4)[gates.argmax(-1)]
    assert np.all(c.sum(3) >= first) and np.all(c.sum((2, 3)) == 2)
    assert np.any(c.sum(3) != route(gates, 16)[1].sum(3))


def test_noise_never_picks_the_first_choice_again() -> None:
    gates = np.zeros((1, 64, 3), np.float32)
    gates[..., 0] = 1
    text = """from std.moe import top2_gating
def main(gates: f32[1,64,3], key: key):
    combine, dispatch, aux = top2_gating(gates, 64, key, noise="gumbel")
    return dispatch
"""
    module = lower(parse(SourceFile("noise.gshard", text)))
    (dispatch,) = reference_numpy.run(module, [gates, np.array([0, 1], np.uint32)])
    assert np.all(dispatch.sum(3)[..., 0] == 1) and np.all(dispatch.sum((2, 3)) == 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ('top2_gating(gates, 4, policy="sometimes")', "policy must be all, none, threshold or random"),
        ('top2_gating(gates, 4, policy="random")', "policy random needs a key or draws"),
        ("top2_gating(gates, -1)", "capacity must not be negative"),
        ("top2_gating(gates[0], 4)", "gates must be [G, S, E]"),
        ('top2_gating(gates, 4, policy="random", draws=gates[:, :, 0][:, 1:])', "draws must be [G, S]"),
        ('top2_gating(gates, 4, normalise="after")', "top2_gating has no argument normalise"),
    ],
)
def test_wrong_options_are_refused_at_the_call(call: str, message: str) -> None:
    text = f"from std.moe import top2_gating\ndef main(gates: f32[2,8,4]):\n    return {call}\n"
    with pytest.raises(GShardError) as caught:
        lower(parse(SourceFile("options.gshard", text)))
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert diagnostic.span is not None and (diagnostic.span.file.name, diagnostic.span.line) == ("options.gshard", 3)


CAPACITIES = [
    ((64, 8, 2.0), 16), ((64, 8, 2.5), 20), ((1024, 16, 2.0), 128), ((1024, 64, 2.5), 40), ((64, 128, 2.0), 4),
    ((2, 8, 2.0), 2), ((10, 3, 2.0), 8), ((10, 3, 2.0, 1, 1), 6), ((0, 4, 2.0), 0), ((64, 8, 0.0, 4, 0), 0),
]  # fmt: skip


@pytest.mark.parametrize(("args", "expected"), CAPACITIES)
def test_capacity_is_a_compile_time_function(args: tuple[Any, ...], expected: int) -> None:
    text = f"""from std.moe import capacity
const C = capacity({", ".join(map(str, args))})
def main(x: f32[3]) -> f32[C]:
    return zeros([C])
"""
    assert lower(parse(SourceFile("capacity.gshard", text))).main.results[0].shape == (expected,)


# Share of routes dropped, share of tokens without an expert: E, capacity factor, Zipf exponent.
DROPS = [
    (16, 2.0, 0.0, 0.036, 0.000), (16, 2.0, 0.3, 0.096, 0.000),
    (16, 2.0, 0.6, 0.197, 0.019), (16, 2.0, 1.0, 0.342, 0.083),
    (16, 2.5, 0.0, 0.000, 0.000), (16, 2.5, 0.3, 0.042, 0.000),
    (16, 2.5, 0.6, 0.132, 0.003), (16, 2.5, 1.0, 0.283, 0.052),
    (64, 2.0, 0.0, 0.069, 0.000), (64, 2.0, 0.3, 0.137, 0.004),
    (64, 2.0, 0.6, 0.267, 0.053), (64, 2.0, 1.0, 0.462, 0.187),
    (64, 2.5, 0.0, 0.009, 0.000), (64, 2.5, 0.3, 0.066, 0.001),
    (64, 2.5, 0.6, 0.205, 0.030), (64, 2.5, 1.0, 0.412, 0.144),
]  # fmt: skip


@pytest.mark.parametrize(("experts", "factor", "zipf", "routes", "tokens"), DROPS)
def test_expected_drops(experts: int, factor: float, zipf: float, routes: float, tokens: float) -> None:
    """Second choices by Gumbel noise on a skewed popularity, eight groups of 1,024 tokens."""
    popularity = np.arange(1, experts + 1) ** -zipf
    noise = np.random.default_rng(experts).gumbel(size=(8, 1024, experts))
    gates = softmax(np.log(popularity) + noise)
    slots = min(1024, max(4, -(-int(1024 * factor / experts) // 4) * 4))
    module = lower(
        parse(
            SourceFile(
                "drops.gshard",
                f"""from std.moe import top2_gating
def main(gates: f32[8,1024,{experts}]):
    _, dispatch, _ = top2_gating(gates, {slots})
    return sum(dispatch, axis=[2, 3])
""",
            )
        )
    )
    (kept,) = reference_numpy.run(module, [gates])
    assert 1 - kept.sum() / (2 * 8 * 1024) == pytest.approx(routes, abs=0.01)
    assert (kept == 0).mean() == pytest.approx(tokens, abs=0.01)


def test_gates_normalised_after_drops_sum_to_one_over_what_is_kept() -> None:
    gates = random_gates(11)
    combine, dispatch, _ = route(gates, 5, normalize="after")
    kept = dispatch.sum(3)
    share = gates * kept / np.maximum((gates * kept).sum(-1, keepdims=True), 1e-30)
    np.testing.assert_allclose(combine.sum(3), share, rtol=1e-5)
    assert set(kept.sum(-1).ravel()) == {0, 1, 2}


def test_masks_have_the_type_of_the_gates_and_the_loss_is_f32() -> None:
    module = lower(
        parse(
            SourceFile(
                "bf16.gshard",
                """from std.moe import top2_gating
def main(gates: bf16[2,8,4]):
    return top2_gating(gates, 4)
""",
            )
        )
    )
    assert [str(v.type) for v in module.main.results] == ["bf16[2,8,4,4]", "bf16[2,8,4,4]", "f32[]"]
