"""Mistakes in the frame of a program: layout, definitions, headers, words of other languages.

``{found}``, ``{previous}`` and ``{next}`` in a message or an edit are the tokens there, ``{line}`` is
the line up to the mistake.
"""

from __future__ import annotations

from typing import Final

from gshard_ir.frontend.syntax_errors import NO_BODY, Found, Mistake

KEYWORDS: Final = frozenset(
    {
        "FROM", "IMPORT", "AS", "MESH", "CONST", "STRUCT", "DEF", "RETURN", "FOR", "IN", "WHILE", "IF", "ELIF", "ELSE",
        "AND", "OR", "NOT", "TRUE", "FALSE", "NONE", "RESERVED",
    }
)  # fmt: skip
_HEADS: Final = frozenset({"DEF", "STRUCT", "IF", "ELIF", "ELSE", "FOR", "WHILE"})
STATEMENTS: Final = frozenset({"RETURN", "FOR", "WHILE", "IF"})
ITEMS: Final = frozenset({"DEF", "STRUCT", "CONST", "MESH", "FROM"})
_CONST_SIGNS: Final = {"COLON": " =", "AUGMENTED": " ="}
_DEF: Final = "def f(x: f32[8]) -> f32[8]:\n"


def body(*lines: str) -> str:
    """Return a def with these lines in its body, for examples."""
    return _DEF + "".join(f"    {line}\n" for line in lines)


def _module(f: Found) -> str:
    """The module of the standard library that a line names."""
    return f"std.{'moe' if 'moe' in f.file.line(f.token.line or 1) else 'nn'}"


def _member(f: Found) -> str:
    """A name that the module of :func:`_module` has."""
    return "top2_gating" if _module(f) == "std.moe" else "layer_norm"


def _grouped(f: Found) -> str:
    """The line with its result types in ( )."""
    head, arrow, types = f.edited(",").rstrip(":").partition("->")
    return f"{head}-> ({types.strip()}):" if arrow else "-> (f32[8], f32[])"


def _naming(f: Found) -> bool:
    """Whether only a name may stand here."""
    return (
        "NAME" in f.expected and not f.expected & {"INT", "STRING"} and f.previous not in ("", "AT", "COLON", "ARROW")
    )


_LAYOUT: Final = (
    Mistake(
        NO_BODY,
        lambda f: "_INDENT" in f.expected,
        "indent the lines below by 4 spaces",
        (_DEF, _DEF + "return x\n", "struct P:\nconst A = 1\n", body("if x:", "    ", "return x")),
    ),
    Mistake(
        "unexpected indentation",
        lambda f: f.type == "_INDENT",
        "align it with the line above",
        (body("y = x", "    return y"), "const A = 1\n    const B = 2\n"),
    ),
    Mistake(
        "'else if' is one word here",
        lambda f: f.type == "IF" and f.previous == "ELSE",
        lambda f: f.edited("elif", -1, 0),
        (body("if a:", "    return x", "else if b:", "    return x"),),
    ),
    Mistake(
        "'{found}' has no 'if' before it",
        lambda f: f.type in ("ELSE", "ELIF") and not f.before,
        "align it with its 'if'",
        (
            body("else:", "    return x"),
            body("if a:", "    y = x", "y = x", "else:", "    y = x"),
            "elif a:\n    x = 1\n",
        ),
    ),
    Mistake(
        "a decorator stands on a line of its own",
        lambda f: f.starter == "AT" and "_NEWLINE" in f.expected,
        "{line}, and {found} on the next line",
        ("@remat def f(x):\n    return x\n",),
    ),
    Mistake(
        "a decorator belongs to a def",
        lambda f: "DEF" in f.expected and "AT" in f.expected and "STRUCT" not in f.expected,
        "put the def on the next line",
        ("@remat\n", "@remat\nstruct P:\n    x: f32[8]\n", "@remat\nconst A = 1\n"),
    ),
    Mistake(
        "'{found}' stands outside defs, in column 1",
        lambda f: f.type in ITEMS and not f.before and not f.top,
        "move it to column 1, above or below this def",
        (body("const A = 3", "return x"), body("def g(y):", "    return y"), body("from std.nn import relu")),
    ),
    Mistake(
        "only '@remat' and '@manual' stand before a def, and nothing inside it",
        lambda f: f.type == "AT" and not f.before,
        "move the decorator above the def",
        (body("@remat", "y = x", "return y"),),
    ),
)

