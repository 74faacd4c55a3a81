"""The hand-checked cases of top-2 gating when the tensors are split: on the simulator and on jax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import assert_same

import gshard_ir as gs
from gshard_ir.program import Program

Array = np.ndarray[Any, np.dtype[Any]]
Case = dict[str, Any]
CASES: list[Case] = json.loads((Path(__file__).parent / "top2_cases.json").read_text(encoding="utf-8"))["cases"]
IDS = [c["name"] for c in CASES]


def inputs(case: Case, copies: int) -> dict[str, Array]:
    """The arguments of a case, its groups repeated."""
    found = {"gates": np.array(case["gates"], np.float32)}
    if case["valid"] is not None:
        found["valid"] = np.array(case["valid"], bool)
    if case["draws"] is not None:
        found["draws"] = np.array(case["draws"], np.float32)
    return {name: np.concatenate([array] * copies) for name, array in found.items()}


def gating(case: Case, given: dict[str, Array], mesh: str, dims: str) -> Program:
    """A program that routes arguments split as ``dims`` says: ``G@data, S, E``."""
    groups, tokens, experts = given["gates"].shape
    sizes = dims.replace("G", str(groups)).replace("S", str(tokens)).replace("E", str(experts))
    rows = sizes.rsplit(",", 1)[0]
    params = [f"gates: f32[{sizes}]"]
    params += [f"{n}: {'bool' if n == 'valid' else 'f32'}[{rows}]" for n in given if n != "gates"]
    options = {k: json.dumps(v) if isinstance(v, str) else v for k, v in case["options"].items()}
    args = ["gates", str(case["capacity"]), *(f"{n}={n}" for n in given if n != "gates")]
    args += [f"{k}={v}" for k, v in options.items()]
    return gs.compile(
        "from std.moe import top2_gating\n"
        f"mesh({mesh})\n"
        f"def main({', '.join(params)}):\n"
        f"    combine, dispatch, aux = top2_gating({', '.join(args)})\n"
        "    return combine, dispatch, aux\n"
    )


def assert_is_the_case(case: Case, copies: int, given: dict[str, Array], found: Any) -> None:
    """What is written down by hand, in every copy of the groups."""
    combine, dispatch, aux = (np.asarray(array) for array in found)
    weights = np.zeros((combine.shape[0] // copies, *combine.shape[1:]))
    kept = np.zeros_like(weights)
    for *cell, weight in case["routes"]:
        weights[tuple(cell)] = weight
        kept[tuple(cell)] = 1
    np.testing.assert_array_equal(dispatch, np.concatenate([kept] * copies))
    np.testing.assert_allclose(combine, np.concatenate([weights] * copies), rtol=0, atol=1e-7)
    assert aux == pytest.approx(case["aux"], abs=1e-6)
    real = given.get("valid", np.ones(given["gates"].shape[:2], bool))
    assert (real & (dispatch.sum((2, 3)) == 0)).sum() == copies * case["unserved"]


@pytest.mark.parametrize("dims", ["G@data, S, E", "G, S@data, E", "G, S, E@data"])
@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_on_the_simulator(case: Case, copies: int, dims: str) -> None:
    given = inputs(case, copies)
    p = gating(case, given, "data=2", dims)
    found, expected = p.simulate(**given), p.reference(**given)
    assert_is_the_case(case, copies, given, found)
    assert_same(expected[0], found[0], "weights, bit for bit")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_on_jax(case: Case) -> None:
    """Three copies of the groups over two devices: the second one holds a chunk that is short."""
    given = inputs(case, 3)
    p = gating(case, given, "data=2", "G@data, S, E")
    assert p.local.mesh.devices == 2
    assert_is_the_case(case, 3, given, p(**given))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_on_jax_with_tokens_split_too(case: Case) -> None:
    given = inputs(case, 1)
    p = gating(case, given, "data=2, seq=3", "G@data, S@seq, E")
    assert_is_the_case(case, 1, given, p(**given))
