"""Syntax errors: each known mistake with the programs that make it, and sources no parser should have to see."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.frontend import blocks, mistakes_blocks, mistakes_lines
from gshard_ir.frontend.parser import parse
from gshard_ir.frontend.syntax_errors import Mistake
from gshard_ir.source import SourceFile

MISTAKES = (*mistakes_blocks.MISTAKES, *mistakes_lines.MISTAKES)
EXAMPLES = [(mistake, text) for mistake in MISTAKES for text in mistake.examples]
FIXTURES = Path(__file__).parents[1] / "fixtures" / "syntax"


def errors(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(GShardError) as found:
        parse(SourceFile("t.gshard", text))
    return found.value.diagnostics


def in_def(*lines: str) -> str:
    return "def f(x):\n" + "".join(f"    {line}\n" for line in lines)


def pattern(words: str) -> str:
    """A message or an edit with holes, as a regular expression."""
    return re.sub(r"\\\{\w+\\\}", ".*", re.escape(words.replace("{{", "").replace("}}", ""))) if words else ""


@pytest.mark.parametrize(("mistake", "text"), EXAMPLES, ids=[repr(text) for _, text in EXAMPLES])
def test_example_is_explained_by_its_mistake(mistake: Mistake, text: str) -> None:
    (first, *rest) = errors(text)
    assert re.fullmatch(pattern(mistake.message), first.message)
    assert not rest
    assert first.suggestion
    assert first.span is not None
    assert 1 <= first.span.line <= text.count("\n") + 1
    assert "{" not in first.message


def test_the_table_is_large_and_says_each_thing_once() -> None:
    messages = [mistake.message for mistake in MISTAKES]
    assert len(messages) == len(set(messages)) >= 50
    assert len(EXAMPLES) == len({text for _, text in EXAMPLES}) >= 150


# -- found before the grammar, after it, and without an entry in the table ------------------------

BEFORE = [
    ("const A = $", 11, "'$' has no meaning here"),
    ("const A = 1;", 12, "';' has no meaning here"),
    ("const A = 1 + \\\n  2", 15, "'\\' has no meaning here"),
    ("const A = {1: 2}", 11, "'{' has no meaning here"),
    ('const A = "abc', 11, "the string is not closed on its line"),
    ("const A = 'abc\"\nconst B = 2", 11, "the string is not closed on its line"),
    ('const A = "a\\n"', 11, "a string has no backslash escapes"),
    ("const A = !b", 11, "'!' is not an operator"),
    ("def f(x: f32[8]!data): return x", 16, "forbidden axes stand in braces"),
    ("const A = b \u2212 1", 13, "U+2212 MINUS SIGN is not part of the language"),
    ("const \u0430 = 1", 7, "U+0430 CYRILLIC SMALL LETTER A is not part of the language"),
    ("const A = \u201cx\u201d", 11, "U+201C LEFT DOUBLE QUOTATION MARK is not part of the language"),
    ("const\u00a0A = 1", 6, "U+00A0 NO-BREAK SPACE is not part of the language"),
    ("const A = \uff11", 11, "U+FF11 FULLWIDTH DIGIT ONE is not part of the language"),
    ("const A = 12abc", 11, "'12abc' is neither a number nor a name"),
    ("const A = 0x1F", 11, "'0x1F' is neither a number nor a name"),
    ("const A = 1__0", 11, "'1__0' is neither a number nor a name"),
    ("const A = 1.2.3", 11, "'1.2.3' is neither a number nor a name"),
    ("def f(x: f32[8x64]): return x", 14, "'8x64' is neither a number nor a name"),
    ("const A = 007", 11, "an integer does not start with 0"),
    ("const A = 1e999", 11, "1e999 is larger than any float"),
    ("const A = " + "1" * 4301, 11, "a number of 4,301 characters is too long"),
    ("const A = 0." + "1" * 5000, 11, "a number of 5,002 characters is too long"),
    ("const A = (1", 11, "'(' is never closed"),
    ("const A = 1)", 12, "')' closes nothing"),
    ("}", 1, "'}' closes nothing"),
    ("const A = [1)", 13, "')' does not close '['"),
    ("def f(x: f32[8, 64) -> f32[8]:\n    return x", 19, "')' does not close '['"),
    ("def f(x: f32[64]+{a): return x", 20, "')' does not close '{'"),
    ("  const A = 1", 3, "unexpected indentation"),
]

AFTER = [
    ("@jit\ndef f(x): return x", 1, 2, "unknown decorator @jit"),
    ("@manual(axis=data)\ndef f(x): return x", 1, 9, "@manual takes no named arguments"),
    (in_def("y == x"), 2, 7, "'==' compares, and the result is lost"),
    (in_def("x + 1"), 2, 5, "the value of this line is lost"),
    (in_def("x"), 2, 5, "the value of this line is lost"),
    (in_def("f(x) = y"), 2, 5, "a call cannot be assigned to"),
    (in_def("x[0] = y"), 2, 5, "an element cannot be assigned to"),
    (in_def("p.w = y"), 2, 5, "a struct's field cannot be changed"),
    (in_def("a, 3 = y"), 2, 8, "this cannot be assigned to"),
    (in_def("() = y"), 2, 5, "this cannot be assigned to"),
    (in_def("for f(x) in y:", "    z = x"), 2, 9, "a call cannot be assigned to"),
    (in_def("a, b += y"), 2, 5, "+= changes one name"),
    (in_def("return f(axis=0, x)"), 2, 22, "an argument without a name follows axis="),
    (in_def("return f(axis=0, axis=1)"), 2, 22, "f: argument axis appears twice"),
    ("def f(x, x): return x", 1, 10, "f: parameter x appears twice"),
    ("def f(x=1, y): return x", 1, 12, "parameter y needs a default"),
    ("struct P:\n    x: key\n    x: key", 3, 5, "struct P: field x appears twice"),
    ("mesh(a=1, a=2)", 1, 11, "mesh: axis a appears twice"),
    ("const A, B = 1", 1, 7, "const: 2 names and 1 value"),
    ("def f(x: f32[8@(_,data)]): return x", 1, 17, "'_' says that the dim is not split"),
    ("def f(x: f32[8@_?]): return x", 1, 16, "'_' says that the dim is not split"),
    ("def f(x: f32[8@a:(0)2]): return x", 1, 17, "a sub-axis has a factor of 1 or more and a size of 2 or more"),
    ("def f(x: f32[8@a!9999]): return x", 1, 17, "a round is a small number"),
    ("def f(x: P[8]+{a}): return x", 1, 10, "P is no tensor type, so nothing follows its ]"),
    (in_def("return shard(x, [3?])"), 2, 22, "only mesh axes take '?' or a round"),
]

EXPECTED = [
    ("def f(x: f32[64): f32]): return x", "')' does not close '['"),
    ("def f[](x): return x", "expected a name, found ']'"),
    (in_def("return x."), "expected a name, found the end of the line"),
    (in_def("return (x, ]"), "']' does not close '('"),
    (in_def("for i in:", "    y = x"), "expected a value, found ':'"),
    (in_def("return x -> y"), "expected an operator, ',' or the end of the line, found '->'"),
    (in_def("return x[1:2:3:4]"), "expected an operator, ',' or ']', found ':'"),
    ("def f(x: f32[:]): return x", "expected a size, '...' or ']', found ':'"),
    ("def f(x) ->: return x", "expected '(' or a name, found ':'"),
    ("from std..moe import a", "expected a name, found '.'"),
    ("def f(x: f32[8]!{}): return x", "expected a name, found '}'"),
    ("def (x): return x", "expected a name, found '('"),
]


@pytest.mark.parametrize(("text", "column", "message"), BEFORE, ids=[repr(row[0][:40]) for row in BEFORE])
def test_fault_of_the_text(text: str, column: int, message: str) -> None:
    (found,) = errors(text)
    assert found.message.startswith(message)
    assert found.span is not None
    assert (found.span.line, found.span.column) == (1, column)


@pytest.mark.parametrize(("text", "line", "column", "message"), AFTER, ids=[repr(row[0]) for row in AFTER])
def test_fault_that_a_grammar_does_not_see(text: str, line: int, column: int, message: str) -> None:
    (found,) = errors(text)
    assert message in found.message
    assert found.suggestion
    assert found.span is not None
    assert (found.span.line, found.span.column) == (line, column)


@pytest.mark.parametrize(("text", "message"), EXPECTED, ids=[repr(row[0]) for row in EXPECTED])
def test_what_was_expected_is_said_in_words(text: str, message: str) -> None:
    assert errors(text)[0].message == message


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (
            "def f(x):\n\ty = x\n        return y\n",
            3,
            "this line is indented with spaces, the lines above it with tabs",
        ),
        ("def f(x):\n    y = x\n\treturn y\n", 3, "this line is indented with tabs, the lines above it with spaces"),
        ("def f(x):\n    if a:\n        y = x\n      z = x\n", 4, "this line is indented like no line above it"),
        ("def f(x):\n    y = x\n     z = x\n", 3, "unexpected indentation"),
        ("def f(x):\n    y = x\n  z = x\n", 3, "this line is indented like no line above it"),
    ],
)
def test_indentation(text: str, line: int, message: str) -> None:
    (found,) = errors(text)
    assert found.message == message
    assert found.span is not None
    assert found.span.line == line


# -- the printed form ----------------------------------------------------------------------------


def test_a_diagnostic_shows_place_line_caret_and_edit() -> None:
    assert str(GShardError(errors("const G = 8\ndef f(x: f32[G]) f32[G]:\n    return x\n"))) == (
        "t.gshard:2:18: error: the result is written after '->'\n"
        "    2 | def f(x: f32[G]) f32[G]:\n"
        "                         ^^^\n"
        "   try: def f(x: f32[G]) -> f32[G]:"
    )


def test_a_bracket_that_does_not_match_shows_both() -> None:
    assert str(GShardError(errors(in_def("y = f(x[0, 1),", "      2)")))) == (
        "t.gshard:2:17: error: ')' does not close '['\n"
        "    2 |     y = f(x[0, 1),\n"
        "                        ^\n"
        "  t.gshard:2:12: '[' is opened here\n"
        "    2 |     y = f(x[0, 1),\n"
        "                   ^\n"
        "   try: ]"
    )


def test_a_line_that_ends_too_early_is_pointed_at_behind_its_last_character() -> None:
    (found,) = errors("def f(x)   # the colon is missing\n    return x\n")
    assert found.span is not None
    assert (found.span.line, found.span.column, found.suggestion) == (1, 9, "def f(x):")


# -- several at once -----------------------------------------------------------------------------


def places(text: str) -> list[tuple[int, int]]:
    return [(d.span.line, d.span.column) for d in errors(text) if d.span is not None]


def test_one_error_for_each_broken_block() -> None:
    text = (
        "from std.moe import\n"  # 1
        "const A = 1\n"
        "const B = = 2\n"  # 3
        "def f(x):\n    y = g(x\n    return y y\n"  # 5: never closed, the rest of the block is its consequence
        "def g(x):\n    return x\n"
        "struct P:\n    a: f32[8\n    b: f32(8)\n"  # 10
        "@remat\ndef h(x):\n    y = $\n    z = =\n"  # 14
        "x = 3\n"  # 16
        "def i(x):\nreturn x\nreturn x\n"  # 17: the lines below are the missing body
        "y = 4\n"
    )
    assert places(text) == [(1, 20), (3, 11), (5, 10), (10, 11), (14, 9), (16, 1), (17, 10)]


def test_good_blocks_do_not_hide_a_bad_one_at_the_end() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in sorted(FIXTURES.glob("*.gshard")))
    assert places(text + "\nconst A =\n") == [(text.count("\n") + 2, 10)]


def test_the_first_fault_of_a_block_is_told() -> None:
    assert places(in_def("y = x x", "z = $")) == [(2, 11)]
    assert places(in_def("y = $", "z = x x")) == [(2, 9)]
    assert places(in_def("y = x x", "z = (")) == [(2, 11)]
    assert places(in_def("y = x x", "  z = x")) == [(2, 11)]


def test_no_more_than_a_hundred() -> None:
    found = errors("x = 1\n" * 500)
    assert len(found) == blocks.MAX_ERRORS + 1
    assert found[-1].message == "t.gshard: the rest of the file is not read after 100 errors"
    assert len(errors("const A = $\n" * 500)) == blocks.MAX_ERRORS + 1


# -- hostile sources -----------------------------------------------------------------------------


def chain(head: str, part: str, tail: str = "x") -> str:
    """Some 20 KB: thousands of levels, many times the interpreter's own limit."""
    return head + part * ((20_000 - len(head) - len(tail)) // len(part)) + tail


DEEP = {
    "parentheses": (in_def("return ")[:-1] + "(" * 201 + "x" + ")" * 201, "brackets"),
    "open brackets": (chain("const A = ", "[", ""), "brackets"),
    "calls": (in_def("return ")[:-1] + "f(" * 200 + "x" + ")" * 200, "expressions and blocks"),
    "sums": (chain(in_def("y = ")[:-1], "x+"), "expressions and blocks"),
    "powers": (chain(in_def("y = ")[:-1], "x**"), "expressions and blocks"),
    "signs": (chain("const A = ", "-"), "expressions and blocks"),
    "not": (chain("const A = ", "not "), "expressions and blocks"),
    "fields": (chain(in_def("y = x")[:-1], ".x", ""), "expressions and blocks"),
    "conditionals": (chain("const A = ", "x if x else "), "expressions and blocks"),
    "elif": (chain(in_def("if a:", "    y = x"), "    elif a:\n        y = x\n", ""), "expressions and blocks"),
    "blocks": (
        "def f(x):\n" + "".join(" " * i + "if a:\n" for i in range(1, 400)) + " " * 400 + "y = x",
        "indented blocks",
    ),
}


@pytest.mark.parametrize(("text", "what"), DEEP.values(), ids=DEEP)
def test_deep_nesting_is_refused(text: str, what: str) -> None:
    (found,) = errors(text)
    assert found.message == f"{what} are nested more than 200 deep"


@pytest.mark.parametrize(
    "text",
    [
        in_def("return ")[:-1] + "(" * 200 + "x" + ")" * 200,
        in_def("return ")[:-1] + "f(" * 190 + "x" + ")" * 190,
        in_def("y = ")[:-1] + "x+" * 190 + "x",
        "def f(x):\n" + "".join(" " * i + "if a:\n" for i in range(1, 190)) + " " * 190 + "y = x",
    ],
    ids=["parentheses", "calls", "sums", "blocks"],
)
def test_nesting_below_the_limit_is_not(text: str) -> None:
    (found,) = parse(SourceFile("t", text)).items
    assert repr(found)
    assert found == parse(SourceFile("t", text)).items[0]
    assert hash(found) == hash(parse(SourceFile("t", text)).items[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#" * (blocks.MAX_BYTES + 1), "t.gshard: a source of 262,145 bytes is too large"),
        ("#" + "\u00e9" * (blocks.MAX_BYTES // 2), "t.gshard: a source of 262,145 bytes is too large"),
        ("const A = \0", "the character U+0000 cannot be part of a source"),
        ("# \x1b[31m", "the character U+001B cannot be part of a source"),
        ('const A = "\ud800"', "the character U+D800 cannot be part of a source"),
        ("# \u202e", "U+202E RIGHT-TO-LEFT OVERRIDE cannot be part of a source"),
        ("const A = 1\rconst B = 2\r", "a carriage return alone cannot be part of a source"),
        (bytes(range(256)).decode("latin-1") * 100, "the character U+0000 cannot be part of a source"),
    ],
    ids=["large", "large in bytes", "NUL", "escape", "surrogate", "bidi", "CR", "binary"],
)
def test_what_is_no_source_at_all(text: str, message: str) -> None:
    (found,) = errors(text)
    assert found.message == message
    str(GShardError(found)).encode()


def test_a_source_of_exactly_the_limit_is_read() -> None:
    assert parse(SourceFile("t", "#" * blocks.MAX_BYTES)).items == ()
    assert parse(SourceFile("t", "\n" * blocks.MAX_BYTES)).items == ()


@pytest.mark.parametrize("unit", ['"\n', "$\n", "x\n", ")", "!", '"', "@", "1_", " \n", "x=\\\n", "def f(\n"])
def test_repeated_garbage_is_only_ever_a_diagnostic(unit: str) -> None:
    found: tuple[Diagnostic, ...] = ()
    try:
        parse(SourceFile("t", unit * (40_000 // len(unit))))
    except GShardError as error:
        found = error.diagnostics
    assert len(found) <= blocks.MAX_ERRORS + 1


def test_random_edits_give_trees_or_diagnostics() -> None:
    texts = [p.read_text(encoding="utf-8") for p in sorted(FIXTURES.glob("*.gshard"))]
    texts += [text for _, text in EXAMPLES]
    tokens = sorted({token for text in texts for token in re.findall(r"\w+|[^\w\s]|\n *|\s", text)})
    tokens += ["!1", ":(2)2", "+{", "!{", "...", "->", "\t", "$", '"', "\u00e9", "\r\n", "    ", "0", "1.", "@"]
    draw = random.Random(0)
    outcomes = set()
    placed: list[tuple[int, int]] = []
    for _ in range(600):
        parts = re.findall(r"\w+|[^\w\s]|\n *|\s", draw.choice(texts))
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(parts) + 1)
            parts[at : at + draw.randint(0, 2)] = [draw.choice(tokens)] * draw.randint(0, 1)
        try:
            parse(SourceFile("t", "".join(parts)))
            outcomes.add("tree")
        except GShardError as error:
            outcomes.add("diagnostic")
            placed += [(d.span.line, d.span.column) for d in error.diagnostics if d.span is not None]
    assert outcomes == {"tree", "diagnostic"}
    assert min(placed) == (1, 1)
