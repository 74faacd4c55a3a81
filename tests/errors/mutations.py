"""Hostile programs: valid ones with tokens, characters and lines broken, and texts that were never programs."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOKEN = re.compile(r"\n *|[ \t]+|#[^\n]*|\w+|\"[^\"\n]*\"|[-+*/%<>=!]+|.", re.DOTALL)

HUGE = (
    "9 ** 9 ** 9", "2 ** 62", "10 ** 18", "1000000", "2147483647", "2147483648", "9223372036854775807", "-1",
    "99999999999999999999", "1e308", "1e-308", "1e999", "0", "0.0", "-0.0", "1.5", "16 * 2 ** 59", "7 ** -999999999",
    "1 << 9", "10 ** 12 // 10 ** 11",
)  # fmt: skip
NAMES = (
    "__import__", "__class__", "__builtins__", "__name__", "lambda", "jnp", "jax", "np", "lax", "if", "self", "eval",
    "exec", "open", "print", "None", "True", "nan", "inf", "import", "class", "def", "_", "__", "MESH", "INPUTS",
    "build", "P", "partial", "match", "type", "case", "async", "mesh", "key", "f32", "bool", "x", "return", "O0l1",
)  # fmt: skip
STRINGS = (
    '"ab,bc->ac"', '"a\'b"', "'a\"b'", '"->"', '",->"', '"...ab->ab..."', '"ab->ba"', '"\\\\"', '"{0}"', '"%s"',
    '"__import__(\'os\')"', '"#"', '""', '"' + "a" * 300 + '->a"', '"aA,Aa->"', '"ab,ab,ab,ab->"', '"a b->b"', '"all"',
    '"\u00e9->\u00e9"', '"forward"', '"unterminated', "'''", '"""',
)  # fmt: skip
CALLS = (
    "split(x, 0, data)", "split(x, 0, 2)", "split(x, 0, model:(2)2)", "replicate(x)", "shard(x, [_, ?])",
    "shard(x, [data, model])", "shard(x, [2, 4], devices=[0, 1, 2, 3, 4, 5, 6, 7])", "like(x, x)", "barrier(x)",
    "unroll(10 ** 9)", "unroll(3)", "zeros([1000000, 1000000])", "zeros([2 ** 31 - 1])", "arange(2 ** 31 - 1)",
    "full([10 ** 9, 10 ** 6], 1.5)", "pad(x, [(10 ** 9, 10 ** 9), (0, 0)])", "broadcast_to(x, [10 ** 6, 8, 8])",
    "one_hot(arange(10 ** 6), 10 ** 6)", "eye(10 ** 6)", "x.shape", "x[::-1]", "x[..., None]", "x[0]", "sum(x)",
    "cumsum(x, axis=0)", "concat([x, x])", "reshape(x, [-1])", "transpose(x)", "uniform(key, [10 ** 6, 10 ** 6])",
    "tile(x, [10 ** 6, 10 ** 6])", "repeat(x, 10 ** 9)", "roll(x, 10 ** 9)", "take(x, arange(8), axis=0)",
    "softmax(x)", "einsum(\"ab,cd->abcd\", x, x)", "x @ x", "-x", "x ** x", "main(x)", "f(x)", "require(True)",
)  # fmt: skip
TYPES = (
    "f32[1000000, 1000000]", "f32[10 ** 18]", "f32[2 ** 31 - 1@data]", "i32[]", "key", "f32[0]", "bf16[8@(data,model)]",
    "f32[8@data?]", "f32[8@data!1]", "f32[8@model:(2)2]", "f32[8]!{data}", "f32[8]+{data}", "f32[..., 8]", "P", "P[4]",
    "(f32[8], f32[])", "f32[" + "1, " * 30 + "1]", "u8[3]", "bool[4, 4]", "f64[8]", "i64[8@_]",
)  # fmt: skip
PIECES = (
    "mesh(data=2, model=4)", "mesh(a=10 ** 12)", "mesh(a=2 ** 31 - 1)", "mesh(data=65536, model=32767)", "mesh(_=2)",
    "const A = 9 ** 9 ** 9", "const A, A = 1, 2", "from std.moe import top2_gating", "from std.nn import layer_norm",
    "from ..std import os", "from std.nn.. import a", "from std.__init__ import x", "from os import system",
    "from std.moe import *", "import std.moe", "struct P:\n    w: f32[8, 8]", "struct P:\n    p: P",
    "def f(x):\n    return f(x)", "def f[N](x: f32[N]):\n    return x * N", "@manual(data)", "@remat",
    "def __init__(self: f32[8]):\n    return self", "def jnp(lambda_: f32[8]):\n    return lambda_",
)  # fmt: skip
MARKS = tuple("()[]{}:,.@!?+-*/%=<>~|&^;$`\\'\"#\t\r\n\0") + (
    "->", "**", "//", "==", "!=", ":(2)2", "!1", "+{data}", "!{data}", "...", "\ufeff", "\r\n", "    ", "\n    ", "\n",
    "\x1b[31m", "\u202e", "\ud800", "\u00e9", "\U0001f4a9", "\u2212", "\uff11", "\u0661", "\u00b2", "e9", "_1", "1_",
)  # fmt: skip
SPICE: tuple[Sequence[str], ...] = (HUGE, NAMES, STRINGS, CALLS, TYPES, PIECES, MARKS)


