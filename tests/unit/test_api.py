"""`gs.compile` and what the program that it returns can do."""

from __future__ import annotations

import dataclasses
import json
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gshard_ir as gs
from gshard_ir import data
from gshard_ir.program import STAGES, TARGETS

SOURCE = """\
mesh(data=2, model=2)

const N = 6

struct Ffn:
    w1: f32[N, 8@model]
    w2: f32[8@model, N]

def main(x: f32[5@data, N], p: Ffn, k: key, n: i32[], h: bf16[3]) -> (f32[5, N], f32[]):
    u = uniform(k, [5, 8])
    h2 = relu(x @ p.w1) + u
    y = h2 @ p.w2
    return y, sum(y) + cast(n, f32)

def twice(x: f32[5]) -> f32[5]:
    return x * 2.0

def fields(p: Ffn, x: f32[2]) -> (Ffn, (f32[2], f32[2])):
    return p, (x, x + 1.0)
"""


@dataclasses.dataclass
class Ffn:
    w1: Any
    w2: Any


Pair = namedtuple("Pair", ["w1", "w2"])


@pytest.fixture(scope="module")
def program() -> gs.Program:
    return gs.compile(SOURCE, mesh={"data": 2, "model": 2})


def arguments() -> dict[str, Any]:
    draw = np.random.default_rng(3)
    w1, w2 = draw.normal(size=(6, 8)).astype("f4"), draw.normal(size=(8, 6)).astype("f4")
    x = draw.normal(size=(5, 6)).astype("f4")
    return {"x": x, "p": {"w1": w1, "w2": w2}, "k": 7, "n": 3, "h": [1.0, 2.0, 3.0]}


def message(program: gs.Program, **changes: Any) -> str:
    with pytest.raises(gs.GShardError) as caught:
        program.reference(**{**arguments(), **changes})
    return str(caught.value)


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        (None, {}, "found NoneType"),
        ("", {}, "found an empty text"),
        ("a.gshard", {"mesh": "data=2"}, "mesh maps names to sizes, found 'data=2'"),
        ("a.gshard", {"mesh": [2, 4]}, "mesh maps names to sizes"),
        ("a.gshard", {"defines": "E=4"}, "defines maps names to sizes"),
    ],
)
def test_what_is_no_program_or_no_mesh_is_one_diagnostic(program: Any, options: Any, message: str) -> None:
    with pytest.raises(gs.GShardError, match=message):
        gs.compile(program, **options)


def test_all_three_ways_of_running_agree(program: gs.Program) -> None:
    import jax

    given = arguments()
    draws = np.asarray(jax.random.uniform(jax.random.key(7), (5, 8)))
    expected = (np.maximum(given["x"] @ given["p"]["w1"], 0) + draws) @ given["p"]["w2"]
    for run in (program.reference, program.simulate, program):
        y, total = run(**given)
        assert y.shape == (5, 6)
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(np.asarray(total), expected.sum() + 3, rtol=1e-5)


@pytest.mark.parametrize("struct", [Ffn, Pair, lambda w1, w2: {"w2": w2, "w1": w1}])
def test_structs_may_be_dataclasses_tuples_or_dicts(program: gs.Program, struct: Any) -> None:
    given = arguments()
    expected, _ = program.reference(**given)
    found, _ = program.reference(**{**given, "p": struct(**given["p"])})
    np.testing.assert_array_equal(found, expected)


def test_arguments_by_position_and_by_dotted_name(program: gs.Program) -> None:
    given = arguments()
    expected, _ = program.reference(**given)
    by_position, _ = program.reference(*given.values())
    flat = {"p.w1": given["p"]["w1"], "p.w2": given["p"]["w2"]}
    by_field, _ = program.reference(given["x"], k=7, n=3, h=given["h"], **flat)
    np.testing.assert_array_equal(by_position, expected)
    np.testing.assert_array_equal(by_field, expected)


