"""Explanations in words: chains, what was rejected and its cost, the search's decisions, collectives and edits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import gshard_ir as gs
from gshard_ir.api import check
from gshard_ir.cli import main
from gshard_ir.explain import Explanation
from gshard_ir.reasons import chain
from gshard_ir.source import SourceFile

EXAMPLES = Path(__file__).parents[2] / "examples"
LAYER = EXAMPLES / "moe_layer" / "moe.gshard"


def compiled(text: str) -> gs.Program:
    return check(SourceFile("t.gshard", text))


def squeezed(found: Explanation) -> str:
    """The text with runs of blanks as one."""
    return re.sub(r" +", " ", str(found))


@pytest.fixture(scope="module")
def layer() -> gs.Program:
    return gs.compile(LAYER)


def test_the_exchange_of_the_layer(layer: gs.Program) -> None:
    assert str(layer.explain("sent@20")).split("\n")[2:13] == [
        "sent (line 20)  f32[8, 8@expert, 16, 256]    [8, 1, 16, 256] on each device",
        "  dim 1 (G) @expert",
        '    <- factor G of einsum "GSEC,GSM->EGCM"                    moe.gshard:20',
        "    <- x, dim 0: split(x, 0, data, expert)                    moe.gshard:16    your annotation",
        "  dim 0 (E) not split",
        "    proposed @expert by split(sent, 0, expert)                moe.gshard:21    backward, from sent, dim 0",
        "    rejected: expert already splits dim 1 (G)",
        "      <- x, dim 0: split(x, 0, data, expert)                  moe.gshard:16    your annotation",
        "    over E@expert would send 372,736 B more in 1 collective more: it costs more",
        "  dims 2 (C), 3 (M) not split: nothing asked",
        "  all_to_all expert, dim 1 -> 0  sent (line 21)  114,688 B",
    ]


def test_what_was_rejected_costs_at_least_what_a_program_that_asks_for_it_sends(layer: gs.Program) -> None:
    """The count changes one op and leaves the others; a program that asks for it may arrange them anew."""
    (sent,) = layer.explain("sent@20").values
    (proposal,) = sent.dims[0].proposals
    assert proposal.cost is not None
    assert (proposal.cost.split, proposal.cost.collectives, proposal.cost.why_not) == ("over E@expert", 1, "price")
    text = LAYER.read_text(encoding="utf-8")
    line = 'sent = einsum("GSEC,GSM->EGCM", dispatch, x)'
    assert line in text
    asked = text.replace(line, 'sent = einsum("GSEC,GSM->EGCM", split(dispatch, 2, expert), replicate(x))')
    more = compiled(asked).traffic().bytes - layer.traffic().bytes
    assert 0 < more <= proposal.cost.bytes


def test_the_search_says_what_it_decided(layer: gs.Program) -> None:
    """Line 24 runs over groups; propagation alone would have run it over experts."""
    found = layer.explain(collectives=True)
    back = next(c for c in found.collectives if c.value == "out")
    (decision,) = back.decisions
    assert (decision.op, decision.chosen, decision.first) == (
        'einsum "GSEC,GECM->GSM"',
        "over G@expert",
        "over E@expert",
    )
    first = next(w for w in decision.ways if w.propagated)
    alone = gs.compile(LAYER, search=False)
    assert first.bytes == alone.traffic().bytes - layer.traffic().bytes == 372_736
    assert first.why_not == "price"
    assert "propagation alone: over E@expert would send 372,736 B more in 1 collective more" in str(found)


def test_each_collective_names_both_ops_and_the_lines_behind_them(layer: gs.Program) -> None:
    text = squeezed(layer.explain(collectives=True))
    for fragment in (
        'from f32[8, 8@expert, 16, 256] einsum "GSEC,GSM->EGCM" moe.gshard:20',
        "to f32[8@expert, 8, 16, 256] split(sent, 0, expert) moe.gshard:21",
        "because sent, dim 1 @expert: split(x, 0, data, expert) moe.gshard:16",
        "because asked for: split(sent, 0, expert) moe.gshard:21",
        "because out, dim 1 @expert: p.wo: f32[8@expert,1024,256] moe.gshard:15",
        "because combine, dim 0 @expert: split(x, 0, data, expert) moe.gshard:16",
    ):
        assert fragment in text, text
    sent = [c.sent for c in layer.traffic().collectives]
    assert [c.bytes for c in layer.explain(collectives=True).collectives] == sent


def test_an_annotation_that_wants_a_dim_whole(layer: gs.Program) -> None:
    text = squeezed(layer.explain("wg"))
    assert "dims 0 (M), 1 (E) not split\n <- replicate(p.wg) moe.gshard:17 your annotation" in text


def test_the_sum_of_the_mlp_and_the_edit_that_halves_it() -> None:
    path = EXAMPLES / "mlp.gshard"
    text = squeezed(gs.compile(path).explain(collectives=True))
    for fragment in (
        "all_reduce model, sum (einsum) (line 14) 6,144 B",
        'because sum over K @model: einsum "MK,KN->MN" mlp.gshard:14',
        "because h, dim 1 @model: p.w1: f32[64,256@model] mlp.gshard:12",
        "try result r0: f32[32@(data,model),64] in place of result r0: f32[32@data,64] mlp.gshard:14",
        "3,072 B in 1 collective in all, instead of 6,144 B in 1",
    ):
        assert fragment in text, text
    edited = path.read_text(encoding="utf-8").replace("-> f32[B@data, M]", "-> f32[B@(data,model), M]")
    assert compiled(edited).traffic().bytes == 3072


def test_the_edits_of_two_axes_hold_in_the_source() -> None:
    """What is suggested for an annotation is program text: put in its place, it sends what was promised."""
    for name in ("two_axes", "relayout"):
        text = (EXAMPLES / f"{name}.gshard").read_text(encoding="utf-8")
        trials = [c.suggestion for c in compiled(text).explain(collectives=True).collectives]
        calls = [t for t in trials if t is not None and t.old.startswith("shard(")]
        assert calls, name
        for trial in calls:
            assert trial.old in text
            traffic = compiled(text.replace(trial.old, trial.new)).traffic()
            assert (traffic.bytes, len(traffic.collectives)) == (trial.bytes, trial.collectives)
            assert trial.bytes < trial.bytes_before


def test_two_axes_of_one_dim_have_a_chain_each() -> None:
    program = gs.compile(EXAMPLES / "two_axes.gshard")
    (h,) = program.explain("h@5").values
    assert [(c.axes, c.links[-1].op) for c in h.dims[1].chains] == [
        ("y:(1)2", "w: f32[24,32@y:(1)2]"),
        ("y:(2)2", "shard(h, [x, y])"),
    ]
    text = squeezed(program.explain("w"))
    assert "rejected: dim 1 is pinned to y:(1)2\n <- w: f32[24,32@y:(1)2], dim 1" in text
    assert "proposed @(x,y) forward through" in squeezed(program.explain("c"))
    assert "rejected: dim 0 is already split over y\n" in squeezed(program.explain("c"))


def test_nothing_asked_cost_decided() -> None:
    program = gs.compile(EXAMPLES / "scan.gshard")
    (picked,) = program.explain("picked@10").values[:1]
    assert [c.end for c in picked.dims[0].chains] == ["annotation", "cost"]
    assert "<- nothing asked, cost decided" in str(program.explain("picked@10"))
    (before,) = program.explain("before").values
    assert before.dims[0].status == "whole" and "of pad, which must be whole" in str(program.explain("before"))


def test_a_sum_that_is_still_owed() -> None:
    text = squeezed(gs.compile(EXAMPLES / "uneven.gshard").explain("product"))
    assert "a sum over y is still owed\n <- factor K of einsum" in text
    assert "<- a: f32[7@x,10@y], dim 1 uneven.gshard:4 your annotation" in text


def test_a_way_that_does_more_work_says_so() -> None:
    program = gs.compile(EXAMPLES / "scan.gshard")
    ways = [w for c in program.explain(collectives=True).collectives for d in c.decisions for w in d.ways]
    assert any(w.why_not == "work" and w.bytes < 0 and "more local steps" in w.detail for w in ways)


def test_without_annotations_nothing_is_asked() -> None:
    program = compiled("mesh(a=2)\ndef main(x: f32[4, 4]) -> f32[4, 4]:\n    y = x + 1.0\n    return y\n")
    assert "dims 0, 1 not split: nothing asked" in str(program.explain("y"))
    assert "no communication" in str(program.explain(collectives=True))


def test_names() -> None:
    program = gs.compile(LAYER)
    last = program.explain("sent")
    assert [v.place.line for v in last.values] == [21] and last.others == ("sent@20",)
    assert "also bound: sent@20" in str(last)
    (inner,) = program.explain("top2_gating.g1").values
    assert inner.place.at == "std/moe.gshard:65"
    (first,) = program.explain("top2_gating.g1@61").values
    assert first.place.at == "std/moe.gshard:61"
    (result,) = program.explain("r0").values
    assert (result.name, result.place.line) == ("r0", 24)
    (nameless,) = program.explain("einsum@24").values
    assert nameless.value_id == result.value_id


@pytest.mark.parametrize(
    ("name", "message", "near"),
    [
        ("snet", "has no value snet", "sent"),
        ("top2_gating.g7", "has no value top2_gating.g7", "top2_gating.g"),
        ("sent@3", "does not bind sent on line 3", "sent@21"),
        ("", "has no value", ""),
        ('h\n"@x', 'has no value h "@x', ""),
        ("h" * 100_000, f"has no value {'h' * 80}..", ""),
        ("sent@99999999999", "has no value sent@99999999999", "sent"),
    ],
)
def test_unknown_names_offer_the_nearest(layer: gs.Program, name: str, message: str, near: str) -> None:
    with pytest.raises(gs.GShardError) as caught:
        layer.explain(name)
    (diagnostic,) = caught.value.diagnostics
    assert message in diagnostic.message
    assert (diagnostic.suggestion or "").startswith(near)


def test_a_name_that_nothing_depends_on() -> None:
    program = compiled("mesh(a=2)\ndef main(x: f32[4@a]) -> f32[4]:\n    dead = x * 3.0\n    return x + 1.0\n")
    with pytest.raises(gs.GShardError, match="does not compute dead"):
        program.explain("dead")


def test_layouts_tied_in_a_circle_still_end_at_an_annotation() -> None:
    """y has its axis from the value that like ties to y: the cause of that one is not y again."""
    text = (
        "mesh(a=2)\n"
        "def main(x: f32[4], y: f32[4]) -> f32[4]:\n"
        "    tied = like(x, y)\n"
        "    z = split(tied, 0, a)\n"
        "    return z + y\n"
    )
    propagation = compiled(text).propagation
    split = [(v, d, a) for v, layout in propagation.layouts.items() for d, axes in enumerate(layout.dims) for a in axes]
    assert len(split) >= 4
    for value, dim, axis in split:
        *_, last = chain(propagation, value, dim, axis)
        assert last.cause.source is None, f"the chain of {value.hint} ends in the middle"


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    layer = str(LAYER)
    assert main(["explain", layer, "sent@20"]) == 0
    assert capsys.readouterr().out == str(gs.compile(LAYER).explain("sent@20"))
    assert main(["explain", layer, "sent", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "gshard-explain-1" and document["values"][0]["name"] == "sent"
    assert main(["explain", layer, "--all", "--mesh", "expert=2"]) == 0
    assert "top2" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fragments"),
    [
        (["snet"], ["has no value snet", "try: sent"]),
        ([], ["which value of moe.gshard:moe", "it has x, p.wg", "try: gshard explain"]),
        (["sent", "--all"], ["sent and --all exclude each other"]),
        (["--all", "--collectives"], ["--all and --collectives exclude each other"]),
        (["sent", "--mesh", "tensor=2"], ["declares no mesh axis tensor"]),
    ],
)
def test_mistakes_are_one_diagnostic(
    words: list[str], fragments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(LAYER), *words]) == 2
    text = capsys.readouterr().err
    for fragment in fragments:
        assert fragment in text, text
    assert text.count("error:") == 1


def test_the_document_is_the_same_every_time() -> None:
    one, other = (gs.compile(LAYER).explain(collectives=True).json() for _ in range(2))
    assert one == other
