"""Mistakes inside a line: types and their shardings, expressions, assignments."""

from __future__ import annotations

from typing import Final

from gshard_ir.frontend.blocks import CLOSERS, OPENERS
from gshard_ir.frontend.mistakes_blocks import ITEMS, KEYWORDS, STATEMENTS, body
from gshard_ir.frontend.syntax_errors import BINARY, COMPARISONS, LITERALS, Found, Mistake
from gshard_ir.types import DTYPES


def _bracketed(f: Found) -> str:
    """The line with the ( ) that starts here as [ ]."""
    depth = 0
    for i, token in enumerate(f.tokens[f.at :]):
        depth += (token.type in OPENERS) - (token.type in CLOSERS)
        if not depth:
            return f.edited(f"[{f.file.text[f.token.end_pos : token.start_pos]}]", 0, i)
    return f"{f.text(-1)}[64]"


def _untyped(f: Found) -> str:
    """The line without the type of its name."""
    rest = (token.type for token in f.tokens[f.at : f.at + 100])
    equal = next((i for i, type_ in enumerate(rest) if type_ == "EQUAL"), None)
    return f"{f.text(-1)} = ..." if equal is None else f.edited(f"{f.text(-1)} =", -1, equal)


_OPERANDS: Final = LITERALS | {"NAME"}

_TYPES: Final = (
    Mistake(
        "sizes stand in [ ]",
        lambda f: (
            f.type == "LPAR"
            and f.previous == "NAME"
            and f.text(-1) in DTYPES
            and "LSQB" in f.expected
            and "DOT" not in f.expected
        ),
        _bracketed,
        ("def f(x: f32(64)):\n    return x\n", "struct P:\n    x: f32(8, 8)\n", "def f(x) -> f32(8):\n    return x\n"),
    ),
    Mistake(
        "the axes of a dim stand inside the [ ], after its size",
        lambda f: f.type == "AT" and "PENDING" in f.expected,
        lambda f: f.edited(f"@{f.text(1)}]", -1, 1) if f.following == "NAME" else "f32[64@data]",
        ("def f(x: f32[8] @ data):\n    return x\n", "struct P:\n    x: f32[8]@data\n"),
    ),
    Mistake(
        "several axes of one dim stand in ( ), the major one first",
        lambda f: f.in_dims and f.type == "AT" and "QUESTION" in f.expected,
        lambda f: f.edited(f"({f.text(-1)},{f.text(1)})", -1, 1) if f.following == "NAME" else "@(data,model)",
        ("def f(x: f32[64@data@model]):\n    return x\n",),
    ),
    Mistake(
        "expected a mesh axis, several in ( ), or _ after '@'",
        lambda f: (
            f.previous == "AT" and "NAME" in f.expected and "INT" not in f.expected and f.brackets[-1:] == ("LSQB",)
        ),
        lambda f: f.after("data") if f.type in ("RSQB", "COMMA") else "64@data, 64@(data,model) or 64@_",
        (
            "def f(x: f32[64@]):\n    return x\n",
            "def f(x: f32[64@8]):\n    return x\n",
            "struct P:\n    x: f32[64@[data]]\n",
        ),
    ),
    Mistake(
        "expected a type after ':'",
        lambda f: f.previous == "COLON" and {"NAME", "LPAR"} <= f.expected and "INT" not in f.expected,
        lambda f: f.after(" f32[64]") if f.type in ("RPAR", "COMMA", "EQUAL", "_NEWLINE") else "f32[64]",
        (
            "def f(x: ):\n    return x\n",
            "def f(x:, y):\n    return x\n",
            "struct P:\n    x:\n",
            "def f(x: 8):\n    return x\n",
            "def f(x: [8]):\n    return x\n",
        ),
    ),
    Mistake(
        "'{found}' comes after axes",
        lambda f: f.in_dims and f.type in ("QUESTION", "ROUND") and "AT" in f.expected,
        lambda f: f.after("@data"),
        ("def f(x: f32[64?]):\n    return x\n", "def f(x: f32[64!1]):\n    return x\n"),
    ),
    Mistake(
        "a piece of an axis is written axis:(2)2",
        lambda f: (
            f.type in ("COLON", "LPAR")
            and "SUBAXIS" in f.expected
            and bool(f.brackets)
            and "AT" in f.before
            and "DOT" not in f.expected
        ),
        lambda f: f.edited(f":(1){f.text(1)}", 0, 1 if f.type == "COLON" else 2) if f.following == "INT" else ":(1)2",
        ("def f(x: f32[64@model:2]):\n    return x\n", "def f(x: f32[64@model(2)]):\n    return x\n"),
    ),
    Mistake(
        "axes of a pending sum stand in braces",
        lambda f: f.type == "PLUS" and "PENDING" in f.expected,
        "+{{{next}}}",
        ("def f(x: f32[64]+model):\n    return x\n", "struct P:\n    x: f32[64] + model\n"),
    ),
    Mistake(
        "a size is an integer",
        lambda f: f.in_dims and f.type in ("FLOAT", "STRING", "TRUE", "FALSE", "NONE"),
        lambda f: str(int(float(f.text()))) if f.type == "FLOAT" else "64, a const, or 2 * S // E",
        (
            "def f(x: f32[8.5]):\n    return x\n",
            'def f(x: f32["a"]):\n    return x\n',
            "def f(x: f32[None]):\n    return x\n",
        ),
    ),
    Mistake(
        "sizes divide with '//'",
        lambda f: f.in_dims and f.type == "SLASH",
        lambda f: f.edited("//"),
        ("def f(x: f32[S / 2]):\n    return x\n",),
    ),
)

