"""What the documents show is what happens: programs are compiled and run, commands and code are executed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import documents
import pytest
from documents import DOCUMENTS, ROOT, Block, blocks

import gshard_ir as gs
from gshard_ir import data
from gshard_ir.agreement import verify
from gshard_ir.api import check
from gshard_ir.errors import GShardError
from gshard_ir.source import SourceFile

ALL = [b for d in DOCUMENTS for b in blocks(d)]
NAMES = [d.relative_to(ROOT).as_posix() for d in DOCUMENTS]


ALONE = "docs/adding-an-op.md"
TESTED_ELSEWHERE = ("design.md", "errors.md", "cli.md")
"""The table of ops, by tests/ops/test_records.py; the catalogue of mistakes and the command line are generated."""


def ids(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("block", [b for b in ALL if b.language == "gshard"], ids=ids)
def test_programs(block: Block) -> None:
    file = SourceFile(block.name or block.place, block.text + "\n")
    if block.name.startswith("wrong"):
        with pytest.raises(GShardError):
            _ = check(file).compiled
        return
    program = check(file)
    args = data.bind(program.lowered.main, (), data.seeded(program.lowered.main, 0))
    verdict = verify(program, args, jax=False)
    assert verdict.agrees, [d for d in verdict.differences if not d.agrees]


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_commands_and_code(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shell = documents.Shell(tmp_path)
    names: dict[str, Any] = {"__name__": "document"}
    for block in blocks(document):
        if block.language == "gshard" and block.name:
            (tmp_path / block.name).write_text(block.text + "\n", encoding="utf-8")
        elif block.language == "console" and not block.text.startswith("$ make"):  # see test_demo
            documents.run_console(shell, block, update)
        elif block.language in ("python", "pycon") and document != ROOT / ALONE:
            documents.execute(block, names)


def test_the_op_that_is_added() -> None:
    """In a process of its own, as it changes registries."""
    script = [sys.executable, documents.__file__, str(ROOT / ALONE)]
    found = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_blocks_are_of_known_kinds() -> None:
    for block in ALL:
        known = ("gshard", "console", "python", "pycon", "sh", "json", "")
        assert block.language in known, f"{block.place}: {block.language} is not tested"
        assert block.language or block.document.name in TESTED_ELSEWHERE, f"{block.place}: say what the block holds"


def test_shell_lines_are_true() -> None:
    """Installation is not run here; what it names must exist."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in ALL:
        for line in block.text.split("\n") if block.language == "sh" else []:
            words = line.partition("#")[0].split()
            if words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", makefile, re.M), f"{block.place}: {line}"
            elif words[:2] == ["pip", "install"]:
                extras = re.findall(r"\[([\w,]+)\]", line)
                assert all(e in settings["optional-dependencies"] for group in extras for e in group.split(","))
            elif words[:1] == ["python"]:
                assert (ROOT / words[1]).is_file(), f"{block.place}: {line}"
            else:
                assert words[:1] == ["gshard"] and "gshard" in settings["scripts"], f"{block.place}: {line}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_links_and_paths_lead_somewhere(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or (document.parent / target).exists(), f"{document.name}: {target}"
    for path in re.findall(r"`((?:gshard_ir|passes|backends|tests|examples|grammar|docs|benchmarks)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), f"{document.name}: {path}"
    for name in re.findall(r"`std/(\w+)\.gshard`", text):
        assert (ROOT / "gshard_ir" / "std" / f"{name}.gshard").is_file()


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_names_in_files_exist(document: Path) -> None:
    """What is written ``path.py::name`` or ``path.py::Class.name`` is defined there."""
    for path, name in re.findall(r"`([\w./-]+\.py)::([\w.]+)`", document.read_text(encoding="utf-8")):
        assert (ROOT / path).is_file(), f"{document.name}: {path}"
        assert name in defined(path), f"{document.name}: {path} has no {name}"


@cache
def defined(path: str) -> frozenset[str]:
    """Return the functions, classes and constants of a module, and its classes' members with the class before a dot."""
    found: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update(prefix + t.id for t in targets if isinstance(t, ast.Name))

    visit(ast.parse((ROOT / path).read_text(encoding="utf-8")).body, "")
    return frozenset(found)


def test_no_document_names_a_machine() -> None:
    for document in DOCUMENTS:
        assert not re.search(r"/work|/tmp/|/home/|\.\./shared", document.read_text(encoding="utf-8"))


def rows(document: str, heading: str) -> str:
    """Return the text under a heading, up to the next one of its level or above."""
    text = (ROOT / document).read_text(encoding="utf-8")
    level = heading.split(" ")[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text, re.M | re.S)
    assert found, f"{document} has no {heading}"
    return found[1]


def test_the_list_of_operations_is_complete() -> None:
    """Each builtin stands in docs/language.md with exactly its signature, and nothing else does."""
    from gshard_ir.frontend.lower_builtins import PRELUDE, table

    written = set(re.findall(r"`(\w+\([^`]*\))`", rows("docs/language.md", "## Operations").split("###")[0]))
    assert written == {b.signature for b in table().values()}
    prelude = re.search(r"need no import: ([^.]*)\.", rows("docs/language.md", "### Standard library"))
    assert prelude and re.findall(r"`(\w+)`", prelude[1]) == list(PRELUDE)


def test_the_standard_library_is_listed() -> None:
    from gshard_ir.frontend.lower_units import STD, std_program

    text = rows("docs/language.md", "### Standard library")
    for module in STD:
        defs = [d.name for d in std_program(module).items if hasattr(d, "params") and not d.name.startswith("_")]
        line = re.search(rf"^- `std\.{module}`: (.*(?:\n  .*)*)", text, re.M)
        assert line and re.findall(r"`(\w+)`", line[1]) == defs


def test_what_is_not_there_yet_is_refused_by_name() -> None:
    text = rows("docs/language.md", "## Not there yet")
    for call in re.findall(r"^\| `([^`]+)` \|", text, re.M):
        source = f"mesh(a=2)\ndef main(x: f32[4], key: key):\n    {call}\n    return x\n"
        with pytest.raises(GShardError) as caught:
            check(SourceFile("later.gshard", source))
        assert any("not supported yet" in d.message for d in caught.value.diagnostics), call


def test_the_python_names_in_the_readme_exist() -> None:
    for name in re.findall(r"`p\.(\w+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert hasattr(gs.Program, name), name


def test_the_comparison_sees_what_it_should() -> None:
    shown = ["a  1,024 B", "...", "in all 2,048 B"]
    assert documents.matches(shown, ["a  1,024 B", "b", "c", "in all 2,048 B"])
    assert not documents.matches(shown, ["a  1,025 B", "in all 2,048 B"])
    assert not documents.matches(shown, ["a  1,024 B", "in all 2,048 B", "more"])
    assert not documents.matches([], ["more"])
    row = "  y  f32[7]  {:9}  {:>13}  {:>4}      256"
    for against in ("simulator", "jax"):
        found = [row.format(against, "1.19e-07", "0.5")]
        assert documents.matches([row.format(against, "0", "0")], found, "$ gshard verify y.gshard")
        assert not documents.matches([row.format(against, "0", "0")], found, "$ gshard dump y.gshard")
        assert not documents.matches([row.replace("256", "8").format(against, "0", "0")], found, "$ gshard verify y")
    assert not documents.matches(["sent  114,688 B"], ["sent  114,689 B"], "$ make demo")
    assert documents.matches(["16 steps on 8 devices, 23 ms"], ["16 steps on 8 devices, 1,145 ms"], "$ make demo")


def test_fresh_output_keeps_the_cut() -> None:
    found = ["head", "x  [8]  12 B", "y  [9]", "tail"]
    assert documents.renewed(["...", "x  [8]  10 B", "..."], found) == ["...", "x  [8]  12 B", "..."]
    assert documents.renewed(["...", "nothing like it", "tail"], found) == ["...", "tail"]
    assert documents.renewed(["x  [8]  10 B", "..."], found) == found, "a cut that no longer fits is undone"
    assert documents.renewed(["old"], found) == found
