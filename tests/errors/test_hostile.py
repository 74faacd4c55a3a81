"""Hostile input: whatever is typed ends in a program or in diagnostics, soon, in little memory, and runs nothing.

`make test` tries 2,000 mutations and 400 byte strings; with GSHARD_SWEEP set 50,000 and 10,000.
"""

from __future__ import annotations

import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from errors.guard import TooSlowError, attempt, inspect, limits
from errors.mutations import HUGE, NAMES, STRINGS, command, mutated, random_bytes, small_programs, spice, valid_programs

import gshard_ir as gs
from gshard_ir.api import check
from gshard_ir.cli import main
from gshard_ir.cli.output import write
from gshard_ir.cli.usage import UsageError
from gshard_ir.errors import GShardError
from gshard_ir.frontend.parser import decode
from gshard_ir.program import TARGETS

PARTS = 20
SWEEP = bool(os.environ.get("GSHARD_SWEEP"))
MUTATIONS, BYTES = (50_000, 10_000) if SWEEP else (2_000, 400)


@pytest.fixture(autouse=True, scope="module")
def warm() -> None:
    """Load what is loaded once, so that no single case pays for it."""
    assert attempt(small_programs()[0], seconds=60)


def tried(what: str, seed: int, data: bytes | str, **options: object) -> bool:
    """Attempt one case; name its seed when it fails."""
    try:
        return bool(attempt(data, **options))  # type: ignore[arg-type]
    except (Exception, TooSlowError) as failure:
        raise AssertionError(f"{what} {seed}: {type(failure).__name__}: {failure}") from failure


@pytest.mark.parametrize("part", range(PARTS))
def test_mutations(part: int) -> None:
    outcomes: Counter[bool] = Counter()
    for seed in range(part * MUTATIONS // PARTS, (part + 1) * MUTATIONS // PARTS):
        draw = random.Random(seed)
        text = mutated(draw)
        mesh, defines = command(draw)
        outcomes[tried("mutation", seed, text, mesh=mesh, defines=defines)] += 1
    assert outcomes[True] and outcomes[False], "some are still programs, most are not"


@pytest.mark.parametrize("part", range(4))
def test_random_bytes(part: int) -> None:
    for seed in range(part * BYTES // 4, (part + 1) * BYTES // 4):
        tried("bytes", seed, random_bytes(random.Random(seed)))


def test_what_is_emitted_for_every_example_passes_the_inspection() -> None:
    for text in (*small_programs(), *valid_programs()):
        try:
            program = check(decode("x.gshard", text.encode()))
        except GShardError:
            continue  # the fixtures of the parser use what is not there yet
        for target in TARGETS:
            inspect(program.emit(target))


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.system('true')\n",
        "def f(x):\n    return eval(x)\n",
        "def f(jnp):\n    return jnp\n",
        "def f(x):\n    print = x\n    return print\n",
        "x = x.__class__\n",
        "x = (lambda: 0)\n",
        'x = "a b"\n',
        "def f(x):\n    class A: pass\n",
    ],
)
def test_the_inspection_itself_finds_what_does_not_belong(text: str) -> None:
    with pytest.raises(AssertionError):
        inspect(text)


# ---- sizes


def program(body: str, params: str = "x: f32[8, 8@a]", mesh: str = "a=2, b=4", result: str = "z") -> str:
    return f"mesh({mesh})\ndef main({params}):\n    {body}\n    return {result}\n"