@cache
def small_programs() -> tuple[str, ...]:
    """Programs of a few lines that together use most of the language; a mutation compiles in milliseconds."""
    return tuple(p.read_text(encoding="utf-8") for p in sorted((ROOT / "tests" / "fixtures" / "small").iterdir()))


@cache
def valid_programs() -> tuple[str, ...]:
    """Every example and every module of the standard library."""
    paths = [*sorted((ROOT / "examples").rglob("*.gshard")), *sorted((ROOT / "gshard_ir" / "std").glob("*.gshard"))]
    paths += sorted((ROOT / "tests" / "fixtures" / "syntax").glob("*.gshard"))
    return tuple(p.read_text(encoding="utf-8") for p in paths)


def mutated(draw: random.Random) -> str:
    """Return one valid program with one to four faults."""
    text = draw.choice(small_programs() if draw.random() < 0.85 else valid_programs())
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
        text = draw.choice(WAYS)(text, draw)
    return text


def _tokens(text: str, draw: random.Random) -> str:
    """Replace, delete, repeat, swap or insert tokens."""
    tokens = TOKEN.findall(text)
    words = [i for i, t in enumerate(tokens) if not t.isspace() and not t.startswith("#")]
    if not words:
        return spice(draw)
    i, j, action = draw.choice(words), draw.choice(words), draw.random()
    if action < 0.25:
        tokens[i] = tokens[j]
    elif action < 0.6:
        tokens[i] = spice(draw)
    elif action < 0.7:
        tokens[i] = ""
    elif action < 0.8:
        tokens[i] *= draw.choice((2, 2, 3, 300))
    elif action < 0.9:
        tokens[i], tokens[j] = tokens[j], tokens[i]
    else:
        tokens[i] += spice(draw)
    return "".join(tokens)


def _alike(text: str, draw: random.Random) -> str:
    """Replace a token by one of its own kind: what comes out is often still a program."""
    tokens = TOKEN.findall(text)
    kinds = [_kind(t) for t in tokens]
    places = [i for i, kind in enumerate(kinds) if kind]
    if not places:
        return text
    i = draw.choice(places)
    others = [t for t, kind in zip(tokens, kinds, strict=True) if kind == kinds[i]]
    tokens[i] = draw.choice(draw.choice((others, others, KINDS[kinds[i]])))
    return "".join(tokens)


def _kind(token: str) -> str:
    if token[0].isdigit():
        return "number"
    if token[0].isalpha() or token[0] == "_":
        return "name"
    return "string" if token[0] == '"' else "operator" if token in KINDS["operator"] else ""


KINDS: dict[str, Sequence[str]] = {
    "number": (*HUGE, "2", "3", "4", "5", "7", "8"),
    "name": (*NAMES, "x", "y", "data", "model", "exp", "sum", "max", "argmax", "replicate", "isnan", "floor", "i32"),
    "string": STRINGS,
    "operator": ("+", "-", "*", "/", "//", "%", "**", "@", "==", "<", "&", "|"),
}


def _statement(text: str, draw: random.Random) -> str:
    """Add a statement, or put an operation around a value that is returned or given a name."""
    lines = text.split("\n")
    bodies = [i for i, line in enumerate(lines) if re.match(r" +(\w+ =|return) ", line)]
    if not bodies:
        return text
    i = draw.choice(bodies)
    indent = lines[i][: len(lines[i]) - len(lines[i].lstrip())]
    names = re.findall(r"(\w+) =|\((\w+):", text)
    name = draw.choice([a or b for a, b in names] or ["x"])
    call = re.sub(r"\bx\b", name, draw.choice(CALLS))
    if draw.random() < 0.5:
        lines.insert(i, f"{indent}{name} = {call}")
    else:
        lines[i] = re.sub(rf"\b{name}\b(?! =)", lambda _: f"({call})", lines[i], count=1)
    return "\n".join(lines)


