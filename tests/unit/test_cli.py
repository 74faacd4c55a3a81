"""The command: what it prints, where it writes, its exit codes, and one diagnostic per mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gshard_ir as gs
from gshard_ir.cli import main

SOURCE = """\
mesh(x=2, y=2)

const N = 8

struct Layer:
    w: f32[N, 6@y]
    b: f32[6@y]

def main(a: f32[5@x, N], p: Layer, k: key) -> (f32[5, 6], i32[5]):
    h = a @ p.w + p.b + uniform(k, [5, 6])
    return h, argmax(h, axis=1)

def other(a: f32[4@x]) -> f32[4]:
    return a + 1.0
"""
BROKEN = """\
mesh(x=2)
def f(a: f32[4@x], b: f32[5]) -> f32[4]:
    c = a + b
    return d
"""
Run = Callable[..., "Result"]


class Result:
    """Exit code and output of one command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder with the programs and some arrays."""
    monkeypatch.chdir(tmp_path)
    Path("a.gshard").write_text(SOURCE, encoding="utf-8")
    Path("broken.gshard").write_text(BROKEN, encoding="utf-8")
    draw = np.random.default_rng(0)
    np.save("a.npy", draw.normal(size=(5, 8)).astype("f4"))
    np.save("wide.npy", draw.normal(size=(5, 8)))
    np.save("short.npy", draw.normal(size=(4, 8)).astype("f4"))
    np.savez("p.npz", w=draw.normal(size=(8, 6)).astype("f4"), b=np.ones(6, "f4"))

    def call(*words: str) -> Result:
        code = main(words)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return call


# ---- check, dump, compile


def test_check_says_what_it_checked(run: Run) -> None:
    found = run("check", "a.gshard")
    assert found.code == 0
    assert found.out == (
        "a.gshard:main is well-typed on mesh x=2,y=2: "
        "(a: f32[5,8], p.w: f32[8,6], p.b: f32[6], k: key) -> (f32[5,6], i32[5])\n"
    )
    document = run("check", "a.gshard:other", "--mesh", "x=4", "--format", "json").json()
    assert document == {
        "format": "gshard-check-1",
        "ok": True,
        "file": "a.gshard",
        "entry": "other",
        "mesh": {"x": 4, "y": 1},
        "params": {"a": "f32[4]"},
        "results": ["f32[4]"],
        "clashes": 0,
    }


def test_check_reports_all_mistakes_with_their_places(run: Run) -> None:
    found = run("check", "broken.gshard")
    assert (found.code, found.out) == (1, "")
    assert "broken.gshard:3:9: error:" in found.err
    assert "broken.gshard:4:12: error:" in found.err
    assert found.err.endswith("2 errors\n")
    document = run("check", "broken.gshard", "--format", "json")
    assert document.code == 1
    assert [e["at"]["line"] for e in document.json()["errors"]] == [3, 4]
    assert document.err == ""


def test_check_finds_annotations_that_cannot_be_honoured(run: Run) -> None:
    Path("twice.gshard").write_text(
        "mesh(x=2)\ndef f(a: f32[4@x, 4@x]) -> f32[4, 4]:\n    return a\n", encoding="utf-8"
    )
    found = run("check", "twice.gshard")
    assert found.code == 1
    assert "twice.gshard:2" in found.err


@pytest.mark.parametrize("stage", ["source", "ir", "propagated", "partitioned", "emitted"])
def test_dump_prints_what_the_program_dumps(run: Run, stage: str) -> None:
    program = gs.compile("a.gshard", mesh={"x": 2, "y": 3}, defines={"N": 4}, launch_bytes=0, search=False)
    options = ("--mesh", "x=2,y=3", "-D", "N=4", "--launch-bytes", "0", "--no-refine")
    for format in ("text", "json"):
        found = run("dump", "a.gshard", "--stage", stage, *options, "--format", format)
        assert (found.code, found.err) == (0, "")
        assert found.out == program.dump(stage, format=format)


def test_dump_all_shows_more(run: Run) -> None:
    Path("call.gshard").write_text(
        "mesh(x=2)\ndef g(a: f32[4]) -> f32[4]:\n    inner = a + a\n    return inner * inner\n"
        "def f(a: f32[4@x]) -> f32[4]:\n    out = g(a)\n    return out\n",
        encoding="utf-8",
    )
    assert "inner" not in run("dump", "call.gshard").out
    assert "inner" in run("dump", "call.gshard", "--all").out


@pytest.mark.parametrize("target", ["jax", "jax-auto"])
def test_compile_writes_the_emitted_file(run: Run, target: str) -> None:
    found = run("compile", "a.gshard", "-o", "out.py", "--target", target)
    assert found.code == 0
    assert found.out.startswith(f"out.py: a.gshard:main for {target}    mesh x=2,y=2")
    assert Path("out.py").read_text(encoding="utf-8") == gs.compile("a.gshard").emit(target)
    assert run("compile", "a.gshard", "-o", "-", "--target", target).out == gs.compile("a.gshard").emit(target)


def test_files_are_replaced_only_on_request_and_never_left_half_written(run: Run) -> None:
    Path("out.py").write_text("precious", encoding="utf-8")
    found = run("compile", "a.gshard", "-o", "out.py")
    assert (found.code, Path("out.py").read_text(encoding="utf-8")) == (2, "precious")
    assert "out.py exists" in found.err
    assert "--force" in found.err
    assert run("compile", "broken.gshard", "-o", "out.py", "--force").code == 1
    assert Path("out.py").read_text(encoding="utf-8") == "precious"
    assert run("compile", "a.gshard", "-o", "out.py", "--force").code == 0
    assert Path("out.py").read_text(encoding="utf-8").startswith('"""a.gshard:main')
    assert not [p for p in Path().iterdir() if p.name.endswith(".tmp")]