MILLION = "x: f32[1000000, 1000000@a]"
LEGAL = {
    "elements": program("z = x + 1.0", MILLION),
    "product": program("z = x @ x", MILLION),
    "constant": program("z = x + sum(zeros([1000000, 1000000]))"),
    "eye": program("z = x + sum(one_hot(arange(1000000), 1000000))"),
    "count": program("z = x + cast(sum(arange(2147483647)), f32)"),
    "pad": program("z = pad(x, [(1000000000, 1000000000), (0, 0)])"),
    "broadcast": program("z = broadcast_to(x, [1000000, 8, 8])"),
    "tile": program("z = tile(x, [1000000, 1000000])"),
    "roll": program("z = roll(x, 10 ** 18)"),
    "slice": program("z = x[-10 ** 18:10 ** 18:-10 ** 18]"),
    "draws": program("z = uniform(k, [1000000, 1000000])", "k: key"),
    "scan": program("z = cumsum(x, axis=0)", MILLION),
    "look-up": program("z = take(x, arange(1000000), axis=0)", MILLION),
    "rank": program("z = transpose(x) + sum(x)", f"x: f32[{', '.join(['2@a'] + ['2'] * 23)}]"),
    "devices": program("z = split(x @ x, 0, a), replicate(x)", mesh="a=2147483647"),
    "pieces": program("z = shard(x, [2147483647, 1])", mesh="a=2147483647"),
    "two axes": program("z = shard(x, [b, a]), x @ x", "x: f32[8@a, 8@b]", mesh="a=65536, b=16384"),
    "sub-axes": program("z = x @ x", "x: f32[8@a:(2)16, 8@a:(4096)2]", mesh="a=2 ** 30"),
    "power": program("z = x ** 9223372036854775807 + x ** -9223372036854775807"),
    "extremes": program("z = x * 1e308 + 1e-320 - 9223372036854775807"),
    "nothing": program("z = x @ transpose(x)", "x: f32[0@a, 8@b]"),
}
REFUSED = {
    "const": ("const A = 9 ** 9 ** 9\n", "9 ** 387420489 is too large"),
    "const product": ("const A = 2 ** 62\nconst B = A * A\n", "a compile-time integer is too large"),
    "mesh": (program("z = x", mesh="a=10 ** 12"), "must be at most 2,147,483,647, found 1,000,000,000,000"),
    "mesh product": (program("z = x", mesh="a=2 ** 20, b=2 ** 20"), "a mesh of 1,099,511,627,776 devices"),
    "dim": (program("z = x", "x: f32[10 ** 18]"), "more than 2,147,483,647 rows"),
    "elements": (program("z = x", "x: f32[2 ** 30, 2 ** 30]"), "more than 2**53 elements"),
    "stack": (
        "struct P:\n    w: f32[2 ** 30, 2 ** 20]\ndef main(p: P[2 ** 20]):\n    return p[0].w\n",
        "more than 2**53 elements",
    ),
    "pad": (program("z = pad(x, [(10 ** 18, 0), (0, 0)])"), "more than 2,147,483,647 rows"),
    "repeat": (program("z = repeat(x, 10 ** 9)"), "more than 2,147,483,647 rows"),
    "doubling": (program("for i in unroll(60):\n        z = concat([z, z])", "z: f32[8]"), "2,147,483,647 rows"),
    "count": (program("z = arange(0.0, 1.0, 1e-300)"), "dim 0 of [about 10**299] has more than"),
    "unroll": (program("for i in unroll(10 ** 9):\n        z = i"), "1,000,000,000 steps, at most 10,000"),
    "rank": (program("z = x", f"x: f32[{', '.join('1' * 30)}]"), "30 dims: a tensor has at most 24"),
    "pieces": (program("z = shard(x, [1000000000, 1000000000])"), "1000000000000000000 pieces for 8 devices"),
    "prime": (program("z = x", "x: f32[8@a:(1)2]", mesh="a=2147483647"), "is not a piece of axis a"),
    "index": (program("z = x[10 ** 18]"), "index 1000000000000000000 is out of range"),
    "operands": (program(f'z = einsum("{",".join(["ab"] * 99)}->ab", {", ".join("x" * 99)})'), "99 operands, at most"),
    "tensors": (program(f"z = concat([{', '.join('x' * 2000)}])"), "2,000 tensors, at most 1,000"),
    "structs": (
        "struct S0:\n    x: f32[8]\n    y: f32[8]\n"
        + "".join(f"struct S{i}:\n    x: S{i - 1}\n    y: S{i - 1}\n" for i in range(1, 40))
        + "def main(p: S39):\n    return p\n",
        "struct S13 holds 16,384 tensors, at most 10,000",
    ),
    "tuples": (
        "def main(x: f32[8]):\n    t = x\n" + "    t = t, t\n" * 60 + "    return t\n",
        "more than 100,000 parts",
    ),
    "calls": (
        "def g0x(x):\n    return x\n"
        + "".join(f"def g{i}x(x):\n    return g{i - 1}x(x) + g{i - 1}x(x)\n" for i in range(1, 40))
        + "def main(x: f32[8]):\n    return g39x(x)\n",
        "operations once its calls are inlined",
    ),
}


@pytest.mark.parametrize("text", LEGAL.values(), ids=LEGAL)
def test_sizes_that_are_legal_are_compiled_without_being_allocated(text: str) -> None:
    assert len(attempt(text)) == len(TARGETS)


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_sizes_that_are_not_are_refused_with_their_numbers(text: str, message: str) -> None:
    with limits(), pytest.raises(GShardError) as caught:
        _ = check(decode("h.gshard", text.encode())).compiled
    assert message in str(caught.value)
    assert all(len(line) < 1000 for line in str(caught.value).split("\n"))