def _characters(text: str, draw: random.Random) -> str:
    """Flip, drop or add single characters."""
    at = draw.randrange(len(text) + 1)
    new = draw.choice((draw.choice(MARKS), chr(draw.randrange(32, 127)), chr(draw.randrange(0xD7FF)), ""))
    return text[:at] + new + text[at + draw.randrange(2) :]


def _lines(text: str, draw: random.Random) -> str:
    """Move, repeat, drop, indent or break a line."""
    lines = text.split("\n")
    i, j, action = draw.randrange(len(lines)), draw.randrange(len(lines)), draw.randrange(6)
    if action == 0:
        lines.insert(j, lines.pop(i))
    elif action == 1:
        lines[j:j] = [lines[i]] * draw.choice((1, 1, 2, 50))
    elif action == 2:
        del lines[i]
    elif action == 3:
        lines[i] = draw.choice((" ", "    ", "\t")) + lines[i]
    elif action == 4:
        lines[i] = lines[i].lstrip()
    else:
        at = draw.randrange(len(lines[i]) + 1)
        lines[i : i + 1] = [lines[i][:at], lines[i][at:]]
    return "\n".join(lines)


def _splice(text: str, draw: random.Random) -> str:
    """Put a run of lines or tokens of another program into this one."""
    other = draw.choice((*small_programs(), *valid_programs()))
    if draw.random() < 0.5:
        theirs, lines = other.split("\n"), text.split("\n")
        i, at = draw.randrange(len(theirs)), draw.randrange(len(lines) + 1)
        lines[at:at] = theirs[i : i + draw.choice((1, 2, 5))]
        return "\n".join(lines)
    theirs, tokens = TOKEN.findall(other), TOKEN.findall(text)
    i, at = draw.randrange(len(theirs)), draw.randrange(len(tokens) + 1)
    tokens[at : at + draw.randrange(4)] = theirs[i : i + draw.randint(1, 6)]
    return "".join(tokens)


WAYS = (_alike, _alike, _alike, _statement, _statement, _tokens, _tokens, _characters, _lines, _splice)


def spice(draw: random.Random) -> str:
    """Return one thing that does not belong where it will stand."""
    return draw.choice(draw.choice(SPICE))


def random_bytes(draw: random.Random) -> bytes:
    """Return bytes that no grammar wrote: noise, ASCII noise, words of the language in any order, or a torn program."""
    kind, n = draw.randrange(5), draw.choice((1, 8, 60, 400))
    if kind == 0:
        return draw.randbytes(n)
    if kind == 1:
        return bytes(draw.choice(b"\n\n    " + bytes(range(32, 127))) for _ in range(n))
    if kind == 2:
        words = [*TOKEN.findall(draw.choice(small_programs())), *(spice(draw) for _ in range(8))]
        return "".join(draw.choice(words) for _ in range(n)).encode("utf-8", "surrogatepass")
    data = bytearray(draw.choice(small_programs()).encode())
    if kind == 3:
        for _ in range(draw.choice((1, 3, 10))):
            data[draw.randrange(len(data))] = draw.randrange(256)
        return bytes(data)
    return bytes(data).decode().encode(draw.choice(("utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037")))


MESHES: tuple[dict[str, int] | None, ...] = (
    {}, {"data": 2}, {"data": 3, "model": 2}, {"a": 2048}, {"a": 10**12}, {"a": 0}, {"x": 2, "y": 4},
    {"data": 2**31 - 1}, {"": 2}, {"__class__": 2}, {"a": 2**16, "b": 2**16},
)  # fmt: skip
DEFINES: tuple[dict[str, int], ...] = ({"N": 3}, {"N": -1}, {"A": 10**9, "B": 10**6}, {"N": 2**63}, {"Z": 1})


def command(draw: random.Random) -> tuple[dict[str, int] | None, dict[str, int]]:
    """Return what ``--mesh`` and ``-D`` say: mostly nothing."""
    mesh = draw.choice(MESHES) if draw.random() < 0.15 else None
    return mesh, draw.choice(DEFINES) if draw.random() < 0.1 else {}
