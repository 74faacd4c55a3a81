"""The catalogue of mistakes: ``tests/errors/mistakes/*.txt``, and what is made of it, ``docs/errors.md``.

An entry is a title (after ``==``), what its message must say, and a program, a command (``$``) or a line of
Python (``>>>``). What is wrong in it and how it is put right stand side by side, as ``«wrong→right»``.
Of the message are given: the text under the caret (after ``^``) and fragments (after ``?``). ``! advice`` says
that the suggestion is not an edit that could be applied as it stands; all others are applied and must help.

``PYTHONPATH=tests python -m errors.catalogue`` writes ``docs/errors.md``.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import gshard_ir as gs
from gshard_ir.api import check
from gshard_ir.cli import main
from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.source import SourceFile

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "errors.md"
SECTIONS = (
    "layout", "lines", "text", "names", "types", "shapes", "einsum", "calls", "control", "static", "notyet", "axes",
    "meshes", "commands", "inputs",
)  # fmt: skip
_EDIT = re.compile("«(.*?)→(.*?)»", re.DOTALL)
_UNSEEN = re.compile(r"\{U\+([0-9A-F]{4})\}")


@dataclass(frozen=True)
class Entry:
    """One mistake: ``wrong`` and ``right`` are programs, or a command or a line of Python with its prompt."""

    section: str
    title: str
    under: str
    fragments: tuple[str, ...]
    advice: bool
    wrong: str
    right: str

    @property
    def kind(self) -> str:
        """``program``, ``command`` or ``python``."""
        return {"$ ": "command", ">>": "python"}.get(self.wrong[:2], "program")


@cache
def entries() -> tuple[Entry, ...]:
    """Every entry, in the order of the document."""
    return tuple(entry for section in SECTIONS for entry in _section(section))


def _text(section: str) -> str:
    return (Path(__file__).parent / "mistakes" / f"{section}.txt").read_text(encoding="utf-8")


def _section(section: str) -> Iterator[Entry]:
    for part in _text(section).split("\n== ")[1:]:
        head, _, body = part.partition("\n\n")
        title, *marks = head.split("\n")
        body = _UNSEEN.sub(lambda m: chr(int(m[1], 16)), body.rstrip("\n")) + "\n"
        said = {sign: [m[2:] for m in marks if m[0] == sign] for sign in "^?!"}
        yield Entry(
            section,
            title,
            "".join(said["^"]),
            tuple(said["?"]),
            bool(said["!"]),
            _EDIT.sub(lambda m: m[1], body),
            _EDIT.sub(lambda m: m[2], body),
        )


# ---- running them

LAYER = """\
mesh(data=2, model=2)

const N = 8

struct Layer:
    w: f32[N, 6@model]
    b: f32[6@model]

def main(x: f32[5@data, N], p: Layer, k: key, n: i32[]) -> f32[5, 6]:
    h = x @ p.w + p.b
    return h + uniform(k, [5, 6]) * cast(n, f32)
"""
PROGRAMS = {
    "layer.gshard": LAYER,
    "broken.gshard": "def main(x: f32[8], y: f32[6]) -> f32[8]:\n    z = x + y\n    return sofmax(x)\n",
    "pieces.gshard": "mesh(model=8)\ndef main(x: f32[8@model:(4)2]) -> f32[8]:\n    return x\n",
    "number.gshard": "mesh(data=2)\ndef main(x: f32[8]) -> f32[8]:\n    return split(x, 0, 2)\n",
    "order.gshard": (
        "mesh(data=2, model=2)\ndef main(x: f32[8, 4]) -> f32[8, 4]:\n"
        "    return shard(x, [2, 2], devices=[0, 2, 1, 3])\n"
    ),
}


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder with the programs and arrays that commands name, and the current one while it exists."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            _files(Path(name))
            yield Path(name)
        finally:
            os.chdir(before)


def _files(at: Path) -> None:
    for name, text in PROGRAMS.items():
        (at / name).write_text(text, encoding="utf-8")
    (at / "programs").mkdir()
    (at / "programs" / "layer.gshard").write_text(LAYER, encoding="utf-8")
    (at / "latin1.gshard").write_bytes("# Schl\u00fcssel\n".encode("latin-1") + LAYER.encode())
    (at / "large.gshard").write_text("#" * 300_000, encoding="utf-8")
    (at / "kept.py").write_text("precious", encoding="utf-8")
    (at / "text.npy").write_text("1.0 2.0 3.0", encoding="utf-8")
    x, w, b = np.ones((5, 8), "f4"), np.ones((8, 6), "f4"), np.ones(6, "f4")
    arrays: dict[str, Any] = {"x": x, "short": x[:4], "wide": x.astype("f8"), "b": b}
    for name, array in arrays.items():
        np.save(at / f"{name}.npy", array)
    np.save(at / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (at / "cut.npy").write_bytes((at / "x.npy").read_bytes()[:-7])
    (at / "renamed.npz").write_bytes((at / "x.npy").read_bytes())
    np.savez(at / "p.npz", w=w, b=b)
    np.savez(at / "more.npz", w=w, b=b, c=b)


def diagnose(text: str) -> tuple[Diagnostic, ...]:
    """Compile a program and emit it; return what is wrong with it."""
    try:
        _ = check(SourceFile("wrong.gshard", text)).source
    except GShardError as error:
        return error.diagnostics
    return ()


def message(text: str) -> str:
    """What is said about an entry's text; nothing when it is right."""
    if text.startswith(("$", ">>>")):
        with workplace():
            return _run(text)
    return str(GShardError(diagnose(text)))