def test_a_link_is_written_through_and_a_device_is_not_replaced(run: Run) -> None:
    Path("real.py").write_text("old", encoding="utf-8")
    Path("link.py").symlink_to("real.py")
    assert run("compile", "a.gshard", "-o", "link.py", "--force").code == 0
    assert Path("link.py").is_symlink()
    assert Path("real.py").read_text(encoding="utf-8") != "old"
    assert run("compile", "a.gshard", "-o", os.devnull).code == 0
    assert not Path(os.devnull).is_file()


# ---- run, verify


def test_run_saves_what_the_reference_computes(run: Run) -> None:
    given = ("--input", "a=a.npy", "--input", "p=p.npz", "--input", "k=5")
    found = run("run", "a.gshard", "--devices", "8", *given, "--output", "out.npz")
    assert (found.code, found.err) == (0, ""), "nothing is random, so there is no note"
    assert "saved to out.npz" in found.out
    with np.load("p.npz") as p:
        h, best = gs.compile("a.gshard").reference(a=np.load("a.npy"), p=dict(p), k=5)
    with np.load("out.npz") as saved:
        assert list(saved) == ["h", "r1"]
        np.testing.assert_allclose(saved["h"], h, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(saved["r1"], best)
    row = next(line.split() for line in found.out.splitlines() if line.split()[:1] == ["h"])
    assert row[1:3] == ["f32[5,6]", "[3,3]"]
    assert [float(v) for v in row[3:]] == pytest.approx([h.mean(), h.min(), h.max()], rel=1e-4)
    assert run("run", "a.gshard", *given, "--output", "out.npz").code == 2


def test_run_draws_what_is_missing_from_the_seed(run: Run) -> None:
    found = run("run", "a.gshard", "--input", "p.b=p.npz", "--seed", "3", "--output", "new/folder")
    assert found.code == 2, "a .npz is no single array"
    np.save("b.npy", np.zeros(6, "f4"))
    found = run("run", "a.gshard", "--input", "p.b=b.npy", "--seed", "3", "--output", "new/folder")
    assert (found.code, found.err) == (0, "note: random (seed 3): a, p.w, k\n")
    first = np.load("new/folder/h.npy")
    run("run", "a.gshard", "--input", "p.b=b.npy", "--seed", "3", "--output", "new/folder", "--force")
    np.testing.assert_array_equal(np.load("new/folder/h.npy"), first)
    run("run", "a.gshard", "--input", "p.b=b.npy", "--seed", "4", "--output", "new/folder", "--force")
    assert not np.array_equal(np.load("new/folder/h.npy"), first)
    assert run("run", "a.gshard", "--seed", "4", "--output", "new/folder").code == 2, "files there are kept"


def test_a_bare_npz_holds_dotted_names(run: Run) -> None:
    with np.load("p.npz") as p:
        np.savez("all.npz", **{"a": np.load("a.npy"), "p.w": p["w"], "p.b": p["b"], "k": np.array([0, 5], "u4")})
    found = run("run", "a.gshard", "--input", "all.npz", "--format", "json")
    assert (found.code, found.err) == (0, "")
    document = found.json()
    assert (document["format"], document["mesh"], document["saved"]) == ("gshard-run-1", {"x": 2, "y": 2}, None)
    assert [o["name"] for o in document["outputs"]] == ["h", "r1"]
    assert document["traffic"]["bytes"] == gs.compile("a.gshard").traffic().bytes


def test_verify_compares_three_ways_on_every_mesh(run: Run) -> None:
    found = run("verify", "a.gshard", "--mesh", "x=1,y=1", "--mesh", "x=3,y=2", "--format", "json")
    assert found.code == 0
    document = found.json()
    assert document["agrees"]
    assert [m["mesh"] for m in document["meshes"]] == [{"x": 1, "y": 1}, {"x": 3, "y": 2}]
    for mesh in document["meshes"]:
        ways = [(o["output"], o["against"]) for o in mesh["outputs"]]
        assert ways == [("h", "simulator"), ("r1", "simulator"), ("h", "jax"), ("r1", "jax")]
        assert all(o["agrees"] and o["ulps"] <= o["tolerance"] for o in mesh["outputs"])
        assert mesh["parts_at"] == []
    text = run("verify", "a.gshard", "--no-jax")
    assert "reference, simulator agree" in text.out
    assert "jax" not in text.out


def test_verify_fails_when_results_differ(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from gshard_ir.backends import spmd_numpy

    true = spmd_numpy.COMBINE["sum"]
    monkeypatch.setitem(spmd_numpy.COMBINE, "sum", lambda a, b: true(a, b) * np.float32(1.5))
    Path("s.gshard").write_text("mesh(x=2)\ndef f(a: f32[8@x]) -> f32[]:\n    return sum(a)\n", encoding="utf-8")
    found = run("verify", "s.gshard")
    assert found.code == 1
    assert "  simulator differs from the reference\n" in found.out
    assert "simulator parts at (reduce_sum), all_reduce (s.gshard:3): largest error" in found.out


# ---- mistakes in the command


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        ([], ["no command given", "gshard --help"]),
        (["dumb", "a.gshard"], ["command dumb: there is none", "gshard --help lists them", "try: dump"]),
        (["dump"], ["required: FILE[:DEF]"]),
        (
            ["dump", "a.gshard", "--stage", "last"],
            ["--stage last: there is none", "emitted", "try: gshard dump --help"],
        ),
        (["check", "b.gshard"], ["cannot read b.gshard: No such file"]),
        (["check", "brokn.gshard"], ["cannot read brokn.gshard", "try: broken.gshard"]),
        (["check", "."], [". is a directory"]),
        (["check", "a.npy"], ["a.npy is not UTF-8 text"]),
        (["check", "a\0b"], ["cannot read"]),
        (["check", "a.gshard:man"], ["has no def man", "try: main"]),
        (["check", "a.gshard", "--mesh", "x"], ["--mesh x: cannot read 'x'", "name=size"]),
        (["check", "a.gshard", "--mesh", "x=2,,y=2"], ["cannot read ''"]),
        (["check", "a.gshard", "--mesh", "x=0"], ["size 0 of x is not in [1, 2,147,483,647]"]),
        (["check", "a.gshard", "--mesh", "x=2,x=2"], ["axis x is given twice"]),
        (["check", "a.gshard", "--mesh", "z=2"], ["declares no mesh axis z", "x=2, y=2"]),
        (["check", "a.gshard", "--mesh", "x=2000000000,y=2000000000"], ["devices"]),
        (["check", "a.gshard", "-D", "N"], ["-D N: cannot read it", "NAME=INTEGER"]),
        (["check", "a.gshard", "-D", "N=1", "-D", "N=2"], ["N is given twice"]),
        (["check", "a.gshard", "-D", "M=1"], ["no const M"]),
        (["check", "a.gshard", "--launch-bytes", "-1"], ["--launch-bytes -1"]),
        (["check", "a.gshard", "--launch-bytes", "inf"], ["--launch-bytes inf"]),
        (["compile", "a.gshard"], ["required: -o/--output"]),
        (["compile", "a.gshard", "-o", "."], ["it is a directory"]),
        (["compile", "a.gshard", "-o", "no/out.py"], ["no is no directory"]),
        (["compile", "a.gshard", "-o", "a.npy/out.py"], ["cannot write a.npy/out.py"]),
        (["compile", "a.gshard", "-o", "/dev/full"], ["cannot write /dev/full: No space left"]),
        (["run", "a.gshard", "--devices", "2"], ["x=2,y=2 needs 4 devices, --devices is 2"]),
        (["run", "a.gshard", "--devices", "0"], ["--devices 0"]),
        (["run", "a.gshard", "--mesh", "x=1024,y=1024"], ["needs 1,048,576 devices"]),
        (["run", "a.gshard", "--seed", "x"], ["--seed x"]),
        (["run", "a.gshard", "--input", "a"], ["--input a: cannot read it", "NAME=FILE.npy"]),
        (["run", "a.gshard", "--input", "a b=a.npy"], ["'a b' is no name"]),
        (["run", "a.gshard", "--input", "b=a.npy"], ["main has no argument b", "a, p.w, p.b, k"]),
        (["run", "a.gshard", "--input", "p.v=a.npy"], ["main has no argument p.v", "try: p.w"]),
        (["run", "a.gshard", "--input", "a=no.npy"], ["cannot read no.npy: no such file"]),
        (["run", "a.gshard", "--input", "a=short.npy"], ["a is f32[4,8], expected f32[5,8]", "dim 0 is 4, expected 5"]),
        (["run", "a.gshard", "--input", "a=wide.npy"], ["a is f64[5,8], expected f32[5,8]", 'a.astype("float32")']),
        (["run", "a.gshard", "--input", "a=a.npy", "--input", "a=a.npy"], ["a is given twice"]),
        (["run", "a.gshard", "--input", "k=-3"], ["a seed is in [0, 2**64), found -3"]),
        (["run", "a.gshard", "--input", "a=."], ["cannot read .: Is a directory"]),
        (["run", "a.gshard", "--output", ""], ["--output is empty"]),
        (["run", "a.gshard", "--output", "a.npy/b"], ["cannot write to a.npy/b: a.npy is no directory"]),
        (["run", "a.gshard", "--output", "p.npz"], ["p.npz exists"]),
        (["verify", "a.gshard", "--mesh", "x=2", "--mesh", "y"], ["cannot read 'y'"]),
    ],
)
def test_a_wrong_command_gives_one_diagnostic(run: Run, words: list[str], fragments: list[str]) -> None:
    found = run(*words)
    assert found.code == 2
    assert found.out == ""
    assert found.err.startswith("error: ")
    assert found.err.count("error: ") == 1
    for fragment in fragments:
        assert fragment in found.err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is no whole .npy or .npz"),
        (b"garbage", "it is neither .npy nor .npz"),
        (b"PK\x03\x04garbage", "it is no whole .npy or .npz"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (5, 8), }", "no whole .npy or .npz"),
        (b"\x93NUMPY\x09\x09", "it is no whole .npy or .npz"),
        (b"\x80\x04N.", "it is neither .npy nor .npz"),
    ],
)
def test_broken_array_files_are_named(run: Run, content: bytes, why: str) -> None:
    Path("bad.npz").write_bytes(content)
    for words in (("--input", "bad.npz"), ("--input", "a=bad.npz")):
        found = run("run", "a.gshard", *words)
        assert (found.code, found.out) == (2, "")
        assert f"cannot read bad.npz: {why}" in found.err or f"cannot read bad.npz: it is {why}" in found.err


