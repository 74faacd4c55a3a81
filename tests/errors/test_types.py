"""Type errors: each program is wrong in one way; the diagnostic names the place, the numbers and an edit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

# One statement, the text under its caret, fragments of the whole message.
STATEMENTS: list[tuple[str, str, list[str]]] = [
    # names
    ("z = foo", "foo", ["unknown name foo"]),
    ("z = sofmax(x)", "sofmax", ["unknown name sofmax", "try: softmax"]),
    ("z = x.foo", "foo", ["a tensor has no foo", "shape, ndim, size and dtype"]),
    ("z = x.sum(axis=0)", "x.sum(axis=0)", ["tensors have no methods", "try: sum(x, axis=0)"]),
    ("z = x.astype(f32)", "x.astype(f32)", ["tensors have no methods", "try: cast(x, f32)"]),
    ("z = x(1)", "x", ["f32[8,6] cannot be called"]),
    ("z = y.shape.foo", "foo", ["has no parts with names"]),
    # literals and element types
    ("z = i + 1.5", "1.5", ["the float 1.5 does not adapt to i32", "try: 1"]),
    ("z = x + True", "True", ["True does not adapt to f32"]),
    ("z = x + i", "i", ["+ of f32[8,6] and i32[8,6]: element types differ", "try: cast(i, f32)"]),
    ("z = i * x", "x", ["element types differ", "no implicit promotion", "this is i32[8,6]"]),
    ("z = h * x", "x", ["* of bf16[8,6] and f32[8,6]", "try: cast(h, f32)"]),
    ("z = b + b", "b + b", ["+ takes numbers, found bool", "try: cast(b, i32)"]),
    ("z = i / 2", "i / 2", ["/ divides floats, found i32", "try: i // 2"]),
    ("z = x & x", "x & x", ["& takes bool or integer operands, found f32"]),
    ("z = -b", "-b", ["- takes a number, found bool[8,6]"]),
    ("z = ~x", "x", ["not takes bool or integer operands"]),
    ("z = i ** -1", "i ** -1", ["to the negative power -1", "cast it to f32"]),
    ("z = exp(i)", "i", ["exp takes a float tensor, found i32[8,6]", "try: cast(i, f32)"]),
    ("z = k + 1", "k", ["+ does not apply to a random key"]),
    ('z = x + "a"', '"a"', ['+ takes tensors and numbers, found the string "a"']),
    ("z = x + (1, 2)", "(1, 2)", ["found (the integer 1, the integer 2)"]),
    # shapes
    ("z = x + x[:, 1:]", "x + x[:, 1:]", ["f32[8,6] and f32[8,5]", "dim 1 of x is 6", "dim 1 of x[:, 1:] is 5"]),
    ("z = x + x[:, 0]", "x + x[:, 0]", ["shapes do not broadcast", "try: x[:, 0][..., None]"]),
    ("z = where(b, x, x[1:])", "where(b, x, x[1:])", ["bool[8,6] and f32[7,6]"]),
    ("z = x @ x", "x @ x", ["inner sizes differ", "the last dim of x is 6", "is 8", "try: x @ transpose(x)"]),
    ("z = y @ 2.0", "2.0", ["@ multiplies matrices, found the float 2.0", "try: y * 2.0"]),
    ("z = x @ cast(y, bf16)", "x @ cast(y, bf16)", ["both must hold numbers of one type"]),
    # conditions
    ("z = x if x > 0 else y", "x > 0", ["must be known at compile time", "bool[8,6]", "where(condition, a, b)"]),
    ("z = b and b", "b", ["and applies to compile-time values", "try: (b) & .."]),
    ("z = not b", "not b", ["not applies to compile-time values", "try: ~b"]),
    ("z = 1 if 2 else 3", "2", ["must be True or False, found the integer 2"]),
    # subscripts
    ("z = x[8]", "8", ["index 8 is out of range for dim 0 of x, which is f32[8,6]", "indices are -8 to 7"]),
    ("z = x[0, 0, 0]", "x[0, 0, 0]", ["3 indices for the 2 dims of x"]),
    ("z = x[1.5]", "1.5", ["an index must be a compile-time integer", "the float 1.5"]),
    ("z = x[i]", "i", ["must be known at compile time", "try: take(x, i, axis=0)"]),
    ("z = x[::0]", "::0", ["a slice step must not be 0"]),
    ("z = x[..., ...]", "...", ["... stands once"]),
    ("z = x.shape[2]", "2", ["index 2 is out of range: x.shape has 2 parts"]),
    ("z = k[0]", "k[0]", ["a random key cannot be indexed", "fold_in(k, i)"]),
    # reductions
    ("z = sum(x, axis=2)", "2", ["there is no dim 2 in f32[8,6]", "dims are 0 to 1"]),
    ("z = sum(x, axis=[0, -2])", "[0, -2]", ["axis names a dim twice"]),
    ("z = sum(x, 0, True)", "True", ["2 arguments without a name, found 3", "try: keepdims=.."]),
    ("z = sum(b)", "b", ["must hold numbers, found bool[8,6]", "try: cast(b, i32)"]),
    ("z = mean(i)", "i", ["must be float, found i32[8,6]", "mean(cast(i, f32))"]),
    ("z = any(x)", "x", ["must be bool, found f32[8,6]", "try: x != 0"]),
    ("z = max(x, y)", "y", ["axis must be an integer", "try: maximum(x, y)"]),
    ("z = max(x[:0])", "x[:0]", ["no largest or smallest of nothing"]),
    ("z = argmax(x, axis=0, keepdims=1)", "1", ["keepdims must be True or False"]),
    ("z = one_hot(x, 3)", "x", ["must hold integers, found f32[8,6]"]),
    # shapes and sources
    ("z = reshape(x, [5, -1])", "[5, -1]", ["no size for -1", "48 elements, 5 does not divide"]),
    ("z = reshape(x, [7, 7])", "x", ["48 elements do not make 49"]),
    ("z = reshape(x, [-1, -1])", "[-1, -1]", ["one size at most is -1"]),
    ("z = transpose(x, [0, 0])", "[0, 0]", ["each of the 2 dims of f32[8,6] once"]),
    ("z = squeeze(x, axis=0)", "0", ["dim 0 of f32[8,6] has size 8, not 1"]),
    ("z = broadcast_to(x, [6])", "x", ["f32[8,6] does not broadcast to [6]"]),
    ("z = concat([x, y])", "[x, y]", ["concat along dim 0", "f32[6]"]),
    ("z = concat([x, i])", "[x, i]", ["element types differ"]),
    ("z = concat(x)", "x", ["arrays must be a list of tensors"]),
    ("z = stack([x, y])", "[x, y]", ["types differ: f32[8,6] and f32[6]"]),
    ("z = pad(x, [(1, 1)])", "[(1, 1)]", ["1 pairs for the 2 dims"]),
    ("z = pad(x, [(1, -1), (0, 0)])", "[(1, -1), (0, 0)]", ["none negative"]),
    ("z = zeros([2, -1])", "[2, -1]", ["dim 1 of [2,-1] is negative"]),
    ("z = zeros([9999999999])", "[9999999999]", ["more than 2,147,483,647 rows"]),
    ("z = zeros([3.5])", "[3.5]", ["must be a compile-time integer, found the float 3.5"]),
    ("z = zeros([2], i)", "i", ["dtype must be an element type"]),
    ("z = full([2], y)", "y", ["fill_value must be a scalar, found f32[6]"]),
    ("z = arange(x)", "x", ["start must be a compile-time number"]),
    ("z = take(x, x)", "x", ["indices must hold integers", "cast(x, i32)"]),
    ("z = uniform(x, [2])", "x", ["key must be a random key, found f32[8,6]"]),
    ("z = cast(k, f32)", "k", ["a random key is not a number"]),
    # calls
    ("z = exp()", "exp()", ["exp needs x", "exp(x)"]),
    ("z = exp(x, y)", "y", ["exp takes 1 argument, found 2"]),
    ("z = sum(x, axes=0)", "axes=0", ["sum has no argument axes", "try: axis"]),
    ("z = sum(x, a=x)", "a=x", ["sum: a is given twice"]),
    ("z = len(3)", "3", ["must be a tuple or a tensor"]),
    ("z = int(x)", "x", ["must be known at compile time", "cast(x, i32)"]),
    # einsum
    ('z = einsum("ab,bc", x, x)', '"ab,bc"', ["do not say the result", 'try: "ab,bc->ac"']),
    ('z = einsum("ab->a", x, x)', '"ab->a"', ["name 1 operands, found 2"]),
    ('z = einsum("abc->a", x)', "abc", ['"abc" names 3 dims, x has 2', "x is f32[8,6]"]),
    ('z = einsum("aa->a", x)', "aa", ["letter a stands twice"]),
    ('z = einsum("ab->c", x)', '"ab->c"', ["letter c of the result is in no operand"]),
    ('z = einsum("ab->aa", x)', '"ab->aa"', ["letter a stands twice in the result"]),
    ('z = einsum("a1->a", x)', "a1", ["single letters"]),
    ('z = einsum("...b->b", x)', '"...b->b"', ["the result leaves ... out"]),
    ('z = einsum("ab,ab->a", x, i)', "i", ["element types differ", "cast(i, f32)"]),
    ('z = einsum("ab->a", b)', "b", ["einsum multiplies numbers, found bool[8,6]"]),
    # compile-time arithmetic
    ("z = x * 9 ** 9 ** 9", "9 ** 9 ** 9", ["is too large"]),
    ("z = x * (2 ** 62 * 4)", "2 ** 62 * 4", ["too large", "2**63 - 1"]),
    ("z = x * (1 // 0)", "1 // 0", ["1 // 0 divides by zero"]),
    ("z = x * (1e308 * 10 ** 400.0)", "10 ** 400.0", ["too large for a float"]),
    ("z = sqrt(-1)", "sqrt(-1)", ["has no real value"]),
    ("z = x * ((-8) ** 0.5)", "(-8) ** 0.5", ["no real value"]),
    ('z = zeros(["a" + 1])', '"a" + 1', ['+ does not apply to the string "a" and the integer 1']),
    ("z = x * 99999999999999999999", "99999999999999999999", ["this integer is too large"]),
    # statements
    ("a, c = x", "x", ["2 names for one value: f32[8,6]"]),
    ("a, c = 1, 2, 3", "a, c", ["2 names for 3 values"]),
    ("exp(x)", "exp(x)", ["the value of this line is not used", "try: x = exp(x)"]),
    ("z = unroll(3)[0]", "unroll(3)[0]", ["unroll(..) cannot be indexed"]),
    # not yet
    ("z = grad(x)", "grad", ["grad is not supported yet"]),
    ("z = top_k(x, 2)", "top_k", ["top_k is not supported yet", "argmax"]),
    ("z = normal(k, [2])", "normal", ["normal is not supported yet", "try: uniform(key, shape)"]),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "under", "fragments"), STATEMENTS, ids=[s for s, _, _ in STATEMENTS])
def test_statement(statement: str, under: str, fragments: list[str]) -> None:
    found = only(f"mesh(a=2)\ndef main({PARAMS}):\n    {statement}\n    return x\n")
    assert caret(found) == under
    for fragment in fragments:
        assert fragment in found.render()


@dataclass(frozen=True)
class Wrong:
    """One section of type_errors.txt."""

    name: str
    under: str
    fragments: tuple[str, ...]
    text: str


def wrong_programs() -> list[Wrong]:
    found = []
    for section in (Path(__file__).parent / "type_errors.txt").read_text().split("\n== ")[1:]:
        head, _, text = section.partition("\n\n")
        name, *lines = head.split("\n")
        under = next((line[2:] for line in lines if line.startswith("^ ")), "")
        found.append(Wrong(name, under, tuple(line[2:] for line in lines if line.startswith("? ")), text))
    return found


@pytest.mark.parametrize("wrong", wrong_programs(), ids=lambda w: w.name)
def test_program(wrong: Wrong) -> None:
    found = only(wrong.text)
    if wrong.under:
        assert caret(found) == wrong.under
    assert wrong.fragments
    for fragment in wrong.fragments:
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
