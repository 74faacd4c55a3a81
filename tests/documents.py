"""Reads the documents' fenced blocks, runs console blocks, and writes fresh output into them.

| block | what becomes of it |
|---|---|
| ``gshard`` | compiled; the simulator must equal the reference. With a name after it, also saved under that name |
| ``gshard wrong…`` | saved under that name; must be refused |
| ``console`` | ``$`` lines are run; the lines below must be their output, ``...`` stands for any lines |
| ``python``, ``pycon`` | executed in order; one namespace per document |
| ``sh`` | not run here: each line must be of a kind that :mod:`test_docs` knows to be true |
"""

from __future__ import annotations

import contextlib
import difflib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gshard_ir.cli import main

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
REST = "..."
MEASURED = r" *(tokens per expert|routes dropped|without an expert|largest error|a sample|\d+ steps|[\d,]+ names)"
"""Lines of the demo that hold results or times."""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words after it, its text, and the line of its first text line (from 1)."""

    document: Path
    language: str
    name: str
    text: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a document in order; a fence must stand in column 0."""
    opened: tuple[str, str, int] | None = None
    held: list[str] = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("```"):
            held.append(line)
        elif opened is None:
            language, _, name = line[3:].strip().partition(" ")
            opened, held = (language, name, number + 1), []
        else:
            yield Block(document, *opened[:2], "\n".join(held), opened[2])
            opened = None
    if opened is not None:
        raise AssertionError(f"{document}:{opened[2]}: a block without an end")


@dataclass(frozen=True)
class Command:
    """One ``$`` line of a console block and the output that is written below it."""

    text: str
    output: tuple[str, ...]


def commands(block: Block) -> Iterator[Command]:
    """Split a console block at its ``$`` lines; a backslash at the end of one continues it."""
    lines = block.text.split("\n")
    at = 0
    while at < len(lines):
        assert lines[at].startswith("$ "), f"{block.place}: a console block starts with a command"
        start = at
        while lines[at].endswith("\\"):
            at += 1
        at += 1
        typed = "\n".join(lines[start:at])
        below = at
        while at < len(lines) and not lines[at].startswith("$ "):
            at += 1
        yield Command(typed, tuple(lines[below:at]))


class Shell:
    """Runs what a reader would type, in a folder of its own that has ``examples`` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = 0
        (folder / "examples").symlink_to(ROOT / "examples")

    def run(self, command: str) -> str:
        """Return what a command prints, both streams in order."""
        words = shlex.split(command.removeprefix("$ ").replace("\\\n", " "))
        if words[0] == "gshard":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                self.code = main(words[1:])
            return printed.getvalue()
        if words == ["echo", "$?"]:
            return f"{self.code}\n"
        if words[0] == "ls":
            return "".join(f"{p.name}\n" for p in sorted((self.folder / words[1]).iterdir()))
        if words[0] == "make":
            return self._script(recipe(words[1]))
        assert words[0] == "python", f"a console block runs gshard, make, python and ls: {command}"
        return self._script(words[1:])

    def _script(self, words: Sequence[str]) -> str:
        found = subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=os.environ, capture_output=True, text=True, check=False
        )
        assert found.returncode == 0, found.stderr
        return found.stdout


def recipe(target: str) -> list[str]:
    """Return the arguments that a make target gives to python."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n\t\$\(BIN\)/python (.*)$", text, re.M)
    assert found, f"the Makefile's {target} runs no python program"
    return found[1].split()


def loosely(command: str, line: str) -> str:
    """Take out of a line what depends on the machine: times, rounding errors, and what a program computes.

    Bytes, shapes, lines and everything else of an output are compared as they stand.
    """
    if command.startswith("$ make"):
        line = re.sub(r"^ +\w+ +(territory|language|currency) .*", "NAME", line)
        if re.match(MEASURED, line):
            line = re.sub(r"\d[\d,.]*(e[-+]\d+)?", "N", line)
    elif command.startswith("$ gshard verify"):
        line = re.sub(r"(?<= simulator | jax {7})( +[\d.e-]+){2}", " N N", line)
    elif command.startswith("$ gshard run"):
        line = re.sub(r" -?\d+\.\d+\b", " N", line)
    return re.sub(r"\s+", " ", line).strip()


def matches(expected: Sequence[str], found: Sequence[str], command: str = "") -> bool:
    """Compare line by line; an expected ``...`` takes any number of lines."""
    if not expected:
        return not found
    if expected[0] == REST:
        return any(matches(expected[1:], found[i:], command) for i in range(len(found) + 1))
    same = bool(found) and (expected[0] == found[0] or loosely(command, expected[0]) == loosely(command, found[0]))
    return same and matches(expected[1:], found[1:], command)


def renewed(expected: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return fresh output cut down to what was shown before: each shown line by the one most like it.

    All of it where that does not fit any more.
    """
    if REST not in expected:
        return list(found)
    lines: list[str] = []
    at = 0
    for line in expected:
        if line == REST:
            lines.append(REST)
            continue
        near = difflib.get_close_matches(line, found[at:], 1, 0.5)
        if near:
            at += found[at:].index(near[0]) + 1
            lines.append(near[0])
    return lines if matches(lines, found) else list(found)


def rewrite(block: Block, outputs: Sequence[tuple[Command, Sequence[str]]]) -> None:
    """Put fresh outputs into a console block of the document."""
    fresh = "\n".join("\n".join([command.text, *lines]) for command, lines in outputs)
    text = block.document.read_text(encoding="utf-8")
    old = f"```console\n{block.text}\n```"
    assert text.count(old) == 1, f"{block.place}: the same block stands twice"
    block.document.write_text(text.replace(old, f"```console\n{fresh}\n```"), encoding="utf-8")


def run_console(shell: Shell, block: Block, update: bool = False) -> list[str]:
    """Run a console block and compare, or write what was printed into the document; return the outputs."""
    outputs: list[tuple[Command, Sequence[str]]] = []
    printed = []
    for command in commands(block):
        printed.append(shell.run(command.text))
        lines = [line.rstrip() for line in printed[-1].splitlines()]
        same = matches([line.rstrip() for line in command.output], lines, command.text)
        hint = "run pytest with --update and read the change"
        assert same or update, f"{block.place}: {command.text}\nprinted\n{printed[-1]}\n{hint}"
        outputs.append((command, command.output if same else renewed(command.output, lines)))
    if update:
        rewrite(block, outputs)
    return printed


def execute(block: Block, names: dict[str, Any]) -> None:
    """Run a block of Python, or of its prompt with results, which must be as written."""
    if block.language == "python":
        text = "\n" * (block.line - 1) + block.text
        exec(compile(text, str(block.document), "exec", dont_inherit=True), names)  # no annotations as strings
        return
    parser = doctest.DocTestParser()
    test = parser.get_doctest(f"{block.text}\n", names, block.place, str(block.document), block.line - 1)
    reports: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=reports.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(reports)


def execute_all(document: Path) -> None:
    """Run all Python of a document in this process."""
    names: dict[str, Any] = {"__name__": "document"}
    for block in blocks(document):
        if block.language in ("python", "pycon"):
            execute(block, names)


if __name__ == "__main__":
    execute_all(Path(sys.argv[1]).resolve())