_WORDS: Final = (
    Mistake(
        "imports are written the other way round",
        lambda f: f.type == "IMPORT" and not f.before,
        lambda f: f"from {_module(f)} import {_member(f)}",
        ("import os\n", "import std.moe\n", body("import std.moe")),
    ),
    Mistake(
        "names are imported one by one",
        lambda f: f.type == "STAR" and f.previous == "IMPORT",
        lambda f: f"{f.so_far()} {_member(f)}",
        ("from std.nn import *\n",),
    ),
    Mistake(
        "expected 'import' and the names",
        lambda f: f.starter == "FROM" and "IMPORT" in f.expected,
        lambda f: f"from {_module(f)} import {_member(f)}",
        ("from std.moe\n", "from std.moe as moe\n"),
    ),
    Mistake(
        "'{found}' is a reserved word and cannot be a name",
        lambda f: f.type in KEYWORDS and (_naming(f) or (f.following == "EQUAL" and f.type not in ("TRUE", "FALSE"))),
        "{found}_",
        (
            "def if(x):\n    return x\n",
            "struct from:\n    x: f32[8]\n",
            "const mesh = 3\n",
            body("in = x"),
            body("lambda = x"),
            "def f(from):\n    return x\n",
            body("return f(x, const=3)"),
            "const A, None = 1, 2\n",
        ),
    ),
    Mistake(
        "the language has no list comprehensions",
        lambda f: f.type == "FOR" and bool({"LSQB", "LPAR"} & {*f.brackets[-1:]}),
        "for i in unroll(n): in the body, or an op on the whole tensor",
        (body("y = [a for a in x]"), body("return (a for a in x)")),
    ),
    Mistake(
        "a class is a struct here, and holds fields alone",
        lambda f: f.text() == "class" and not f.before,
        lambda f: f.edited("struct"),
        ("class P:\n    x: f32[8]\n", "class P(Base):\n    x: f32[8]\n"),
    ),
    Mistake(
        "the language has no '{found}'",
        lambda f: f.type == "RESERVED",
        "{python}",
        (
            body("f = lambda y: y"),
            body("pass"),
            body("if x is None:", "    return x"),
            body("assert x"),
            "with a:\n    b = 1\n",
            body("yield x"),
            body("try:", "    y = x"),
        ),
    ),
    Mistake(
        "'{found}' stands inside a def",
        lambda f: f.top and not f.before and f.type in STATEMENTS,
        "indent it into the body of a def",
        ("return x\n", "for i in range(3):\n    x = i\n", "if a:\n    b = 1\n"),
    ),
    Mistake(
        "at the top level only constants are given names, and other lines stand in a def",
        lambda f: f.top and not f.before and f.type == "NAME" and f.following in ("EQUAL", "COMMA"),
        lambda f: f.edited(f"const {f.text()}"),
        ("E = 8\n", "a, b = 1, 2\n"),
    ),
    Mistake(
        "'{found}' starts no definition",
        lambda f: f.top and not f.before and f.type != "AT" and "STRUCT" in f.expected,
        "{definition}",
        (
            "Struct P:\n    x: f32[8]\n",
            "defn f(x):\n    return x\n",
            "f(x)\n",
            "3\n",
            "// moe\n",
            '"text"\n',
            "var x = 3\n",
            "->\n",
        ),
    ),
    Mistake(
        "'let' and 'var' are not needed",
        lambda f: (
            f.previous == "NAME" and f.text(-1) in ("let", "var", "val") and f.type == "NAME" and len(f.before) == 1
        ),
        lambda f: f.edited(f.text(), -1, 0),
        (body("let y = x"), body("var y = x", "return y")),
    ),
)

