"""Mutated programs end in a module or in diagnostics, never in another exception."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from errors.catalogue import entries

from gshard_ir.errors import GShardError
from gshard_ir.frontend.lower import lower
from gshard_ir.frontend.lower_builtins import table
from gshard_ir.frontend.parser import parse
from gshard_ir.source import SourceFile
from gshard_ir.verify import verify

ROOT = Path(__file__).parents[2]
RIGHT = [p.read_text() for p in sorted((ROOT / "examples").rglob("*.gshard"))]
WRONG = [e.wrong for e in entries() if e.kind == "program" and e.section not in ("layout", "lines", "text")]
KEYWORDS = ["const", "def", "struct", "mesh", "from", "import", "return", "for", "in", "if", "else", "elif"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "@", "==", "<", "&"]
TOKEN = re.compile(r"\s+|#[^\n]*|\w+|\"[^\"]*\"|[-+*/%<>=!]+|.", re.DOTALL)
SPICE = [
    "0", "1", "-1", "2", "7", "1.5", "None", "True", '"all"', '"ab,bc->ac"', "x", "p", "key", "f32", "bool", "i32",
    "data", "expert", "model", "_", "inf", "(1, 2)", "[]", "[0, 1]", "()", "x.shape", "x.dtype", "softmax", "E", "...",
    ":", "?", "@", "unroll(2)", "expert:(2)2", "9 ** 9", "not", "-", "split", "shard", "like", "barrier", "main",
    *table(),
]  # fmt: skip


def kind(token: str) -> str:
    """Tokens of one kind may stand for each other without breaking the syntax, mostly."""
    if token in KEYWORDS or token.isspace() or token.startswith("#"):
        return ""
    return "word" if re.match(r"\w", token) else "operator" if token in OPERATORS else "other"


def mutate(text: str, rng: random.Random) -> str:
    """Replace, delete or swap a few tokens, mostly by tokens of the same kind."""
    tokens = TOKEN.findall(text)
    spots = [i for i, t in enumerate(tokens) if kind(t)]
    words = [i for i in spots if kind(tokens[i]) == "word"]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        i = rng.choice(words if rng.random() < 0.7 else spots)
        j = rng.choice([k for k in spots if kind(tokens[k]) == kind(tokens[i]) or rng.random() < 0.02] or spots)
        action = rng.random()
        if action < 0.5:
            tokens[i] = tokens[j]
        elif action < 0.9:
            tokens[i] = rng.choice(OPERATORS if kind(tokens[i]) == "operator" else SPICE)
        elif action < 0.95:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        else:
            tokens[i] = ""
    return "".join(tokens)


def attempt(text: str, rng: random.Random) -> str:
    """Lower a program; return what came of it."""
    mesh = rng.choice([None, None, {}, {"expert": 4}])
    try:
        module = lower(parse(SourceFile("fuzz.gshard", text)), mesh=mesh)
    except GShardError as error:
        return f"refused: {error}"
    verify(module)
    return "lowered"


@pytest.mark.parametrize("seed", range(8))
def test_mutated_programs(seed: int) -> None:
    rng = random.Random(seed)
    seeds = [rng.choice(RIGHT if rng.random() < 0.8 else WRONG) for _ in range(40)]
    outcomes = [attempt(mutate(text, rng), rng) for text in seeds]
    assert any("error: " in outcome for outcome in outcomes)
