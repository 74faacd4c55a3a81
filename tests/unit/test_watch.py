"""The edit loop, shell completion and the progress line."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gshard_ir.cli import main, parser
from gshard_ir.cli import watch as watching
from gshard_ir.cli.arguments import Parser
from gshard_ir.cli.completion import SHELLS, quote, quote_fish, script, tree
from gshard_ir.cli.output import Output
from gshard_ir.cli.progress import Progress
from gshard_ir.cli.watch import Watch

GOOD = "mesh(x=2)\ndef f(a: f32[4@x]) -> f32[4]:\n    return replicate(a)\n"
BAD = "mesh(x=2)\ndef f(a: f32[4@x]) -> f32[4]:\n    return b\n"


class Clock:
    """Stands for ``sleep``: each call runs the next step of a story, the end of which is Ctrl-C.

    A step runs only when nothing is to be settled: after as many quiet calls as the loop needs to notice.
    """

    def __init__(self, steps: list[Callable[[], object]], quiet: int = 4) -> None:
        self.steps, self.quiet, self.calls = iter(steps), quiet, 0

    def __call__(self, seconds: float) -> None:
        assert 0 < seconds <= 0.2
        self.calls += 1
        if self.calls % self.quiet == 0:
            step = next(self.steps, None)
            if step is None:
                raise KeyboardInterrupt
            step()


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)
    Path("a.gshard").write_text(GOOD, encoding="utf-8")

    def run(*steps: Callable[[], object]) -> str:
        monkeypatch.setattr(watching.time, "sleep", None)
        monkeypatch.setattr(watching.Watch, "__init__", _with_clock(Clock(list(steps))))
        assert main(["check", "--watch", "a.gshard"]) == 0
        found = capsys.readouterr()
        return found.out + found.err

    return run


def _with_clock(clock: Clock) -> Callable[..., None]:
    def init(self: Watch, path: str, check: Callable[[], None], out: Output) -> None:
        self.path, self.check, self.out, self.sleep = path, check, out, clock

    return init


def write(text: str) -> Callable[[], object]:
    return lambda: Path("a.gshard").write_text(text, encoding="utf-8")


SUMMARY = "a.gshard:f is well-typed on mesh x=2    1 all_gather    8 B sent per device\n"


def test_each_change_is_checked_once(watch: Callable[..., str]) -> None:
    found = watch(lambda: None, write(GOOD + "\n"), lambda: None)
    assert found == SUMMARY * 2


def test_mistakes_are_shown_and_do_not_end_it(watch: Callable[..., str]) -> None:
    found = watch(write(BAD), write(GOOD))
    assert found.count(SUMMARY) == 2
    assert "a.gshard:3:12: error:" in found


def test_it_survives_the_file_going_and_coming(watch: Callable[..., str]) -> None:
    found = watch(lambda: Path("a.gshard").unlink(), lambda: None, write(GOOD))
    assert found == SUMMARY + "a.gshard is gone, waiting for it\n" + SUMMARY


def test_a_bug_is_owned_up_to_and_does_not_end_it(watch: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    from gshard_ir.program import Program

    monkeypatch.setattr(Program, "traffic", lambda self: 1 // 0)
    assert "internal error: ZeroDivisionError" in watch(lambda: None)


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.gshard"
    path.write_text("1", encoding="utf-8")
    sizes: list[int] = []

    def sleep(seconds: float) -> None:
        if len(sizes) < 3:
            path.write_text("1" * (len(sizes) + 2), encoding="utf-8")
        sizes.append(path.stat().st_size)

    found = Watch(str(path), lambda: None, Output(), sleep).settled()
    assert found is not None and found[1] == 4 and len(sizes) == 4


def test_the_screen_is_cleared_on_a_terminal_alone(watch: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert watching.CLEAR not in watch(lambda: None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert watching.CLEAR in watch(lambda: None)


def test_watch_is_for_people_and_needs_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--watch", "none.gshard"]) in (1, 2)
    Path("a.gshard").write_text(GOOD, encoding="utf-8")
    assert main(["check", "--watch", "a.gshard", "--format", "json"]) == 2
    assert main(["check", "--watch", "a.gshard", "--mesh", "x"]) == 2


# ---- completion


def complete(folder: Path, *words: str) -> list[str]:
    """What bash offers for the last of ``words``."""
    bash = shutil.which("bash")
    assert bash, "bash runs the completion script"
    ask = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gshard; printf "%s\\n" "${COMPREPLY[@]}"'
    code = script("bash", tree(parser())) + ask
    run = subprocess.run(
        [bash, "-c", code, "bash", "gshard", *words], capture_output=True, text=True, cwd=folder, check=True
    )
    assert run.stderr == ""
    return run.stdout.split("\n")[:-1]


def test_bash_offers_commands_options_choices_and_files(tmp_path: Path) -> None:
    for name in ("a b.gshard", "$(touch evil).gshard"):
        (tmp_path / name).touch()
    assert complete(tmp_path, "d") == ["dump", "diff"]
    assert complete(tmp_path, "dump", "--format", "") == ["text", "json", "html", "dot"]
    assert complete(tmp_path, "compare", "--ru") == ["--runs"]
    assert complete(tmp_path, "completion", "z") == ["zsh"]
    assert "a b.gshard" in complete(tmp_path, "check", "a")
    assert "$(touch evil).gshard" in complete(tmp_path, "check", "$")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    commands = tree(parser())
    assert {c.name for c in commands} >= {"check", "dump", "compile", "run", "verify", "compare", "diff", "layout"}
    for c in commands:
        listed = re.findall(r"^  (-.*?)(?:  |$)", parser().commands[c.name].format_help(), re.M)
        told = {flag for line in listed for flag in re.findall(r"(?<!\S)--?[a-zA-Z][\w-]*", line)}
        assert {flag for o in c.options for flag in o.flags} == told
        assert f"'{c.name}'" in text or f"{c.name}:" in text
        for o in c.options:
            for flag in o.flags:
                assert flag in text or f"'{flag.lstrip('-')}'" in text, flag


def hostile() -> Parser:
    made = Parser()
    commands = made.add_commands()
    good = commands.add_parser("good", help='it\'s `touch evil` $(touch evil) "x" \\ : [a]\nnew')
    good.add_argument("--flag", help="' ; touch evil ; '", choices=["ok", "$(touch evil)", "a b"])
    good.add_argument("--$(touch evil)", help="x")
    commands.add_parser("$(touch evil)", help="x")
    return made


@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_texts_stay_inside_quotes(shell: str, tmp_path: Path) -> None:
    text = script(shell, tree(hostile()))
    if shell == "fish":
        outside = re.sub(r"'(?:[^'\\]|\\.)*'", "", text, flags=re.S)
    else:
        outside = re.sub(r"'[^']*'(?:\\''[^']*')*", "", text)
    assert "touch" not in outside
    if shell == "bash":
        run = f'{text}\nCOMP_WORDS=(gshard good --flag ""); COMP_CWORD=3; _gshard; echo "${{COMPREPLY[@]}}"'
        found = subprocess.run(["bash", "-c", run], capture_output=True, text=True, cwd=tmp_path, check=True)
        assert found.stdout == "ok\n"
    assert list(tmp_path.iterdir()) == []


def test_quoting() -> None:
    assert quote("it's $x\n") == "'it'\\''s $x '"
    assert quote_fish("it's \\ $x") == "'it\\'s \\\\ $x'"


# ---- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_shows_what_takes_long_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress("verify a\x1b.gshard", stream, after=0.01, every=0.01) as tell:
        tell("timing")
        deadline = time.monotonic() + 5
        while "timing" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    text = stream.getvalue()
    assert "\r\x1b[Kverify a .gshard: timing, 0 s" in text
    assert text.endswith("\r\x1b[K")


def test_nothing_shows_what_is_quick_or_unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    quick, pipe = Terminal(), io.StringIO()
    with Progress("run", quick, after=60):
        pass
    with Progress("run", pipe, after=0.0, every=0.001):
        time.sleep(0.02)
    assert quick.getvalue() == pipe.getvalue() == ""
    monkeypatch.setenv("TERM", "dumb")
    dumb = Terminal()
    with Progress("run", dumb, after=0.0, every=0.001):
        time.sleep(0.02)
    assert dumb.getvalue() == ""


def test_the_line_goes_on_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    def fails() -> None:
        with Progress("run", stream, after=0.0, every=0.005):
            time.sleep(0.05)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails()
    assert stream.getvalue().endswith("\r\x1b[K")
