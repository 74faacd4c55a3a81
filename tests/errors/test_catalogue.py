"""The catalogue: each wrong form says what it should, each right form is accepted, and suggestions help."""

from __future__ import annotations

import re

import pytest
from errors import catalogue
from errors.catalogue import Entry, applied, diagnose, entries, message

from gshard_ir.errors import Diagnostic
from gshard_ir.frontend import mistakes_blocks, mistakes_lines

ENTRIES = entries()
PROGRAMS = [e for e in ENTRIES if e.kind == "program"]
OTHERS = [e for e in ENTRIES if e.kind != "program"]


def only(entry: Entry) -> Diagnostic:
    (found,) = diagnose(entry.wrong)
    return found


def caret(diagnostic: Diagnostic) -> str:
    """The text under the caret."""
    span = diagnostic.span
    assert span is not None
    assert span.line == span.end_line
    return span.file.line(span.line)[span.column - 1 : span.end_column - 1]


@pytest.mark.parametrize("entry", PROGRAMS, ids=lambda e: f"{e.section}: {e.title}")
def test_program(entry: Entry) -> None:
    found = only(entry)
    text = found.render()
    assert entry.fragments
    for fragment in entry.fragments:
        assert fragment in text
    assert found.span is not None
    if entry.under:
        assert caret(found) == entry.under
    assert re.match(r"\S+:\d+:\d+: error: .*\n +\d+ \| .*\n +\^", text)
    assert diagnose(entry.right) == ()
    if found.suggestion and not entry.advice:
        assert any(diagnose(program) == () for program in applied(found, entry.wrong))


@pytest.mark.parametrize("entry", OTHERS, ids=lambda e: f"{e.section}: {e.title}")
def test_command(entry: Entry) -> None:
    text = message(entry.wrong)
    assert entry.fragments
    for fragment in entry.fragments:
        assert fragment in text
    assert "error: " in text
    assert message(entry.right) == ""


def test_the_document_is_what_the_catalogue_makes(update: bool) -> None:
    made = catalogue.document()
    if update:
        catalogue.DOCUMENT.write_text(made, encoding="utf-8")
    assert catalogue.DOCUMENT.read_text(encoding="utf-8") == made


def test_there_are_hundreds_and_each_is_said_once() -> None:
    assert len(ENTRIES) >= 300
    assert len({(e.section, e.title) for e in ENTRIES}) == len(ENTRIES)
    assert len({e.wrong for e in ENTRIES}) == len(ENTRIES)
    assert {e.section for e in ENTRIES} == set(catalogue.SECTIONS)
    assert all(e.wrong != e.right for e in ENTRIES)


def test_every_known_syntax_mistake_has_an_entry() -> None:
    said = [only(e).message for e in PROGRAMS if e.section in ("layout", "lines", "text")]
    for mistake in (*mistakes_blocks.MISTAKES, *mistakes_lines.MISTAKES):
        words = re.sub(r"\\\{\w+\\\}", ".*", re.escape(mistake.message))
        assert any(re.fullmatch(words, message) for message in said), mistake.message


def test_messages_are_plain() -> None:
    """No holes left open, no Python of ours, no trailing full stop, one line each."""
    for entry in PROGRAMS:
        found = only(entry)
        for line in (found.message, *found.notes, found.suggestion or ""):
            assert not re.search(r"object at 0x|<class|Traceback", line)
            assert "\n" not in line
            assert not line.endswith(".") or line.endswith("..")
