"""gshard compare: what is counted, promoted and said to agree, on one small program."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import gshard_ir as gs
from gshard_ir import data
from gshard_ir.backends import jax_run
from gshard_ir.cli import compare as command
from gshard_ir.cli import main
from gshard_ir.compare import Comparison, compare
from gshard_ir.dump.table import plain

SOURCE = """\
mesh(x=4)
def main(a: bf16[8, 16@x], b: f32[6@x, 4]) -> (bf16[8, 16], f32[6, 4@x]):
    c = replicate(a)
    d = split(b, 1, x)
    return c, d
"""


@pytest.fixture(scope="module")
def program() -> gs.Program:
    return gs.compile(SOURCE)


@pytest.fixture(scope="module")
def found(program: gs.Program) -> Comparison:
    jax_run.ensure_devices(4)
    main_ = program.lowered.main
    told: list[str] = []
    result = compare(program, data.bind(main_, (), data.seeded(main_, 0)), runs=3, tell=told.append)
    assert told == ["compiling ours", "compiling jax-auto", "comparing values", "timing"]
    return result


def test_bytes_are_read_from_xla_on_both_sides(found: Comparison) -> None:
    # all_gather of 8 x 16 from 4 devices: 3/4 of it, sent as f32 by XLA:CPU; all_to_all of 2 padded rows of 4 floats
    gathered, exchanged = 8 * 16 * 4 * 3 // 4, 2 * 4 * 4 * 3 // 4
    assert found.ours.sent == gathered + exchanged
    assert found.ours.by_kind == {"all-gather": gathered, "all-to-all": exchanged}
    assert found.ours.counts == {"all-gather": 1, "all-to-all": 1}
    assert found.auto.sent >= found.ours.sent > 0


def test_promoted_bytes_are_told_apart(found: Comparison) -> None:
    (promoted,) = found.promoted
    assert (promoted.dtype, promoted.planned, promoted.bytes) == ("bf16", 8 * 16 * 2 * 3 // 4, 8 * 16 * 2 * 3 // 4)
    assert promoted.collectives == ("c (line 3), all_gather x, dim 1",)
    assert found.planned + promoted.bytes == found.ours.sent, "what is promoted is sent twice as wide"


def test_values_agree_and_times_are_paired(found: Comparison) -> None:
    assert found.agrees and [d.output for d in found.differences] == ["c", "d"]
    assert len(found.ratios) == 3 and all(r > 0 for r in found.ratios)
    assert found.step_ratio == sorted(found.ratios)[1]
    assert min(found.ours.compile_seconds, found.auto.compile_seconds, found.ours.step_seconds) > 0


def test_text_and_json_say_the_same(program: gs.Program, found: Comparison) -> None:
    text = plain(command.lines_of(program, found))
    document = found.as_json()
    json.dumps(document, allow_nan=False)
    assert "ours and jax-auto agree" in text
    assert f"{document['planned_bytes']} B planned" in text
    assert f"{found.step_ratio:.3f}" in text and f"{found.ours.sent / found.auto.sent:.3f}" in text
    assert document["agrees"] is True


def test_a_difference_is_told(program: gs.Program, found: Comparison) -> None:
    off = dataclasses.replace(found.differences[1], error=0.5, ulps=1e6)
    wrong = dataclasses.replace(found, differences=(found.differences[0], off))
    assert not wrong.agrees
    text = plain(command.lines_of(program, wrong))
    assert "d: f32[6,4] differs, largest error 0.5" in text and "agree" not in text


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.gshard").write_text("mesh(x=2)\ndef f(a: f32[4@x]) -> f32[4]:\n    return replicate(a)\n", encoding="utf-8")
    assert main(["compare", "a.gshard", "--runs", "1", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "gshard-compare-1" and document["agrees"] and document["runs"] == 1
    (row,) = document["meshes"]
    assert row["mesh"] == {"x": 2} and row["ours"]["bytes"] == row["jax_auto"]["bytes"] == 8
    for runs in ("0", "-1", "x", "1000000"):
        assert main(["compare", "a.gshard", f"--runs={runs}"]) == 2
        assert "--runs" in capsys.readouterr().err