def test_a_key_is_a_seed_two_words_or_jaxs_own(program: gs.Program) -> None:
    import jax

    given = arguments()
    expected, _ = program.reference(**given)
    for key in (np.array([0, 7], "u4"), jax.random.key(7), jax.random.PRNGKey(7), np.int64(7)):
        found, _ = program.reference(**{**given, "k": key})
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(data.key_of(2**40 + 5), [2**8, 5])


def test_bf16_read_back_by_numpy_is_bf16(program: gs.Program, tmp_path: Path) -> None:
    import ml_dtypes

    np.save(tmp_path / "h.npy", np.arange(3).astype(ml_dtypes.bfloat16))
    program.reference(**{**arguments(), "h": np.load(tmp_path / "h.npy")})


def test_other_byte_order_is_no_other_type(program: gs.Program) -> None:
    given = arguments()
    expected, _ = program.reference(**given)
    found, _ = program.reference(**{**given, "x": given["x"].astype(">f4")})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"x": np.zeros((5, 7), "f4")}, ["x is f32[5,7], expected f32[5,6]", "dim 1 is 7, expected 6"]),
        ({"x": np.zeros((5,), "f4")}, ["x is f32[5], expected f32[5,6]", "it has 1 dim, expected 2"]),
        ({"x": np.zeros((5, 6))}, ["x is f64[5,6], expected f32[5,6]", 'try: x.astype("float32")', "<string>:9"]),
        ({"x": "hello"}, ["x is a str, expected f32[5,6]"]),
        ({"x": None}, ["x is None, expected f32[5,6]"]),
        ({"x": [[1.0], [1.0, 2.0]]}, ["x is a list, expected f32[5,6]"]),
        ({"n": 1.5}, ["n is a float, expected i32[]"]),
        ({"n": True}, ["n is a bool, expected i32[]"]),
        ({"n": 2**31}, ["n has values that do not fit i32", "2147483648"]),
        ({"k": -1}, ["a seed is in [0, 2**64), found -1"]),
        ({"k": np.zeros(3, "u4")}, ["k is u32[3], expected a key", "an int seed, u32[2], or a jax.random.key"]),
        ({"k": "seed"}, ["k is a str, expected a key"]),
        ({"p": 3}, ["p is a struct with fields w1, w2, found an int"]),
        ({"p": {"w1": np.zeros((6, 8), "f4")}}, ["main is missing an argument", "p.w2: f32[8,6]"]),
        ({"p": {**arguments()["p"], "w11": 0}}, ["p has no field w11", "its fields are w1, w2", "try: w1"]),
        ({"q": 1}, ["main has no argument q", "it takes x, p.w1, p.w2, k, n, h"]),
        ({"p.w1": np.zeros((6, 8), "f4")}, ["p.w1 is given twice"]),
    ],
)
def test_wrong_arguments_are_named_with_numbers(
    program: gs.Program, changes: dict[str, Any], fragments: list[str]
) -> None:
    text = message(program, **changes)
    for fragment in fragments:
        assert fragment in text


def test_all_wrong_arguments_are_reported_at_once(program: gs.Program) -> None:
    with pytest.raises(gs.GShardError) as caught:
        program.reference(np.zeros(1), {"w1": 1, "w2": 2}, 0, 0, [1, 2, 3], 5)
    assert len(caught.value.diagnostics) == 4
    assert "main takes 5 arguments (x, p, k, n, h), found 6" in str(caught.value)


def test_results_come_back_in_the_shape_of_the_return_statement() -> None:
    bare = gs.compile(SOURCE, entry="twice").reference(np.ones(5, "f4"))
    assert isinstance(bare, np.ndarray)
    np.testing.assert_array_equal(bare, np.full(5, 2, "f4"))
    given = arguments()["p"]
    p, pair = gs.compile(SOURCE, entry="fields").reference(given, np.array([1, 2], "f4"))
    assert list(p) == ["w1", "w2"]
    np.testing.assert_array_equal(p["w2"], given["w2"])
    assert isinstance(pair, tuple)
    np.testing.assert_array_equal(pair[1], [2, 3])