_HEADERS: Final = (
    Mistake(
        "the parameters of a def stand in ( )",
        lambda f: f.starter == "DEF" and "LPAR" in f.expected and "LPAR" not in f.before and "NAME" not in f.expected,
        lambda f: f.joined(f"({f.text()})") if f.type == "NAME" else f.after("()"),
        ("def f:\n    return x\n", "def f -> f32[8]:\n    return x\n", "def f x:\n    return x\n"),
    ),
    Mistake(
        "a struct's fields stand on indented lines after ':'",
        lambda f: f.starter == "STRUCT" and f.type in ("LPAR", "EQUAL", "NAME") and "COLON" in f.expected,
        "{line}:",
        ("struct P(x: f32[8]):\n", "struct P = 3\n", "struct P x: f32[8]\n"),
    ),
    Mistake(
        "a struct's field is a name, ':' and a type",
        lambda f: not f.top and f.tokens[0].type == "STRUCT" and "COLON" in f.expected,
        lambda f: f.joined(":") if f.type == "EQUAL" else f.after(":" if f.type == "NAME" else ": f32[64, 64]"),
        ("struct P:\n    x\n", "struct P:\n    x = f32[8]\n", "struct P:\n    x f32[8]\n"),
    ),
    Mistake(
        "a struct's fields are separated by lines alone",
        lambda f: (
            not f.top and f.tokens[0].type == "STRUCT" and f.type in ("COMMA", "EQUAL") and "PENDING" in f.expected
        ),
        "{line}",
        ("struct P:\n    x: f32[8],\n    y: f32[8]\n", "struct P:\n    x: f32[8] = 3\n"),
    ),
    Mistake(
        "a loop is written for NAME in VALUES:",
        lambda f: f.starter == "FOR" and "IN" in f.expected,
        lambda f: f.edited("in") if f.type == "EQUAL" else f.after(" in" if f.type == "NAME" else " in unroll(n)"),
        (body("for i range(3):", "    y = x"), body("for i:", "    y = x"), body("for i = 1:", "    y = x")),
    ),
    Mistake(
        "the result is written after '->'",
        lambda f: (
            f.starter == "DEF"
            and "ARROW" in f.expected
            and (f.type, f.following) != ("_NEWLINE", "_INDENT")
            and f.type not in ("_NEWLINE", "$END", "_DEDENT")
        ),
        lambda f: f.edited("->", 0, 1) if f.following == "GT" else f.after(" ->" if f.type == "NAME" else " -> f32[8]"),
        (
            "def f(x: f32[8]) f32[8]:\n    return x\n",
            "def f(x) => f32[8]:\n    return x\n",
            "def f(x) - > f32[8]:\n    return x\n",
            "def f(x) = x\n",
        ),
    ),
    Mistake(
        "several results stand in ( )",
        lambda f: f.starter == "DEF" and f.type == "COMMA" and not f.brackets and "COLON" in f.expected,
        _grouped,
        ("def f(x: f32[8]) -> f32[8], f32[]:\n    return x\n",),
    ),
    Mistake(
        "expected ':' at the end of this line",
        lambda f: f.type in ("_NEWLINE", "_INDENT", "$END") and "COLON" in f.expected and f.starter in _HEADS,
        "{line}:",
        (
            "def f(x: f32[8]) -> f32[8]\n    return x\n",
            "def f(x)\n    return x\n",
            "struct P\n    x: f32[8]\n",
            body("for i in range(3)", "    y = i"),
            body("if a", "    y = x"),
            body("while a < 3", "    y = x"),
            body("if a:", "    y = x", "else", "    y = x"),
            "def f(x)",
        ),
    ),
    Mistake(
        "a mesh is written mesh(name=size, ...)",
        lambda f: f.starter == "MESH",
        "mesh(data=1, expert=8)",
        ("mesh(data, expert)\n", "mesh data=1\n", "mesh(8)\n", "mesh(data: 2)\n", "mesh[data=2]\n", 'mesh("data"=2)\n'),
    ),
    Mistake(
        "a constant is written const NAME = value",
        lambda f: f.starter == "CONST" and "EQUAL" in f.expected,
        lambda f: (
            f"{f.so_far()} = ..." if f.type == "_NEWLINE" else f.joined(_CONST_SIGNS.get(f.type, f" = {f.text()}"))
        ),
        ("const E: 8\n", "const E 8\n", "const E\n", "const E += 8\n"),
    ),
)

MISTAKES: Final = (*_LAYOUT, *_WORDS, *_HEADERS)
