"""The shipped LALR tables: they belong to the grammar, equal a rebuild, and the grammar hides no conflict."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lark
import pytest

from gshard_ir.frontend import tables
from gshard_ir.frontend.parser import parse
from gshard_ir.source import SourceFile


def canonical(saved: bytes) -> Any:
    """Number the states of saved tables by a breadth-first walk: lark's own numbers change from run to run."""
    stored = pickle.loads(saved)
    table, memo = stored["data"]["parser"]["parser"], stored["memo"]
    names = {i: str(name) for i, name in table["tokens"].items()}
    rules = {i: repr(rule) for i, rule in memo.items()}

    def actions(state: int) -> Iterator[tuple[str, int, Any]]:
        found = table["states"][state]
        yield from sorted(((names[t], kind, arg) for t, (kind, arg) in found.items()), key=lambda row: row[0])

    order = list(table["start_states"].values())
    for state in order:
        order += [arg for _, kind, arg in actions(state) if kind == 0 and arg not in order]
    number = {state: i for i, state in enumerate(order)}
    assert set(number) == set(table["states"])
    return [[(t, number[arg] if kind == 0 else rules[arg["@"]]) for t, kind, arg in actions(s)] for s in order]


def split(path: Path) -> tuple[bytes, bytes]:
    header, _, saved = path.read_bytes().partition(b"\n")
    return header, saved


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Save the tables next to a copy of the grammar."""
    folder = tmp_path_factory.mktemp("grammar")
    (folder / "gshard.lark").write_bytes(tables._read("gshard.lark"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.resources.files", lambda _: folder)
        yield tables.save()


def test_the_shipped_tables_belong_to_the_grammar() -> None:
    assert tables.is_fresh(), "run python -m gshard_ir.frontend.tables"


def test_the_shipped_tables_equal_a_rebuild(rebuilt: Path) -> None:
    shipped = tables._read("gshard.tables")
    header, saved = split(rebuilt)
    assert shipped.startswith(header)
    assert canonical(shipped.split(b"\n", 1)[1]) == canonical(saved)


def test_another_grammar_has_other_tables(rebuilt: Path) -> None:
    changed = tables._read("gshard.lark").decode().replace('"while" expr', '"while" exprs')
    other = lark.Lark(changed, parser="lalr", lexer="basic", start="file", keep_all_tokens=True)
    path = rebuilt.with_name("other")
    with path.open("wb") as file:
        other.save(file)
    assert canonical(path.read_bytes()) != canonical(split(rebuilt)[1])


def test_strict_mode_finds_no_conflict() -> None:
    assert tables.build(strict=True).options.strict


def test_strict_mode_would_find_one() -> None:
    ambiguous = tables._read("gshard.lark").decode().replace("?sum: term\n", "?sum: term\n    | sum sum\n")
    with pytest.raises(lark.exceptions.GrammarError, match="conflict"):
        lark.Lark(ambiguous, parser="lalr", lexer="basic", start="file", strict=True)


def test_the_parser_comes_from_the_saved_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*, strict: bool = False) -> lark.Lark:
        raise AssertionError("the grammar was compiled")

    monkeypatch.setattr(tables, "build", refuse)
    tables.load.cache_clear()
    assert len(parse(SourceFile("t", "const A = 1\n")).items) == 1


@pytest.mark.parametrize("stored", [None, b"", b"lark 0.1 sha256 0\nrest"])
def test_tables_of_another_grammar_are_not_used(monkeypatch: pytest.MonkeyPatch, stored: bytes | None) -> None:
    read = tables._read

    def stale(name: str) -> bytes:
        if name == "gshard.tables":
            if stored is None:
                raise FileNotFoundError(name)
            return stored
        return read(name)

    monkeypatch.setattr(tables, "_read", stale)
    tables.load.cache_clear()
    assert not tables.is_fresh()
    try:
        assert len(parse(SourceFile("t", "const A = 1\n")).items) == 1
    finally:
        tables.load.cache_clear()