def _run(text: str) -> str:
    if text.startswith("$ gshard"):
        said, shown = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
            code = main(shlex.split(text[2:])[1:])
        assert "internal error" not in said.getvalue()
        return said.getvalue().rstrip("\n") if code else ""
    names = _python()
    try:
        eval(text.removeprefix(">>> "), names)  # the catalogue's own text
    except GShardError as error:
        return str(error)
    return ""


def _python() -> dict[str, Any]:
    with np.load("p.npz") as p:
        names: dict[str, Any] = {"np": np, "gs": gs, "x": np.load("x.npy"), "p": dict(p)}
    return names | {"program": gs.compile("layer.gshard")}


# ---- suggestions


def applied(diagnostic: Diagnostic, text: str) -> Iterator[str]:
    """Yield the programs that a reader may make of a suggestion: in place of what is marked, of the line, ...

    ``a or b`` offers both; ``mesh(..)`` goes to the top.
    """
    span, lines = diagnostic.span, text.split("\n")
    if span is None or not diagnostic.suggestion:
        return
    start = sum(len(line) + 1 for line in lines[: span.line - 1]) + span.column - 1
    end = sum(len(line) + 1 for line in lines[: span.end_line - 1]) + span.end_column - 1
    line = lines[span.line - 1]
    indent = line[: len(line) - len(line.lstrip())]
    for edit in dict.fromkeys([diagnostic.suggestion, *diagnostic.suggestion.split(" or ")]):
        if edit == "remove it":
            yield text[:start] + text[end:]
            continue
        yield text[:start] + edit + text[end:]
        yield "\n".join([*lines[: span.line - 1], indent + edit, *lines[span.line :]])
        if edit.startswith("mesh("):
            yield f"{edit}\n{text}"


# ---- the document

INTRODUCTION = """\
# Errors

<!-- Generated: PYTHONPATH=tests python -m errors.catalogue -->

Every mistake that gshard explains, {count} of them: what is wrong, what is said, and what is right. Each is a test:
the wrong form gives exactly this message, the right form is accepted, and a suggestion that is an edit has been
applied.

A message names the place (`file:line:column`), shows the line with a caret under the expression at fault, says what
was expected and what was found with the numbers, and offers one edit after `try:`. Mistakes in one file are reported
together. The command ends with code 1 when the program is wrong and 2 when the command is (an option, a file, an
input).

"""
FILES = """\
The commands are about this program, `layer.gshard`:

```
{layer}```

`x.npy` is an f32[5,8] and fits it, `short.npy` an f32[4,8], `wide.npy` an f64[5,8] and `b.npy` an f32[6]; `p.npz`
holds `w` and `b`, `more.npz` a `c` too. `programs` is a folder. The other programs:

{others}"""


def document() -> str:
    """Return the text of ``docs/errors.md``."""
    parts = [INTRODUCTION.format(count=len(entries()))]
    titles = {section: _text(section).split("\n", 1)[0][2:] for section in SECTIONS}
    parts.append("".join(f"- [{t}](#{_anchor(t)})\n" for t in titles.values()) + "\n")
    for section in SECTIONS:
        parts.append(f"## {titles[section]}\n\n")
        if section == "commands":
            others = "\n".join(f"```\n# {n}\n{t}```\n" for n, t in PROGRAMS.items() if n != "layer.gshard")
            parts.append(FILES.format(layer=LAYER, others=others) + "\n")
        if section == "inputs":
            parts.append('In Python, `program` is `gs.compile("layer.gshard")`, `x` and `p` hold the arrays.\n\n')
        parts += [_entry(e) for e in entries() if e.section == section]
    return "".join(parts).rstrip("\n") + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def _entry(entry: Entry) -> str:
    said = message(entry.wrong)
    return f"### {entry.title}\n\n```\n{entry.wrong}```\n\n```\n{said}\n```\n\n```\n{entry.right}```\n\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
