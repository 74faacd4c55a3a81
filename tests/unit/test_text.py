"""The text of the IR: prints, parses to the same IR, prints the same; errors have a place."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from lark import Lark
from properties.checks import Seeded
from properties.programs import generate
from support import structure

import gshard_ir as gs
from gshard_ir.errors import GShardError
from gshard_ir.ir import Function, Module, Op, Region, Value
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.pipeline import compile_module
from gshard_ir.sharding import DimSharding, Layout, Sharding
from gshard_ir.source import SourceFile, Span
from gshard_ir.text import attr_text, parse_module, print_module
from gshard_ir.text_reader import grammar
from gshard_ir.types import BOOL, F32, KEY, ShardedType, TensorType
from gshard_ir.verify import verify

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.gshard"))

EVERYTHING = """\
module @moe mesh(data=2, expert:(1)2=2, expert:(2)2=2, one=1)

def @moe(%x: f32[8@data,64] loc("moe.g":1:9-1:10), "p.w" %0: f32[64,8]!{}, %k: key, %ks: key[4], \
%q: bf16[8@(data,expert:(2)2)?!1,4@_]+max{expert}!{data}) -> ("gates": f32[8,8@_], "1": f32[]) loc("a b.g":1:2-3:4) {
  %gates = einsum(%x, %0) {spec="GM,ME->GE"} : f32[8,8] loc("s/m.g":9:5-9:40 in @f from "x":1:1-1:1 in @"g[E=8]" \
from "m":2:2-2:2)
  %gates#1 = foo(%gates) {a=(1,), b=(), c=(1, -0.0, (True, None)), d=inf, e=-inf, f=nan, h=f32, \
i=sharding[_@data,_@_]!{one}, j=layout[_@data,_]+max{expert:(1)2}, k=1e-05, l=True, m="a\\"b\\n\\u00e9"} : f32[8,8]
  %1 loc("y":1:1-1:2), %s = while(%gates#1) : f32[], i32[] do (%i: f32[], %j: i32[] loc("z":1:1-1:1)) {
    %2 = exp(%i) : f32[]
    yield %2, %j
  } do () {
    yield
  } loc("x":1:1-1:1)
  return %gates#1, %1
}

def @"softmax[8, 64]"() -> () {
  nothing() : ()
  return
}
"""

LOCAL = """\
module @f local mesh(a=2, b:(1)2=2, b:(2)3=3)