@pytest.mark.parametrize(
    "text",
    [
        program("z = shard(x @ x, [(a2, a29), a1])", "x: f32[8@a0, 8@a1]", ", ".join(f"a{i}=2" for i in range(30))),
        program("z = x", mesh=", ".join(f"a{i}=1" for i in range(2000)), params="x: f32[8@a0]"),
        program("z = (" + ", ".join(f"x + {i}" for i in range(200)) + ")", "x: f32[8@a]"),
        "def main(" + ", ".join(f"x{i}: f32[8]" for i in range(800)) + "):\n    return x0\n",
        "".join(f"def g{i}x(x):\n    return {'-' * 20}{f'g{i - 1}x(x)' if i else 'x'}\n" for i in range(30))
        + "def main(x: f32[8]):\n    return g29x(x)\n",
        "def main(" + "x" * 100_000 + ": f32[8]):\n    return " + "x" * 100_000 + "\n",
        program("for i in unroll(250):\n        x = x * i + x", "x: f32[8@a]", result="x"),
    ],
    ids=["axes", "axes of size 1", "results", "parameters", "calls", "name", "loop"],
)
def test_large_programs_take_time_in_proportion(text: str) -> None:
    assert attempt(text, seconds=30)


# ---- names and texts


@pytest.mark.parametrize("name", NAMES)
def test_names_are_safe_wherever_they_stand(name: str) -> None:
    places = [
        f"def {name}(x: f32[8]):\n    return x + 1.0\n",
        f"def main({name}: f32[8]):\n    return {name} + 1.0\n",
        f"def main(x: f32[8]):\n    {name} = x + 1.0\n    return {name}\n",
        f"mesh({name}=2)\ndef main(x: f32[8@{name}, 4]):\n    return split(x, 0, {name}), sum(x)\n",
        f"struct {name}:\n    w: f32[8]\ndef main(p: {name}):\n    return p.w + 1.0\n",
        f"struct S:\n    {name}: f32[8]\ndef main(p: S):\n    return p.{name} + 1.0, p\n",
        f"const {name} = 8\ndef main(x: f32[{name}]):\n    return x * {name}\n",
        f"def main(x: f32[8]):\n    return g(g(x))\ndef g({name}):\n    y = {name} + 1.0\n    return y / y + {name}\n",
        f"from std.nn import layer_norm as {name}\ndef main(x: f32[4, 8], g: f32[8]):\n    return {name}(x, g)\n",
    ]
    for text in places:
        attempt(text)


PAYLOAD = "__import__('os').system('touch hacked')"
FILES = (
    'a"""b.gshard',
    "a\n" + PAYLOAD + "\n.gshard",
    "a\\",
    "\u202egshard",
    "'''",
    "#.gshard",
    "a\0b",
    "../../x.gshard",
)


@pytest.mark.parametrize("name", FILES)
def test_the_name_of_a_file_is_no_code(name: str) -> None:
    text = f"# {PAYLOAD}\nmesh(data=2)\ndef main(x: f32[8]):  # {PAYLOAD}\n    return replicate(split(x, 0, data))\n"
    first, second = attempt(text, name=name)
    assert PAYLOAD not in "".join(line for line in first.split("\n") if not line.lstrip().startswith(("#", '"""')))
    assert second


@pytest.mark.parametrize("string", STRINGS)
def test_strings_end_up_nowhere_but_in_subscripts(string: str) -> None:
    for text in (
        f"def main(x: f32[4, 4]):\n    return einsum({string}, x, x)\n",
        f"def main(x: f32[4, 4]):\n    {string}\n    return barrier(x, {string})\n",
        f"const A = {string}\ndef main(x: f32[4]):\n    require(A != 3, {string})\n    return x\n",
        f"mesh(data=2)\ndef main(x: f32[4]):\n    return split(x, 0, {string})\n",
        f"def main(x: f32[4], s: str = {string}):\n    return x if s == {string} else -x\n",
    ):
        for file in attempt(text):
            assert "payload" not in file


IMPORTS = (
    "from ..std import os", "from .nn import x", "from std.. import nn", "from std.nn.x import y",
    "from std.__init__ import os", "from std.nn import __builtins__", "from os import system", "from std import nn",
    "from std.moe import _private", "from std import *",
)  # fmt: skip