def test_jax_results_stay_on_the_devices(program: gs.Program) -> None:
    import jax

    y, _ = program(**arguments())
    assert isinstance(y, jax.Array)
    assert y.shape == (5, 6), "padding is trimmed"


def test_lower_is_jaxs_own_and_sends_what_traffic_says(program: gs.Program) -> None:
    from gshard_ir.backends.hlo_traffic import measure

    compiled = program.lower().compile()
    assert compiled.memory_analysis() is not None
    assert measure(compiled.as_text()).sent == program.traffic().bytes


def test_traffic_adds_up(program: gs.Program) -> None:
    traffic = program.traffic()
    assert traffic.bytes == sum(c.sent for c in traffic.collectives) == sum(traffic.by_kind.values())
    assert sum(traffic.counts.values()) == len(traffic.collectives) > 0
    assert str(traffic).startswith("mesh data=2,model=2    ")
    assert len(str(traffic).splitlines()) == 1 + len(traffic.collectives)


def test_too_few_devices_is_said_with_what_to_do() -> None:
    wide = gs.compile(SOURCE, mesh={"data": 64, "model": 64}, entry="twice")
    with pytest.raises(gs.GShardError, match="needs 4096 devices") as caught:
        wide(np.ones(5, "f4"))
    assert "jax_num_cpu_devices" in str(caught.value)


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_dumps_as_text_and_as_json(program: gs.Program, stage: str) -> None:
    text, document = program.dump(stage), json.loads(program.dump(stage, format="json"))
    assert text.endswith("\n")
    head = {k: document[k] for k in ("format", "stage", "entry", "mesh")}
    assert head == {
        "format": "gshard-dump-1",
        "stage": stage,
        "entry": "main",
        "mesh": {"data": 2, "model": 2},
    }


def test_unknown_stage_and_target_are_errors(program: gs.Program) -> None:
    with pytest.raises(gs.GShardError, match="unknown stage partition"):
        program.dump("partition")
    with pytest.raises(gs.GShardError, match="unknown target xla"):
        program.emit("xla")
    assert "jax.shard_map" in program.source
    assert "with_sharding_constraint" in program.emit(TARGETS[1])


def test_explain_gives_each_axis_its_cause(program: gs.Program) -> None:
    text = str(program.explain("h2"))
    assert "h2" in text and "@data" in text and "@model" in text
    assert text.count("your annotation") >= 2, text
    with pytest.raises(gs.GShardError, match="hh"):
        program.explain("hh")


def test_compile_takes_a_path_with_or_without_a_def(tmp_path: Path) -> None:
    path = tmp_path / "a.gshard"
    path.write_text(SOURCE, encoding="utf-8")
    assert gs.compile(path).entry == "main"
    assert gs.compile(f"{path}:twice").title == "a.gshard:twice"
    assert gs.compile(str(path), entry="twice", defines={"N": 4}).entry == "twice"
    odd = tmp_path / "b:c"
    odd.write_text(SOURCE, encoding="utf-8")
    assert gs.compile(odd).entry == "main"


def test_compile_raises_every_mistake() -> None:
    with pytest.raises(gs.GShardError) as caught:
        gs.compile("def f(x: f32[4]) -> f32[4]:\n    a = x + y\n    return zz(a)\n")
    assert [d.span.line for d in caught.value.diagnostics if d.span] == [2, 3]


def test_seeded_arguments_depend_on_name_and_seed_alone() -> None:
    main = gs.compile(SOURCE).lowered.main
    first, second, other = data.seeded(main, 1), data.seeded(main, 1), data.seeded(main, 2)
    for name, value in zip(main.param_names, main.params, strict=True):
        np.testing.assert_array_equal(first[name], second[name])
        data.as_array(name, value.type, first[name])
    assert not np.array_equal(first["x"], other["x"])
    assert 0.2 < first["p.w1"].std() * 6**0.5 < 2, "parameters are scaled by their fan-in"
