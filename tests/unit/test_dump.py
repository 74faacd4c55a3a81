"""What the dumps say: layouts, shards, bytes, reasons and causes, on the paper's layer and on small programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gshard_ir as gs
from gshard_ir.dump.table import Column, Segment, plain, table

MOE = str(Path(__file__).parents[2] / "examples" / "moe_layer" / "moe.gshard")

SMALL = """\
mesh(x=2, y=4)

def norm(a: f32[16, 8]) -> f32[16, 8]:
    total = sum(a, axis=0, keepdims=True)
    return a / total

def main(a: f32[16@x, 8], b: f32[8@y, 12]) -> (f32[16@x, 12], f32[8, 12]):
    a = norm(a)
    c = a @ b
    d = cumsum(b, axis=0)
    e = flip(d, axis=0)
    return c, e
"""


@pytest.fixture(scope="module")
def moe() -> gs.Program:
    return gs.compile(MOE, mesh={"expert": 8})


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def document(program: gs.Program, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(program.dump(stage, format="json"))
    return found


def named(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [r for r in rows if r["name"] == name]


def test_the_layer_has_the_papers_layouts_and_bytes(moe: gs.Program) -> None:
    text = moe.dump()
    head = "moe.gshard:moe    mesh data=1,expert=8    2 all_to_all, 1 all_reduce    229,383 B sent per device"
    assert text.splitlines()[0] == head
    rows = document(moe, "partitioned")["values"]
    first, second = named(rows, "sent")
    assert (first["global"], first["local"]) == ("f32[8,8@expert,16,256]", "[8,1,16,256]")
    assert (second["global"], second["local"]) == ("f32[8@expert,8,16,256]", "[1,8,16,256]")
    assert second["line"] == first["line"] + 1
    assert second["collective"]["reason"] == "split(sent, 0, expert)"
    *_, back = named(rows, "out")
    assert back["collective"]["bytes"] == 114_688
    line = next(r["line"] for r in rows if r["name"] == "x" and r["role"] == "value")
    assert back["collective"]["reason"] == f"combine is split over G, line {line}"


def test_bytes_in_the_dump_are_the_sums_of_its_rows(moe: gs.Program) -> None:
    found = document(moe, "partitioned")
    collectives = [r["collective"] for r in found["values"] if r["collective"]]
    assert collectives == found["traffic"]["collectives"]
    assert sum(c["bytes"] for c in collectives) == found["traffic"]["bytes"] == 229_383
    assert found["traffic"]["by_kind"] == {"all_to_all": 229_376, "all_reduce": 7}
    assert moe.dump().splitlines()[-1].endswith("in all 229,383 B")


def test_values_inside_called_defs_are_folded_but_their_exchanges_are_not(moe: gs.Program) -> None:
    short, full = moe.dump(), moe.dump(all=True)
    inner = [r for r in document(moe, "partitioned")["values"] if r["inner"] and not r["collective"]]
    assert f"{len(inner)} values inside called defs are not shown" in short
    assert "not shown" not in full
    # The note of what is hidden goes, the hidden rows come.
    assert len(full.splitlines()) == len(short.splitlines()) + len(inner) - 1
    (reduced,) = [line for line in short.splitlines() if "all_reduce sum over expert" in line]
    assert "std/moe.gshard:" in reduced


def test_results_of_calls_carry_the_callers_name_and_the_inner_place(moe: gs.Program) -> None:
    rows = document(moe, "partitioned")["values"]
    (dispatch,) = named(rows, "dispatch")
    assert not dispatch["inner"]
    assert dispatch["where"].startswith("std/moe.gshard:")
    assert dispatch["global"] == "f32[8@expert,64,8,16]"


def test_reasons_say_what_a_collective_is_for() -> None:
    traffic = gs.compile(SMALL).traffic()
    told = {(c.kind, c.value): c.reason for c in traffic.collectives}
    assert told == {
        ("all_reduce", "(reduce_sum)"): "sum over dim 0 of a, <string>:4",
        ("all_to_all", "b"): "cumsum runs split over dim 1 of b, line 10",
        ("all_reduce", "c"): "sum over K, line 9, for result c",
        ("all_gather", "e"): "returned whole",
    }
    assert [c.line for c in traffic.collectives] == [8, 7, 9, 11], "lines of the entry def, not of the called one"


def test_a_reason_quotes_the_source_of_a_value_without_a_name() -> None:
    source = "mesh(x=2)\ndef f(a: f32[8@x]) -> f32[]:\n    return sum(a * a + 1.0)\n"
    (moved,) = gs.compile(source).traffic().collectives
    assert moved.reason == "sum over dim 0 of `a * a + 1.0`, line 3"


def test_a_reason_names_the_tensor_that_is_split_and_its_annotation() -> None:
    source = (
        "mesh(x=2)\ndef f(a: f32[8@_, 4], b: f32[8@x, 4]) -> f32[8, 4]:\n    c = a + b\n    return replicate(c * b)\n"
    )
    (moved,) = gs.compile(source).traffic().collectives
    assert moved.reason == "replicate(c * b)"
    source = "mesh(x=4)\ndef f(a: f32[8@x, 4], b: f32[4, 8@x]) -> f32[8@x, 8@_]:\n    return a @ b\n"
    (moved,) = gs.compile(source).traffic().collectives
    assert (moved.kind, moved.value, moved.reason) == ("all_gather", "b", "a is split over M, line 2")


def test_propagated_shows_causes_and_clashes(moe: gs.Program) -> None:
    found = document(moe, "propagated")
    first, second = named(found["values"], "sent")
    assert first["why"][0]["causes"][-1].startswith("split(x, 0, data, expert), line ")
    assert second["why"] == [{"dim": 0, "axis": "expert", "causes": [f"split(sent, 0, expert), line {second['line']}"]}]
    clash = next(c for c in found["clashes"] if c["value"] == "sent" and c["line"] == first["line"])
    assert clash["reason"] == "expert already splits dim 1"
    assert clash["by"] == "split(sent, 0, expert)"
    text = moe.dump("propagated")
    assert f"{len(found['clashes'])} clashes" in text
    assert "expert proposed through split(sent, 0, expert)" in text


def test_source_shows_types_where_names_are_defined(moe: gs.Program) -> None:
    (line,) = [line for line in moe.dump("source").splitlines() if "sent = split" in line]
    assert line.endswith("sent: f32[8,8,16,256]")
    assert {"line": 1, "name": "x"} not in [
        {k: t[k] for k in ("line", "name")} for t in document(moe, "source")["types"]
    ]


def test_ir_is_text_that_reads_back(moe: gs.Program) -> None:
    from gshard_ir.text import parse_module, print_module

    text = moe.dump("ir")
    assert print_module(parse_module(text), locations=False) == text
    local = document(moe, "partitioned")["local"]
    assert print_module(parse_module(local)) == local


def test_emitted_is_the_source(moe: gs.Program) -> None:
    assert moe.dump("emitted") == moe.source
    assert moe.dump("emitted", target="jax-auto") == moe.emit("jax-auto")


def test_a_program_without_communication_says_so() -> None:
    quiet = gs.compile("mesh(x=4)\ndef f(a: f32[8@x]) -> f32[8]:\n    return exp(a)\n")
    text = quiet.dump()
    assert text.splitlines()[0].endswith("mesh x=4    no communication")
    assert "sent" not in text
    assert quiet.traffic().bytes == 0


def test_a_copy_that_is_not_yet_what_was_asked_for_is_followed_by_the_value() -> None:
    # The gather is paid for, the slice that completes the layout is free: both must show.
    source = "mesh(x=2, y=2)\ndef f(a: f32[8@x, 8]) -> f32[8, 8]:\n    b = shard(a, [y, x])\n    return b\n"
    rows = document(gs.compile(source), "partitioned")["values"]
    assert named(rows, "b")[-1]["global"] == "f32[8@y,8@x]"


def test_sub_axes_are_written_as_the_user_writes_them() -> None:
    source = "mesh(m=8)\ndef f(a: f32[16@m:(2)2, 8]) -> f32[16, 8]:\n    return split(a, 1, m)\n"
    text = gs.compile(source).dump()
    assert "f32[16@m:(2)2,8@m:(1)2]" in text
    assert "all_to_all m:(2)4, dim 0 -> 1" in text
    assert "f32[16,8@m]" in text


def test_a_mesh_of_thousands_is_no_more_to_print(moe: gs.Program) -> None:
    wide = gs.compile(MOE, mesh={"expert": 2048}, defines={"E": 2048, "G": 2048, "S": 1024})
    assert abs(len(wide.dump()) - len(moe.dump())) < 2_000
    assert wide.traffic().counts == {"all_to_all": 2, "all_reduce": 1}


def test_tables_align_and_leave_out_empty_columns() -> None:
    columns = (Column("a"), Column("empty"), Column("n", right=True))
    text = plain(table(columns, [("x", "", "1"), ("long", "", "200")]))
    assert text == "  a       n\n  x       1\n  long  200\n"
    assert plain([(Segment("a  "), Segment("  ", "bad"))]) == "a\n", "no blanks at the end"