@pytest.mark.parametrize("line", IMPORTS)
def test_imports_reach_the_standard_library_alone(line: str) -> None:
    assert attempt(f"{line}\ndef main(x: f32[4]):\n    return x\n") == ()


def test_marks_of_other_systems_are_no_mistakes() -> None:
    text = small_programs()[0]
    plain = attempt(text)
    assert attempt("\ufeff" + text) == plain
    assert attempt(text.replace("\n", "\r\n")) == plain
    assert attempt(text.rstrip("\n")) == plain
    assert attempt(text + "\n\n\t\n   # end") == plain


# ---- the command and what it writes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for i, text in enumerate(small_programs()):
        Path(f"p{i}.gshard").write_text(text, encoding="utf-8")
    yield tmp_path
    assert not Path("hacked").exists()


def test_random_commands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random(0)
    words = (
        "check", "dump", "compile", "explain", "p0.gshard", "p1.gshard:f", "p2.gshard:g", "p9.gshard", "--mesh",
        "data=2", "a=2,b=3", "a=2,,", "=", "a=" + "9" * 400, "-D", "N=3", "N=", "N=1e9", "-DN=2", "--stage", "emitted",
        "--all", "--format", "json", "--target", "jax-auto", "-o", "-", "out.py", "", "-", "--", "--no-refine", "\0",
        "--launch-bytes", "nan", "0", "-1", "h", "z@4", "\ud800", "--help", "-h", "--version", "\n", "*", "x" * 5000,
    )  # fmt: skip
    codes: Counter[int] = Counter()
    for _ in range(1000 if SWEEP else 250):
        chosen = [draw.choice(words[:4]), draw.choice(words[4:8])] if draw.random() < 0.8 else []
        chosen += [draw.choice(words) if draw.random() < 0.8 else spice(draw) for _ in range(draw.randrange(4))]
        codes[main(chosen)] += 1
        said = capsys.readouterr()
        assert "Traceback" not in said.err + said.out, chosen
    assert set(codes) <= {0, 1, 2}, "3 is a bug of ours"
    assert all(codes[code] for code in (0, 2))


@pytest.mark.parametrize("value", [*HUGE, *STRINGS, "x", "N=N", "1_0", "\u0661", " 3", "+3", "--3"])
def test_values_of_options(folder: Path, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--mesh", f"data={value}"], ["--mesh", value], ["-D", f"N={value}"], ["--launch-bytes", value]):
        assert main(["check", "p1.gshard", *words]) in (0, 1, 2)
    assert "internal error" not in capsys.readouterr().err


class InterruptedHereError(Exception):
    """Stands for what stops a write in the middle."""


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError(), InterruptedHereError()]
)
@pytest.mark.parametrize("when", ["write", "replace"])
def test_an_interrupted_write_leaves_no_half_file(
    folder: Path, error: BaseException, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("old.py").write_bytes(b"old")
    before = sorted(p.name for p in folder.iterdir())

    class Failing:
        def __init__(self, file: object) -> None:
            self.file = file

        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()  # type: ignore[attr-defined]

        def write(self, content: bytes) -> int:
            self.file.write(content[: len(content) // 2])  # type: ignore[attr-defined]
            raise error

    def replaced(*_: object) -> None:
        raise error

    real = Path.open
    if when == "write":
        monkeypatch.setattr(Path, "open", lambda path, *mode: Failing(real(path, *mode)))
    else:
        monkeypatch.setattr(Path, "replace", replaced)
    for path in ("new.py", "old.py"):
        with pytest.raises(UsageError if isinstance(error, OSError) else type(error)):
            write(path, b"0123456789", force=True)
    monkeypatch.undo()
    assert sorted(p.name for p in folder.iterdir()) == before
    assert (folder / "old.py").read_bytes() == b"old"


def test_a_file_that_may_not_grow_is_not_left_behind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        code = main(["compile", "p0.gshard", "-o", "out.py"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert code == 2
    assert "cannot write out.py: File too large" in capsys.readouterr().err
    assert not [p for p in folder.iterdir() if "out" in p.name]


def test_python_objects_that_are_no_programs() -> None:
    for path in ("nowhere.gshard", "a\0b", "x" * 10_000, "."):
        with pytest.raises(GShardError):
            gs.compile(path)
    for mesh in ({"data": 2.5}, {"data": True}, {"data": "2"}, {3: 2}, {"data": -1}, {"data": 10**30}):
        with pytest.raises(GShardError):
            gs.compile(small_programs()[0], mesh=mesh)  # type: ignore[arg-type]
