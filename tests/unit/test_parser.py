"""What each construct of the language parses to, where its span lies, and what text a source may be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gshard_ir.errors import GShardError
from gshard_ir.frontend import ast
from gshard_ir.frontend.parser import decode, parse
from gshard_ir.source import SourceFile

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "syntax").glob("*.gshard"))


def items(text: str) -> tuple[Any, ...]:
    return parse(SourceFile("t.gshard", text)).items


def show(part: Any) -> str:
    """Write a tree as ``Class(fields)``, with bare names, numbers and strings."""
    match part:
        case ast.Name(id):
            return id
        case ast.Number(_, text):
            return text
        case ast.Node():
            fields = (f.name for f in dataclasses.fields(part) if not f.name.endswith("span"))
            return f"{type(part).__name__}({', '.join(show(getattr(part, name)) for name in fields)})"
        case tuple():
            return f"[{', '.join(map(show, part))}]"
        case _:
            return repr(part)


def expression(text: str) -> Any:
    return items(f"const A = {text}\n")[0].values[0]


def statement(text: str) -> Any:
    return items("def f(x):\n" + "".join(f"    {line}\n" for line in text.split("\n")))[0].body[0]


def type_of(text: str) -> Any:
    return items(f"struct P:\n    x: {text}\n")[0].fields[0].type


def dim(text: str) -> str:
    (found,) = type_of(f"f32[{text}]").dims
    axes = [str(a.name) if not a.size else f"{a.name}:({a.pre}){a.size}" for a in found.axes]
    return f"{show(found.size)} {axes} {'open' if found.open else 'closed'} {found.round}"


@pytest.mark.parametrize("path", FIXTURES, ids=[p.stem for p in FIXTURES])
def test_fixture_parses_to_as_many_items_as_it_has_definitions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    starts = [line for line in text.split("\n") if line.split("(")[0].split(" ")[0] in STARTERS]
    assert len(items(text)) == len(starts) > 0


STARTERS = {"from", "mesh", "const", "struct", "def"}


# -- expressions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b * c", "a + (b * c)"),
        ("a - b - c", "(a - b) - c"),
        ("-a ** b", "-(a ** b)"),
        ("a ** -b ** c", "a ** (-(b ** c))"),
        ("2 * S // E", "(2 * S) // E"),
        ("a @ b * c", "(a @ b) * c"),
        ("a | b ^ c & d", "a | (b ^ (c & d))"),
        ("a & b == c", "(a & b) == c"),
        ("not a == b", "not (a == b)"),
        ("not a and b or c", "((not a) and b) or c"),
        ("a if b else c if d else e", "a if b else (c if d else e)"),
        ("-x.y[0](z)", "-(((x.y)[0])(z))"),
        ("~a + +b", "(~a) + (+b)"),
        ("a or b if c and d else e", "(a or b) if (c and d) else e"),
    ],
)
def test_precedence_is_pythons(text: str, same: str) -> None:
    assert expression(text) == expression(same)
    assert show(expression(text)) == show(expression(same))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1_000", "1_000"),
        ("1.5e-9", "1.5e-9"),
        ("True", "Bool(True)"),
        ("None", "NoneLit()"),
        ("'a \"b\"'", "String('a \"b\"')"),
        ("()", "Tuple([])"),
        ("(a,)", "Tuple([a])"),
        ("(a)", "a"),
        ("[a, 1]", "ListExpr([a, 1])"),
        ("a - 1", "Binary('-', a, 1)"),
        ("-1", "Unary('-', 1)"),
        ("a < b", "Compare('<', a, b)"),
        ("a and b", "Logical('and', a, b)"),
        ("a if b else c", "Conditional(b, a, c)"),
        ("p.x", "Attribute(p, 'x')"),
        ("f(a, axis=-1)", "Call(f, [a], [Keyword('axis', Unary('-', 1))])"),
        ("f()", "Call(f, [], [])"),
        ("x[0]", "Subscript(x, [0])"),
        ("x[..., None]", "Subscript(x, [EllipsisLit(), NoneLit()])"),
        ("x[:, 1:, :2, ::3]", ("Subscript(x, [Slice(None, None, None), Slice(1, None, None), "
         "Slice(None, 2, None), Slice(None, None, 3)])")),
        ("x[(a, b)]", "Subscript(x, [Tuple([a, b])])"),
        ("[_, ?]", "ListExpr([Placeholder('_'), Placeholder('?')])"),
        ("[data?, (a, b)!2]", "ListExpr([DimPin(data, True, 0), DimPin(Tuple([a, b]), False, 2)])"),
        ("[data?!1]", "ListExpr([DimPin(data, True, 1)])"),
        ("split(x, 0, model:(2)4)", "Call(split, [x, 0, AxisExpr('model', 2, 4)], [])"),
    ],
)  # fmt: skip
def test_expression(text: str, shown: str) -> None:
    assert show(expression(text)) == shown


def test_numbers_have_values() -> None:
    for text, value in [("1_000", 1000), ("1e-9", 1e-9), ("2.", 2.0), (".5", 0.5), ("0", 0), ("6.02E+3", 6020.0)]:
        number = expression(text)
        assert (number.value, type(number.value)) == (value, type(value))


# -- types -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("64", "64 [] open 0"),
        ("64@data", "64 ['data'] closed 0"),
        ("64@(data,model)", "64 ['data', 'model'] closed 0"),
        ("64@data?", "64 ['data'] open 0"),
        ("64@_", "64 [] closed 0"),
        ("64@data!1", "64 ['data'] closed 1"),
        ("64@(data,model)?!2", "64 ['data', 'model'] open 2"),
        ("64@model:(2)2", "64 ['model:(2)2'] closed 0"),
        ("64@(model:(1)2,data)", "64 ['model:(1)2', 'data'] closed 0"),
        ("2 * S // E@data", "Binary('//', Binary('*', 2, S), E) ['data'] closed 0"),
        ("-(-N // 4)", "Unary('-', Binary('//', Unary('-', N), 4)) [] open 0"),
        ("...", "None [] open 0"),
    ],
)
def test_dim(text: str, shown: str) -> None:
    assert dim(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("f32[]", "TensorTypeExpr('f32', [], [], [])"),
        ("f32[]+{a}", "TensorTypeExpr('f32', [], [PendingExpr('sum', [AxisExpr('a', 1, 0)])], [])"),
        ("f32[]+max{a}+min{b}", ("TensorTypeExpr('f32', [], [PendingExpr('max', [AxisExpr('a', 1, 0)]), "
         "PendingExpr('min', [AxisExpr('b', 1, 0)])], [])")),
        ("f32[] + prod {a} ! {b}", ("TensorTypeExpr('f32', [], [PendingExpr('prod', [AxisExpr('a', 1, 0)])], "
         "[AxisExpr('b', 1, 0)])")),
        ("key", "KeyType()"),
        ("Layer", "NamedType('Layer', [])"),
        ("Layer[n@a]", "NamedType('Layer', [DimExpr(n, [AxisExpr('a', 1, 0)], False, 0)])"),
        ("(key, (P,), ())", "TupleType([KeyType(), TupleType([NamedType('P', [])]), TupleType([])])"),
        ("(key)", "KeyType()"),
    ],
)  # fmt: skip
def test_type(text: str, shown: str) -> None:
    assert show(type_of(text)) == shown


# -- statements and definitions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("y = x", "Assign(y, x)"),
        ("a, _ = x", "Assign(Tuple([a, _]), x)"),
        ("a, (b, c) = x, y", "Assign(Tuple([a, Tuple([b, c])]), Tuple([x, y]))"),
        ("a, = x", "Assign(Tuple([a]), x)"),
        ("y **= 2", "Assign(y, Binary('**', y, 2))"),
        ("y //= 2", "Assign(y, Binary('//', y, 2))"),
        ("return", "Return(None)"),
        ("return a, b", "Return(Tuple([a, b]))"),
        ("f(x)", "ExprStmt(Call(f, [x], []))"),
        ("'doc'", "ExprStmt(String('doc'))"),
        ("for i, j in range(3):\n    y = i", "For(Tuple([i, j]), Call(range, [3], []), [Assign(y, i)])"),
        ("while a < b: a = b", "While(Compare('<', a, b), [Assign(a, b)])"),
        ("if a:\n    y = 1", "If(a, [Assign(y, 1)], [])"),
        ("if a:\n    y = 1\nelif b:\n    y = 2\nelse:\n    y = 3",
         "If(a, [Assign(y, 1)], [If(b, [Assign(y, 2)], [Assign(y, 3)])])"),
    ],
)  # fmt: skip
def test_statement(text: str, shown: str) -> None:
    assert show(statement(text)) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("from std.moe import a, b as c", "Import('std.moe', [ImportedName('a', 'a'), ImportedName('b', 'c')])"),
        ("from std import (\n  a,\n)", "Import('std', [ImportedName('a', 'a')])"),
        ("mesh(data=1, expert=N)", "MeshDecl([MeshAxis('data', 1), MeshAxis('expert', N)])"),
        ("const A, B = 1, 2", "ConstDecl([A, B], [1, 2])"),
        ("struct P:\n  x: key\n  y: key", "StructDecl('P', [FieldDecl('x', KeyType()), FieldDecl('y', KeyType())])"),
        ("def f(): return x", "Def('f', [], [], None, [Return(x)], [])"),
        ("def f[N](a, b: key, c=1, d: key = None) -> key:\n  return b",
         ("Def('f', [N], [Param('a', None, None), Param('b', KeyType(), None), Param('c', None, 1), "
         "Param('d', KeyType(), NoneLit())], KeyType(), [Return(b)], [])")),
        ("@remat\n@manual(a, b)\ndef f(): return x",
         "Def('f', [], [], None, [Return(x)], [Decorator('remat', []), Decorator('manual', [a, b])])"),
    ],
)  # fmt: skip
def test_definition(text: str, shown: str) -> None:
    (found,) = items(text)
    assert show(found) == shown


# -- spans -------------------------------------------------------------------------------------


def covered(text: str, span: Any) -> str:
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def test_a_span_covers_exactly_its_construct() -> None:
    text = (
        "# head\n\n@remat\ndef f(x: f32[8@data, 2 * N]+{m}) -> key:\n"
        "    y = (x + 1) * g(x, axis=-1)  # tail\n    return y[0, 1:], y\n\n# foot\n"
    )
    (found,) = items(text)
    param, assign, ret = found.params[0], found.body[0], found.body[1]
    product = assign.value
    spans = [
        (found, "@remat" + text.split("@remat")[1].split("\n\n# foot")[0]),
        (found.decorators[0], "@remat"),
        (param, "x: f32[8@data, 2 * N]+{m}"),
        (param.type, "f32[8@data, 2 * N]+{m}"),
        (param.type.dims[0], "8@data"),
        (param.type.dims[0].axes[0], "data"),
        (param.type.dims[1], "2 * N"),
        (param.type.pending[0], "+{m}"),
        (found.result, "key"),
        (assign, "y = (x + 1) * g(x, axis=-1)"),
        (assign.target, "y"),
        (product, "(x + 1) * g(x, axis=-1)"),
        (product.left, "x + 1"),
        (product.right, "g(x, axis=-1)"),
        (product.right.keywords[0], "axis=-1"),
        (ret, "return y[0, 1:], y"),
        (ret.value, "y[0, 1:], y"),
        (ret.value.items[0].items[1], "1:"),
    ]
    assert [covered(text, node.span) for node, _ in spans] == [expected for _, expected in spans]
    assert covered(text, found.name_span) == "f"
    assert covered(text, product.op_span) == "*"


def test_the_program_spans_the_whole_file() -> None:
    text = "const A = 1\nconst B = 2"
    assert covered(text, parse(SourceFile("t", text)).span) == text


def test_spans_take_no_part_in_equality() -> None:
    assert items("const A = 1")[0] == items("\n\nconst   A =  1  # one\n")[0]
    assert items("const A = 1")[0] != items("const A = 2")[0]


# -- text --------------------------------------------------------------------------------------

PLAIN = "const A = 1\ndef f(x):\n    if a:\n        y = x\n\n    return (y,\n      x)\nconst B = 2\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("    ", "\t"),
        PLAIN.replace("    ", " "),
        "\ufeff" + PLAIN,
        PLAIN.rstrip("\n"),
        PLAIN + "\n\n   \n\t\n",
        PLAIN + "    # indented comment",
        "# first\n   # second\n\n" + PLAIN,
        PLAIN.replace("\n", "  # é \u2192 comment\n"),
        PLAIN.replace("\n", "\n# at column 1\n"),
        PLAIN.replace("      x)", "x\n)"),
    ],
)
def test_layout_that_does_not_matter(text: str) -> None:
    assert items(text) == items(PLAIN)


@pytest.mark.parametrize("text", ["", "\n", "   ", "# only this", "\ufeff", "\r\n\r\n", " \n\t\n"])
def test_an_empty_file_is_an_empty_program(text: str) -> None:
    assert items(text) == ()


def test_a_byte_order_mark_does_not_shift_columns() -> None:
    with pytest.raises(GShardError) as found:
        parse(SourceFile("t", "\ufeffconst A = $"))
    span = found.value.diagnostics[0].span
    assert span is not None
    assert (span.line, span.column, span.file.text[span.column - 1]) == (1, 11, "$")


def test_a_block_may_open_brackets_over_column_1() -> None:
    assert items("def f(\nx,\n) -> key:\n    return (x\n@ y)\nconst A = 1\n") == items(
        "def f(x) -> key:\n    return x @ y\nconst A = 1\n"
    )


def test_decode_makes_a_source_of_utf8() -> None:
    assert decode("t", "const A = 1  # é".encode()).text == "const A = 1  # é"
    with pytest.raises(GShardError, match=r"bin is not UTF-8 text\n   byte 0xff at offset 6"):
        decode("bin", b"const \xff\xfe\x00")