_EXPRESSIONS: Final = (
    Mistake(
        "'=' gives a name; '==' compares",
        lambda f: f.type == "EQUAL" and f.starter in ("IF", "ELIF", "WHILE") and not f.brackets,
        lambda f: f.edited("=="),
        (
            body("if n = 3:", "    y = x"),
            body("while n = 3:", "    y = x"),
            body("if a:", "    y = x", "elif b = 2:", "    y = x"),
        ),
    ),
    Mistake(
        "the language has no ':='",
        lambda f: f.type == "COLON" and f.following == "EQUAL",
        lambda f: f"{f.text(-1)} = ... on a line of its own" if f.brackets else f.edited("=", 0, 1),
        (body("y := x"), body("return g(y := x)")),
    ),
    Mistake(
        "types are written on parameters, results and fields only; split and shard place a value",
        lambda f: f.type == "COLON" and f.before == ("NAME",),
        _untyped,
        (body("y: f32[8] = x"),),
    ),
    Mistake(
        "a line gives one set of names",
        lambda f: f.type == "EQUAL" and "EQUAL" in f.before[:-1] and not f.brackets,
        "one line for each '='",
        (body("a = b = x"), "const A = B = 3\n"),
    ),
    Mistake(
        "an argument's name is a plain word",
        lambda f: f.type == "EQUAL" and f.brackets[-1:] == ("LPAR",),
        lambda f: f.edited(f"{f.text(-1)[1:-1]}=", -1, 0) if f.previous == "STRING" else "axis=0",
        (body("return f(x.y=3)"), body("return f(3=x)"), body('return f("axis"=0)')),
    ),
    Mistake(
        "comparisons are not chained",
        lambda f: f.type in COMPARISONS and not f.expected & COMPARISONS and f.after_value,
        lambda f: f.after(f" and {f.text(-1)}") if COMPARISONS & {*f.before[-2:-1]} else "a < b and b < c",
        (body("y = 0 < a < 3"), body("if a == b == c:", "    y = x")),
    ),
    Mistake(
        "'{previous}{found}' is a word here, 'and' or 'or'; for each element '&' or '|'",
        lambda f: (f.previous, f.type) in (("AMPERSAND", "AMPERSAND"), ("PIPE", "PIPE")),
        lambda f: f.edited("and" if f.type == "AMPERSAND" else "or", -1, 0),
        (body("if a && b:", "    y = x"), body("y = a || b")),
    ),
    Mistake(
        "'{previous}{previous}' is not an operator",
        lambda f: f.type == "_NEWLINE" and f.before[-2:] in (("PLUS", "PLUS"), ("MINUS", "MINUS")),
        lambda f: f.edited(f" {f.text(-1)}= 1", -2, -1),
        (body("n++"), body("n--")),
    ),
    Mistake(
        "comments start with '#'",
        lambda f: f.type in ("FLOOR_DIV", "SLASH") and not f.before,
        "#",
        (body("// y is x", "y = x"), body("y = x", "/* done */")),
    ),
    Mistake(
        "arguments are not unpacked with '{found}'",
        lambda f: f.type in ("STAR", "POWER") and f.previous in ("LPAR", "COMMA") and "NAME" in f.expected,
        "name each one",
        (body("return f(*x)"), body("return f(x, **o)"), "def f(*x):\n    return x\n"),
    ),
    Mistake(
        "'?' stands in a layout list only",
        lambda f: f.type == "QUESTION",
        "shard(x, [data, _, ?])",
        (body("y = ?"), body("y = a ? b : c"), body("return f(x, ?)")),
    ),
    Mistake(
        "a comma with nothing before it",
        lambda f: f.type == "COMMA" and f.previous in ("COMMA", "LPAR", "LSQB"),
        lambda f: f.joined("") if f.previous == "COMMA" else f.edited(""),
        ("def f(x,, y):\n    return x\n", body("return f(x,, y)"), body("return f(, x)"), body("y = [1,, 2]")),
    ),
    Mistake(
        "a conditional has an 'else'",
        lambda f: "ELSE" in f.expected and "IF" in f.before and f.type in ("_NEWLINE", "RPAR", "RSQB", "COMMA"),
        lambda f: f.after(" else ..."),
        (body("y = x if a"), body("return f(x if a, y)"), body("return (x if a)")),
    ),
    Mistake(
        "an index is missing",
        lambda f: f.type == "RSQB" and f.previous == "LSQB" and "COLON" in f.expected,
        lambda f: f.after(":"),
        (body("return x[]"), body("y = x[0][]")),
    ),
    Mistake(
        "expected a value after '{previous}'",
        lambda f: (
            f.wants_value and (f.previous in BINARY | {"EQUAL", "AUGMENTED", "TILDE", "NOT"}) and f.type not in KEYWORDS
        ),
        "{line} ...",
        (
            body("y ="),
            "const A =\n",
            body("y = x +"),
            body("y = x * / 2"),
            body("y = f(x, a=)"),
            body("y = (x -)"),
            body("y += "),
            body("y = not"),
            body("y = )"[:-1]),
            body("if a and:", "    y = x"),
        ),
    ),
    Mistake(
        "a string has no prefix",
        lambda f: f.type == "STRING" and f.previous == "NAME" and len(f.text(-1)) <= 2 and f.after_value,
        lambda f: f.edited(f.text(), -1, 0),
        (body('y = f"{x}"'), body("y = b'x'")),
    ),
    Mistake(
        "two strings stand side by side",
        lambda f: f.type == "STRING" and f.previous == "STRING",
        "one string, or # for a comment",
        (body('"""Doc."""'), body('y = einsum("ab," "bc", x, x)')),
    ),
    Mistake(
        "expected ',' between '{previous}' and '{found}'",
        lambda f: (
            bool(f.brackets)
            and "COMMA" in f.expected
            and f.type in _OPERANDS
            and f.previous in _OPERANDS | {"RSQB", "RPAR"}
        ),
        lambda f: f.after(","),
        (
            body("return f(x y)"),
            body("return [1 2]"),
            "def f(x: f32[8 64]):\n    return x\n",
            "def f(x y):\n    return x\n",
            body("return f(x, axis=0 y)"),
            "def f(x: f32[8] y: f32[8]):\n    return x\n",
        ),
    ),
    Mistake(
        "a field has a name, an element an index in [ ]",
        lambda f: f.type == "FLOAT" and f.text()[0] == "." and f.after_value,
        lambda f: f.edited(f"[{f.text()[1:]}]"),
        (body("y = x.3"), body("return f(x).0")),
    ),
    Mistake(
        "a call has ( ) around its arguments",
        lambda f: f.previous == "NAME" and f.type in _OPERANDS and f.after_value,
        lambda f: f"{f.joined('(' + f.text())})" if not f.brackets else f"{f.text(-1)}({f.text()})",
        (body("split x, 0"), body("y = split x, 0"), body("return relu x"), body("print 3")),
    ),
    Mistake(
        "expected an operator between '{previous}' and '{found}'",
        lambda f: f.after_value and f.type in _OPERANDS,
        lambda f: f.after(" *") if f.previous in ("INT", "FLOAT") and f.type == "NAME" else "one statement per line",
        (body("y = 3 x"), body("y = f(x) y"), body("y = x[0] 3")),
    ),
    Mistake(
        "'{found}' begins a new statement",
        lambda f: f.type in STATEMENTS | ITEMS | {"ELIF"} and bool(f.before) and f.after_value,
        "put it on a line of its own",
        (body("y = x return y"), body("y = x for i in range(3):"), "const A = 3 const B = 4\n"),
    ),
)

MISTAKES: Final = (*_TYPES, *_EXPRESSIONS)
