"""Type errors: each program is wrong in one way; the diagnostic names the place, the numbers and an edit."""

from __future__ import annotations

import pytest

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.frontend import lower_defs
from gshard_ir.frontend.lower import lower
from gshard_ir.frontend.lower_emit import Budget
from gshard_ir.frontend.parser import parse
from gshard_ir.source import SourceFile


def diagnostics(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(GShardError) as caught:
        lower(parse(SourceFile("wrong.gshard", text)))
    return caught.value.diagnostics


def only(text: str) -> Diagnostic:
    (found,) = diagnostics(text)
    return found


def caret(diagnostic: Diagnostic) -> str:
    """The text under the caret."""
    span = diagnostic.span
    assert span is not None and span.line == span.end_line
    return span.file.line(span.line)[span.column - 1 : span.end_column - 1]


PARAMS = "x: f32[8, 6], y: f32[6], i: i32[8, 6], b: bool[8, 6], h: bf16[8, 6], k: key"

# Variants of entries of the catalogue: a statement, the text under its caret, fragments of the whole message.
STATEMENTS: list[tuple[str, str, list[str]]] = [
    ("z = x.foo", "foo", ["a tensor has no foo", "shape, ndim, size and dtype"]),
    ("z = y.shape.foo", "foo", ["has no parts with names"]),
    ("z = x.T", "x.T", ["a tensor has no T", "try: transpose(x)"]),
    ("z = i * x", "i", ["element types differ", "no implicit promotion", "this is f32[8,6]", "try: cast(i, f32)"]),
    ("z = x if x > 0 else y", "x > 0", ["must be known at compile time", "bool[8,6]", "where(condition, a, b)"]),
    ("z = b or x > 0", "b or x > 0", ["or applies to compile-time values; b is bool[8,6]", "try: (b) | (x > 0)"]),
    ("z = 1 if 2 else 3", "2", ["must be True or False, found the integer 2", "try: 2 != 0"]),
    ("z = k[0]", "k[0]", ["a random key cannot be indexed", "fold_in(k, 0)"]),
    ("z = x[-9]", "-9", ["index -9 is out of range", "indices are -8 to 7", "try: -8"]),
    ("z = x.shape[2]", "2", ["index 2 is out of range: x.shape has 2 parts", "try: 1"]),
    ("z = len(3)", "3", ["must be a tuple or a tensor"]),
    ("z = sqrt(-1)", "sqrt(-1)", ["has no real value"]),
    ("z = arange(-1e308, 1e308)", "arange(-1e308, 1e308)", ["cannot count from -1e+308 to 1e+308 in steps of 1"]),
    ("z = x * (1e308 * 10 ** 400.0)", "10 ** 400.0", ["too large for a float"]),
    ("z = unroll(3)[0]", "unroll(3)[0]", ["unroll(..) cannot be indexed"]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "under", "fragments"), STATEMENTS, ids=[s for s, _, _ in STATEMENTS])
def test_statement(statement: str, under: str, fragments: list[str]) -> None:
    found = only(f"mesh(a=2)\ndef main({PARAMS}):\n    {statement}\n    return x\n")
    assert caret(found) == under
    for fragment in fragments:
        assert fragment in found.render()


def test_einsum_mismatch_shows_letters_operands_and_what_would_fit() -> None:
    found = only(
        """def moe(x: f32[8,64,256], dispatch: f32[8,64,8,16], gates: f32[8,32,256]):
    return einsum("GSEC,GSM->EGCM", dispatch, gates)
"""
    )
    assert found.render().split("\n") == [
        "wrong.gshard:2:25: error: einsum: size of S differs",
        '    2 |     return einsum("GSEC,GSM->EGCM", dispatch, gates)',
        "                                ^^^         ^^^^^^^^  ^^^^^",
        '   "GSEC" says that dispatch has S = 64: it is f32[8,64,8,16]',
        '   "GSM" says that gates has S = 32: it is f32[8,32,256]',
        "   try: x, which is f32[8,64,256]",
    ]


def test_all_errors_are_found_one_per_statement() -> None:
    found = diagnostics(
        """def main(x: f32[8], i: i32[8]):
    a = x + foo
    b = a * 2 + bar
    c = exp(i) + exp(i)
    d = c + b
    for j in unroll(3):
        e = x[9]
    if a > 0:
        g = 1
    return d + e + g + x @ x[1:]
"""
    )
    assert [(d.span.line, d.message.split(":")[0]) for d in found if d.span] == [
        (2, "unknown name foo"),
        (4, "exp takes a float tensor, found i32[8]"),
        (7, "index 9 is out of range for dim 0 of x, which is f32[8]"),
    ]


def test_errors_of_different_declarations_come_in_source_order() -> None:
    found = diagnostics(
        """const A = 1 // 0
struct P:
    w: f32[4@nowhere]
    v: f32[-A]
    u: f32[-1]
def f(x: f32[A]):
    return foo
def g(x: f32[2]):
    return bar
"""
    )
    assert [(d.span.line, d.message.split(",")[0]) for d in found if d.span] == [
        (1, "1 // 0 divides by zero"),
        (3, "the mesh has no axis nowhere"),
        (5, "a size must be at least 0"),
        (9, "unknown name bar"),
    ]


def test_one_place_is_reported_once_for_many_instances() -> None:
    found = diagnostics("def f(x):\n    return x + y\ndef main(a: f32[2], b: f32[3]):\n    c = f(a)\n    return f(b)\n")
    assert len(found) == 1


def test_at_most_a_hundred_errors() -> None:
    lines = "".join(f"    a{i} = foo{i}\n" for i in range(150))
    assert len(diagnostics(f"def main(x: f32[2]):\n{lines}    return x\n")) == 100


def test_growth_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower_defs, "Budget", lambda: Budget(2_000))
    doubling = "".join(f"def f{i}x(x, n: int):\n    return {pair(i - 1)}\n" for i in range(1, 24))
    found = only(f"def f0x(x, n: int):\n    return x * n\n{doubling}def main(x: f32[2]):\n    return f23x(x, 0)\n")
    assert "the program grows past 2,000 operations and statements" in found.message
    loops = "".join(f"{'    ' * i}for i{i} in unroll(9999):\n" for i in range(1, 4))
    found = only(f"def main(x: f32[2]):\n{loops}                y = 1\n    return x\n")
    assert "the program grows past" in found.message


def pair(i: int) -> str:
    return f"f{i}x(x, 2 * n) + f{i}x(x, 2 * n + 1)"


def test_growth_of_tuples_is_bounded() -> None:
    doubling = "    t = (t, t)\n" * 60
    found = only(f"def main(x: f32[2]):\n    t = x\n{doubling}    return x\n")
    assert "a tuple of more than 100,000 parts" in found.message


def test_nesting_of_calls_is_bounded() -> None:
    chain = "".join(f"def f{i}x(x):\n    return {'-' * 90}f{i - 1}x(x)\n" for i in range(1, 80))
    found = only(f"def f0x(x):\n    return x\n{chain}def main(x: f32[2]):\n    return f79x(x)\n")
    assert "calls are nested more than 64 deep" in found.message