@pytest.mark.parametrize(("at", "byte"), [((8, 10), 99), ((6, 8), 1)], ids=["unknown compression", "password"])
def test_archives_that_zipfile_cannot_unpack_are_named(run: Run, at: tuple[int, int], byte: int) -> None:
    np.savez("odd.npz", a=np.ones(4, np.float32))
    content = bytearray(Path("odd.npz").read_bytes())
    for offset, header in zip(at, (b"PK\3\4", b"PK\1\2"), strict=True):
        content[content.index(header) + offset] = byte
    Path("odd.npz").write_bytes(content)
    found = run("run", "a.gshard", "--input", "odd.npz")
    assert (found.code, found.out) == (2, "")
    assert "cannot read odd.npz: it is no whole .npy or .npz" in found.err


def test_pickles_are_never_loaded(run: Run) -> None:
    np.save("object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez("object.npz", a=np.array([{}], dtype=object))
    for words in (("--input", "a=object.npy"), ("--input", "object.npz")):
        found = run("run", "a.gshard", *words)
        assert found.code == 2
        assert "it holds Python objects, which are never loaded" in found.err


def test_a_bug_of_ours_is_one_line_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("gshard_ir.api.check", broken)
    found = run("check", "a.gshard")
    assert found.code == 3
    assert found.err.splitlines()[0] == "error: internal error: RuntimeError: first line"
    assert "this is a bug in gshard" in found.err
    assert "second line" not in found.err
    monkeypatch.setenv("GSHARD_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main(["check", "a.gshard"])


@pytest.mark.parametrize("command", ["", "check", "dump", "compile", "run", "verify"])
def test_help_has_examples(run: Run, command: str) -> None:
    found = run(*([command] if command else []), "--help")
    assert (found.code, found.err) == (0, "")
    assert "examples:\n  gshard " in found.out
    assert f"usage: gshard {command}".strip() in found.out


def test_version(run: Run) -> None:
    assert run("--version").out.startswith("gshard ")


# ---- as a process


def start(*words: str, cwd: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gshard_ir.cli", *words],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_closed_pipe_is_quiet(run: Run, tmp_path: Path) -> None:
    process = start("dump", "a.gshard", "--stage", "emitted", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_a_full_disk_is_one_diagnostic(run: Run, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gshard_ir.cli", "dump", "a.gshard"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, b"error: cannot write the output: No space left on device\n")


@pytest.mark.parametrize(
    ("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_only_where_a_terminal_wants_it(run: Run, environment: dict[str, str], coloured: bool) -> None:
    import pty

    front, back = pty.openpty()
    plain_text = run("dump", "a.gshard").out
    settings = {"NO_COLOR": "", "TERM": "xterm", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "gshard_ir.cli", "dump", "a.gshard"], stdout=back, env={**os.environ, **settings}
    )
    os.close(back)
    found = b""
    while chunk := _chunk(front):
        found += chunk
    os.close(front)
    assert process.wait() == 0
    assert (b"\x1b[" in found) == coloured
    if not coloured:
        assert found.decode().replace("\r\n", "\n") == plain_text


def _chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side has hung up
        return b""


def test_dump_needs_neither_jax_nor_rich_and_is_quick(run: Run, tmp_path: Path) -> None:
    script = (
        "import sys, time; from gshard_ir.cli import main; main(['dump', 'a.gshard', '--mesh', 'x=2048']);"
        "print([m for m in ('jax', 'rich', 'networkx', 'ml_dtypes') if m in sys.modules], time.process_time())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=True)
    modules, seconds = done.stdout.decode().splitlines()[-1].rsplit(" ", 1)
    assert modules == "[]"
    assert float(seconds) < 2.0, "0.4 s on a quiet machine; the limit only catches a heavy import"