def @f(%x: f32[8@a,7@(b:(1)2,b:(2)3)] as [8@a?,7], %k: key) -> ("y": f32[8,7@b:(1)2]+{a}+max{b:(2)3} holding [8,3] \
as [8@_,7], "z": local i32[]) {
  %y = all_gather(%x) {axes=("a",), dim=0} : f32[8,7@b:(1)2]+{a}+max{b:(2)3} holding [8,3]
  %i = axis_index() {axes=("a",)} : local i32[]
  return %y, %i
}
"""


def test_grammar_has_no_hidden_conflicts() -> None:
    assert Lark(grammar(), parser="lalr", strict=True)


@pytest.mark.parametrize("text", [EVERYTHING, LOCAL], ids=["global", "local"])
def test_text_to_text(text: str) -> None:
    module = parse_module(text)
    assert print_module(module) == text
    assert structure(parse_module(print_module(module))) == structure(module)


def test_what_was_read() -> None:
    module = parse_module(EVERYTHING)
    f = module.main
    assert module.mesh.parents == (AxisRef("data"), AxisRef("expert", 1, 2), AxisRef("expert", 2, 2), AxisRef("one"))
    assert f.param_names == ("x", "p.w", "k", "ks", "q")
    assert [p.type for p in f.params[1:4]] == [TensorType(F32, (64, 8)), TensorType(KEY, ()), TensorType(KEY, (4,))]
    assert f.param_shardings[1] == Sharding((DimSharding(), DimSharding()))
    assert f.param_shardings[2] is None
    first = DimSharding((AxisRef("data"), AxisRef("expert", 2, 2)), True, 1)
    assert f.param_shardings[4] == Sharding(
        (first, DimSharding((), False)), (AxisRef("data"),), (("max", (AxisRef("expert"),)),)
    )
    gates, again, loop = f.body.ops
    assert gates.result.hint == again.result.hint == "gates" and loop.results[0].hint == ""
    assert gates.span is not None
    assert [(s.line, s.callee) for s in gates.span.stack()] == [(9, "f"), (1, "g[E=8]"), (2, None)]
    zero = again.attrs["c"]
    assert isinstance(zero, tuple) and zero[0] == 1 and isinstance(zero[0], int)
    assert math.copysign(1, zero[1]) == -1 and zero[2] == (True, None)  # type: ignore[arg-type]
    assert again.attrs["j"] == Layout((("data",), ()), (("max", ("expert:(1)2",)),))
    assert again.attrs["m"] == 'a"b\né'
    assert again.operands == (gates.result,)
    assert len(loop.regions) == 2 and loop.regions[0].results[1] is loop.regions[0].params[1]


def test_local_shapes_follow_from_layouts() -> None:
    module = parse_module("module @f local mesh(a=2,b=3)\ndef @f(%x: f32[7@a,5@b]) -> () { return }")
    (x,) = module.main.params
    assert x.type == ShardedType(F32, (4, 2), (7, 5), Layout((("a",), ("b",))))


def survives(module: Module) -> None:
    """Assert that a module is the same after being written and read."""
    text = print_module(module)
    read = parse_module(text)
    verify(read)
    assert print_module(read) == text
    assert structure(read) == structure(module)


def test_random_programs_at_every_stage() -> None:
    for seed in range(60):
        compiled = compile_module(generate(Seeded(seed)).module, search=False)
        for module in (compiled.lowered, compiled.prepared, compiled.partitioned.module):
            survives(module)


@pytest.mark.parametrize("path", EXAMPLES, ids=[p.stem for p in EXAMPLES])
def test_examples_at_every_stage(path: Path) -> None:
    compiled = gs.compile(path).compiled
    for module in (compiled.lowered, compiled.prepared, compiled.partitioned.module):
        survives(module)


def test_locations_are_optional() -> None:
    text = print_module(parse_module(EVERYTHING), locations=False)
    assert "loc(" not in text
    assert print_module(parse_module(text)) == text


def test_names_are_unique_and_readable() -> None:
    span = Span(SourceFile("f", ""), 1, 1, 1, 1)
    t = TensorType(F32, ())
    a, b, c, d, e = (Value(t, hint, span) for hint in ("h", "h", "", "odd name!", "7"))
    ops = tuple(Op("neg", (x,), (y,)) for x, y in ((a, b), (b, c), (c, d), (d, e)))
    f = Function("f", Region((a,), ops, (e,)), ("h",), ("y",), (None,), (None,))
    text = print_module(Module(Mesh(("a",), (2,)), {"f": f}, "f"), locations=False)
    assert [line.split(" =")[0].strip() for line in text.split("\n") if " = " in line] == [
        "%h#1", "%0", "%odd_name_", "%_7"
    ]  # fmt: skip
    assert print_module(parse_module(text)) == text


def test_attributes_that_differ_are_written_differently() -> None:
    values = [1, True, 1.0, "1", 0.0, -0.0, None, "None", (), (1,), ((1,),), (1, 1), F32, BOOL, "f32", math.inf,
              Layout(((),)), Sharding((DimSharding(),)), Sharding((DimSharding((), False),))]  # fmt: skip
    assert len({attr_text(v) for v in values}) == len(values)


HEAD = "module @f mesh(a=2)\ndef @f(%x: f32[4]) -> ("
BODY = ") {\n  %y = neg(%x) : f32[4]\n  return %y\n}"
MISTAKES = [
    ("", 1, 1, 'expected "module"'),
    ("module @f mesh(a=2)", 1, 8, "there is no function @f"),
    (HEAD + '"y": f32[4]' + BODY[:-1], 4, 12, "the end of the text is not expected here"),
    (HEAD + '"y": f32[4]' + BODY.replace("neg(%x)", "neg(%z)"), 3, 12, "%z is not defined before this use"),
    (HEAD + '"y": f32[4]' + BODY.replace("%y =", "%x ="), 3, 3, "%x is defined twice"),
    (HEAD + '"y": f32[4]' + BODY.replace(": f32[4]", ": f31[4]"), 3, 18, "there is no element type f31"),
    (HEAD + '"y": f32[4]' + BODY.replace(": f32[4]", ": f32[4@a]"), 3, 21, "no ShardedType says how it is sharded"),
    (HEAD + '"y": f32[4]' + BODY.replace(": f32[4]", ": f32[4], i32[]"), 3, 8, "neg has 1 results and 2 types"),
    (HEAD + '"y": f32[4]' + BODY.replace("neg(%x)", "neg(%x) {k=maybe}"), 3, 19, "maybe is no attribute value"),
    (HEAD + '"y": f32[5]' + BODY, 4, 10, "the signature says f32[5]"),
    (HEAD + BODY, 4, 10, "the signature has 0"),
    (HEAD + '"y": f32[4]+mean{a}' + BODY, 2, 36, "there is no reduction mean"),
    (HEAD + '"y": f32[4 4]' + BODY, 2, 35, 'expected "@", ",", "?", round, "]"'),
    ("module @f local mesh(a=2)\ndef @f(%x: f32[4@b]) -> () { return }", 2, 15, "the mesh has no axis b"),
    (HEAD + '"y": f32[4]' + BODY + "\ndef @f() -> () { return }", 6, 5, "@f is defined twice"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "fragment"), MISTAKES)
def test_mistakes_have_a_place(text: str, line: int, column: int, fragment: str) -> None:
    with pytest.raises(GShardError) as caught:
        parse_module(text, "bad.ir")
    (diagnostic,) = caught.value.diagnostics
    shown = diagnostic.render()
    assert diagnostic.span is not None
    assert (diagnostic.span.line, diagnostic.span.column) == (line, column), shown
    assert fragment in shown
    assert shown.startswith(f"bad.ir:{line}:{column}: error: IR text: ")
