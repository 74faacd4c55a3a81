"""`gshard explain` on the layer: the chain back to an annotation, what was rejected, and what it would have cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from gshard_ir.cli import main

LAYER = str(Path(__file__).parents[2] / "examples" / "moe_layer" / "moe.gshard")


def test_a_value_is_followed_back_to_an_annotation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LAYER, "sent@20"]) == 0
    text = capsys.readouterr().out
    for fragment in (
        "dim 1 (G) @expert",
        'factor G of einsum "GSEC,GSM->EGCM"',
        "split(x, 0, data, expert)",
        "proposed @expert by split(sent, 0, expert)",
        "rejected: expert already splits dim 1 (G)",
        "372,736 B more",
    ):
        assert fragment in text


def test_every_collective_names_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LAYER, "--collectives"]) == 0
    text = capsys.readouterr().out
    assert text.count("all_to_all expert, dim 1 -> 0") == 2 and "114,688 B" in text
    assert "moe.gshard:16" in text and "decided by the search" in text


def test_an_unknown_name_is_one_diagnostic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", LAYER, "snet"]) == 2
    assert "try: sent" in capsys.readouterr().err
