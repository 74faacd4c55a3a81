"""gshard diff: what it finds between programs, meshes and saved dumps, and its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gshard_ir as gs
from gshard_ir.cli import main
from gshard_ir.dump.diff import align, diff
from gshard_ir.dump.snapshot import of_program, read
from gshard_ir.errors import GShardError

OLD = """\
mesh(x=4)
def main(a: f32[8@x, 16], w: f32[16, 8]) -> f32[8, 8]:
    h = a @ w
    h = split(h, 1, x)
    return h
"""
NEW = OLD.replace("split(h, 1, x)", "replicate(h)")
LONGER = OLD.replace("    h = a @ w\n", "    # a line more\n    h = a @ w\n")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    for name, text in (("old", OLD), ("new", NEW), ("longer", LONGER), ("broken", "def f(:\n")):
        Path(f"{name}.gshard").write_text(text, encoding="utf-8")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["diff", *words])
        found = capsys.readouterr()
        assert "Traceback" not in found.out + found.err
        return code, found.out, found.err

    return call


def test_a_program_does_not_differ_from_itself(run: Run) -> None:
    assert run("old.gshard")[0] == 0
    assert "no difference" in run("old.gshard", "old.gshard:main")[1]


def test_layouts_come_first_then_collectives_then_bytes(run: Run) -> None:
    code, out, _ = run("old.gshard", "new.gshard")
    assert code == 1
    # 8 * 8 floats on 4 devices: 64 B each; all_to_all sends 3/4 of it, all_gather three times it
    assert out == (
        "a: old.gshard:main    mesh x=4    48 B sent per device\n"
        "b: new.gshard:main    mesh x=4    192 B sent per device\n"
        "\n"
        "     line  value  a           b\n"
        "  ~     4  h      f32[8,8@x]  f32[8,8]\n"
        "  ~     4  -> h   f32[8,8@x]  f32[8,8]\n"
        "\n"
        "     line  value  communication              sent  why\n"
        "  -     4  h      all_to_all x, dim 0 -> 1   48 B  split(h, 1, x)\n"
        "  +     4  h      all_gather x, dim 0       192 B  replicate(h)\n"
        "\n"
        "  all_gather: 0 B -> 192 B\n"
        "  all_to_all: 48 B -> 0 B\n"
        "  sent per device: 48 B -> 192 B (+144 B, +300.0 %)\n"
    )


def test_json_says_the_same(run: Run) -> None:
    code, out, _ = run("old.gshard", "new.gshard", "--format", "json")
    document = json.loads(out)
    assert code == 1 and document["format"] == "gshard-diff-1" and not document["same"]
    first = document["layouts"]["changed"][0]
    assert (first["name"], first["a"]["global"], first["b"]["global"]) == ("h", "f32[8,8@x]", "f32[8,8]")
    assert [c["kind"] for c in document["collectives"]["removed"]] == ["all_to_all"]
    assert [(c["kind"], c["line"], c["bytes"]) for c in document["collectives"]["added"]] == [("all_gather", 4, 192)]
    assert document["increase"] == 144 and document["by_kind"]["all_gather"] == {"a": 0, "b": 192}


def test_lines_that_move_are_no_difference(run: Run) -> None:
    assert run("old.gshard", "longer.gshard")[0] == 0


def test_meshes_and_consts_of_either_side(run: Run) -> None:
    code, out, _ = run("old.gshard", "--mesh-a", "x=2", "--mesh-b", "x=4")
    assert code == 1
    assert "every layout is the same" in out and "keep their layout" in out
    assert "all_to_all x, dim 0 -> 1  64 B -> 48 B" in out
    assert "=" in run("old.gshard", "--mesh-a", "x=2", "--all")[1]
    Path("c.gshard").write_text("const N = 4\n" + OLD.replace("[8@x", "[N@x").replace("-> f32[8, 8]", ""), "utf-8")
    assert run("c.gshard", "-D", "N=8")[0] == 0
    code, out, _ = run("c.gshard", "--define-b", "N=8", "--mesh", "x=2")
    assert code == 1 and "f32[4@x,16]  f32[8@x,16]" in out


def test_a_saved_dump_stands_for_its_program(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for stage in ("partitioned", "propagated"):
        assert main(["dump", "old.gshard", "--stage", stage, "--format", "json"]) == 0
        Path(f"{stage}.json").write_text(capsys.readouterr().out, encoding="utf-8")
        assert run(f"{stage}.json", "old.gshard")[0] == 0
        assert run("new.gshard", f"{stage}.json")[0] == 1
    code, _, err = run("partitioned.json", "propagated.json")
    assert code == 2 and "stage" in err


def test_a_limit_on_bytes_is_for_ci(run: Run) -> None:
    for limit, code in (("144", 0), ("143", 1), ("300%", 0), ("299.9%", 1)):
        assert run("old.gshard", "new.gshard", "--max-bytes-increase", limit)[0] == code
    assert run("new.gshard", "old.gshard", "--max-bytes-increase", "0")[0] == 0, "fewer bytes are always allowed"
    for wrong in ("-1", "x", "5 %", ""):
        assert run("old.gshard", "new.gshard", "--max-bytes-increase", wrong)[0] == 2


@pytest.mark.parametrize(
    "words", [("broken.gshard",), ("none.gshard",), ("none.json",), ("old.gshard:f",), ("old.gshard", "--mesh", "y=2")]
)
def test_what_cannot_be_compared_is_trouble(run: Run, words: tuple[str, ...]) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "") and "error:" in err


def saved() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gs.compile(OLD).dump(format="json"))
    return found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.update(format="gshard-dump-9"), "format gshard-dump-9"),
        (lambda d: d.update(stage="ir"), "which has no layouts"),
        (lambda d: d.pop("values"), "it has no values"),
        (lambda d: d.update(values={}), "values is no list"),
        (lambda d: d["values"].append(3), r"values\[5\] is no object"),
        (lambda d: d["values"][0].update(line=-1), r"values\[0\].line is no count"),
        (lambda d: d["values"][0].update(name=None), r"values\[0\].name is no string"),
        (lambda d: d["traffic"]["collectives"][0].update(bytes=float("nan")), "bytes is no number"),
        (lambda d: d["traffic"]["collectives"][0].update(bytes=10**400), "bytes is no number"),
        (lambda d: d.update(mesh=[]), "mesh is no object"),
        (lambda d: d.update(mesh={"x": 2**62, "y": 4}), "mesh is no mesh"),
    ],
)
def test_documents_are_not_trusted(change: Callable[[dict[str, Any]], object], told: str) -> None:
    document = saved()
    assert len(document["values"]) == 5
    change(document)
    with pytest.raises(GShardError, match=told):
        read(json.dumps(document), "saved.json")


def test_hostile_documents_do_no_harm() -> None:
    for text in ("[" * 100_000, '{"format": ', "{}", '{"a": NaN}'):
        with pytest.raises(GShardError):
            read(text, "saved.json")
    document = saved()
    document["values"][0]["name"] = "\x1b[2Jevil\n"
    document["entry"] = "\x1b]0;evil\x07"
    found = read(json.dumps(document), "saved.json")
    assert "\x1b" not in found.title + found.values[0].name and "\n" not in found.values[0].name


def test_names_that_occur_often_are_matched_by_likeness() -> None:
    def matched(a: str, b: str) -> list[tuple[str | None, str | None]]:
        return align(a.split(), b.split(), lambda w: w[0], lambda x, y: 1 + 2 * (x == y))

    assert matched("x1 x2 x3", "x1 x3") == [("x1", "x1"), ("x3", "x3"), ("x2", None)]
    assert matched("x2", "x1 x2 y1") == [(None, "x1"), ("x2", "x2"), (None, "y1")]
    assert matched("x1 y1", "y1 x1") == [("y1", "y1"), ("x1", "x1")]
    assert matched("x1 x2", "x3 x4") == [("x1", "x3"), ("x2", "x4")], "as many on both sides: in order"


def test_a_diff_turned_round_is_the_reverse() -> None:
    a, b = (of_program(gs.compile(text)) for text in (OLD, NEW))
    there, back = diff(a, b), diff(b, a)
    assert there.changed == tuple((y, x) for x, y in back.changed) and there.changed
    assert (there.more, there.fewer) == (back.fewer, back.more)
    assert there.increase == -(back.increase or 0.0) == 144
