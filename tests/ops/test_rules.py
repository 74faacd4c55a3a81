"""Every example's rule holds by brute force, and the brute force sees planted mistakes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gshard_ir.ops  # noqa: F401  (fills the registry)
from gshard_ir.factors import Rule, rule
from gshard_ir.opdef import REGISTRY, OpDef
from gshard_ir.types import F32, I8, I32, TensorType
from gshard_ir.validate import types_of, validate, validate_examples

LINEAR = frozenset


def test_every_rule_of_every_example_holds():
    assert [str(f) for f in validate_examples()] == []


SHAPES = [
    ("reshape", "f32[6,4]", {"shape": (4, 6)}),
    ("reshape", "f32[8,3,4]", {"shape": (2, 4, 12)}),
    ("reshape", "f32[12,2,7]", {"shape": (8, 3, 7)}),
    ("reshape", "f32[1,6,1]", {"shape": (6,)}),
    ("reshape", "f32[6,4,5,2]", {"shape": (4, 6, 10)}),
    ("reshape", "i32[7]", {"shape": (1, 7, 1)}),
    ("reshape", "f32[0,4]", {"shape": (4, 0)}),
    ("reshape", "f32[]", {"shape": (1, 1)}),
    ("slice", "f32[7,5]", {"starts": (0, 2), "limits": (7, 4), "strides": (1, 2)}),
    ("pad", "f32[5,3]", {"low": (0, 0), "high": (2, 0), "value": -1.0}),
    ("reverse", "f32[7,3]", {"axes": (0, 1)}),
    ("cumsum", "f32[7]", {"axis": 0, "reverse": True, "exclusive": False}),
    ("cumprod", "i8[7,2]", {"axis": 0, "reverse": False, "exclusive": True}),
    ("cummin", "f32[1,5]", {"axis": 0, "reverse": False, "exclusive": True}),
    ("cummax", "f32[1,5]", {"axis": 0, "reverse": False, "exclusive": False}),
    ("cumlogsumexp", "f32[7,2]", {"axis": 0, "reverse": True, "exclusive": True}),
    ("cumsum", "f32[0,4]", {"axis": 0, "reverse": True, "exclusive": True}),
    ("argmin", "f32[3,7]", {"axis": 1}),
    ("reduce_max", "i8[7,2]", {"axes": (0,)}),
    ("reduce_sum", "bf16[7,2]", {"axes": (0, 1)}),
    ("reduce_prod", "f32[7]", {"axes": ()}),
    ("reduce_max", "i32[7,1]", {"axes": (1,)}),
    ("broadcast", "f32[7]", {"shape": (7, 5), "dims": (0,)}),
    ("broadcast", "f32[1]", {"shape": (1, 5), "dims": (0,)}),
]


@pytest.mark.parametrize(("name", "text", "attrs"), SHAPES, ids=str)
def test_rules_hold_on_uneven_empty_and_awkward_shapes(name, text, attrs):
    assert [str(f) for f in validate(REGISTRY[name], types_of([text]), attrs, shards=(2, 3, 4, 5))] == []


PAIRS = ["f32", "bf16", "f64", "i8", "i32", "u8", "u32"]


@pytest.mark.parametrize("source", PAIRS)
@pytest.mark.parametrize("target", ["f32", "bf16", "f16", "i8", "i32", "u32"])
def test_casts_are_linear_exactly_where_declared(source, target):
    dtype = types_of([f"{target}[]"])[0].dtype
    assert [str(f) for f in validate(REGISTRY["cast"], types_of([f"{source}[9]"]), {"dtype": dtype})] == []


def planted(name: str, made: Rule) -> OpDef:
    return replace(REGISTRY[name], rule=lambda types, attrs: made)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


SOFTMAX = OpDef(
    "softmax",
    ("x",),
    infer=lambda types, attrs: types,
    reference=lambda x: softmax(np.nan_to_num(x, nan=0, posinf=9, neginf=-9)),
    rule=lambda types, attrs: rule("b n -> b n", {"b": 4, "n": 6}),
)
RELU = OpDef(
    "relu",
    ("x",),
    infer=lambda types, attrs: types,
    reference=lambda x: np.maximum(x, np.zeros_like(x)),
    rule=lambda types, attrs: rule("b n -> b n", {"b": 4, "n": 6}, linear=[{0}]),
)
S = {"a": 4, "b": 6, "c": 5}
SUM, MAX = ("reduce", "sum"), ("reduce", "max")
SLICE = {"starts": (0, 1), "limits": (4, 5), "strides": (1, 1)}
SLICE_RULE = rule("a o -> a r", {"a": 4, "o": 6, "r": 4}, linear=[{0}])
MISTAKES = {
    "softmax passes along its own axis": (SOFTMAX, ["f32[4,6]"], {}, "wrong", "n is marked pass"),
    "relu is linear": (RELU, ["f32[4,6]"], {}, "wrong", "linear in operand 1"),
    "add is linear in one operand": (
        planted("add", rule("a b, a b -> a b", S, linear=[{0}, {1}])), ["f32[4,6]"] * 2, {}, "wrong", "operand 1"),
    "mul is linear in both at once": (
        planted("mul", rule("a b, a b -> a b", S, linear=[{0, 1}])), ["f32[4,6]"] * 2, {}, "wrong", "operands 1, 2"),
    "div is linear in the divisor": (
        planted("div", rule("a b, a b -> a b", S, linear=[{1}])), ["f32[4,6]"] * 2, {}, "wrong", "operand 2"),
    "select is linear in one case": (
        planted("select", rule("a, a, a -> a", S, linear=[{1}])),
        ["bool[4]", "f32[4]", "f32[4]"], {}, "wrong", "operand 2"),
    "max declared sum": (
        planted("reduce_max", rule("a b -> a", S, marks={"b": SUM})), ["f32[4,6]"], {"axes": (1,)}, "wrong", "b is"),
    "sum declared max": (
        planted("reduce_sum", rule("a b -> a", S, marks={"b": MAX}, linear=[{0}])),
        ["i32[4,6]"], {"axes": (1,)}, "wrong", "b is marked reduce max"),
    "or declared min": (
        planted("reduce_or", rule("a b -> a", S, marks={"b": ("reduce", "min")})),
        ["bool[4,6]"], {"axes": (1,)}, "wrong", "b is"),
    "argmax passes its local index": (
        planted("argmax", rule("a b -> a", S)), ["f32[4,6]"], {"axis": 1}, "wrong", "b is marked pass"),
    "argmax takes the largest index": (
        planted("argmax", rule("a b -> a", S, marks={"b": MAX})), ["f32[4,6]"], {"axis": 1}, "wrong", "b is"),
    "cumsum passes": (
        planted("cumsum", rule("a b -> a b", S, linear=[{0}])),
        ["f32[4,6]"], {"axis": 1, "reverse": False, "exclusive": False}, "wrong", "b is marked pass"),
    "cumsum along the other dim": (
        planted("cumsum", rule("a b -> a b", S, marks={"a": ("scan", "sum")}, linear=[{0}])),
        ["f32[4,6]"], {"axis": 1, "reverse": False, "exclusive": False}, "wrong", "a is marked scan"),
    "products are scanned as sums": (
        planted("cumprod", rule("a b -> a b", S, marks={"b": ("scan", "sum")})),
        ["f32[4,6]"], {"axis": 1, "reverse": False, "exclusive": False}, "wrong", "b is marked scan sum"),
    "an exclusive maximum starts from 0": (
        planted("cummax", rule("a b -> a b", S, marks={"b": ("scan", "sum")})),
        ["i32[4,6]"], {"axis": 1, "reverse": True, "exclusive": True}, "wrong", "b is marked scan sum"),
    "slice passes a changed dim": (
        planted("slice", replace(SLICE_RULE, results=(((0,), (1,)),))),
        ["f32[4,6]"], SLICE, "malformed", "result 0"),
    "slice passes a dim of equal size": (
        planted("slice", rule("a -> a", {"a": 3}, linear=[{0}])),
        ["f32[3]"], {"starts": (1,), "limits": (3,), "strides": (1,)}, "malformed", "result 0"),
    "slice makes its result on shards": (
        planted("slice", SLICE_RULE), ["f32[4,6]"], SLICE, "wrong", "o is marked pass"),
    "einsum passes a contracted letter": (
        planted("einsum", rule("a b, b c -> a c", S, linear=[{0}, {1}])),
        ["f32[4,6]", "f32[6,5]"], {"spec": "ab,bc->ac"}, "wrong", "b is marked pass"),
    "einsum sums a letter that stays": (
        planted("einsum", rule("a b, b c -> a c", S, marks={"b": SUM, "a": SUM}, linear=[{0}, {1}])),
        ["f32[4,6]", "f32[6,5]"], {"spec": "ab,bc->ac"}, "malformed", "a is marked reduce"),
    "take passes the dim it looks up": (
        planted("take", rule("a c, b -> b c", S, linear=[{0}])),
        ["f32[4,5]", "i32[6]"], {"axis": 0}, "wrong", "a is marked pass"),
    "integer take is linear": (
        planted("take", rule("a, b -> b", S, marks={"a": ("lookup", "sum")}, linear=[{0}])),
        ["i32[4]", "i32[6]"], {"axis": 0}, "wrong", "linear in operand 1"),
    "boolean look-ups are summed": (
        planted("take", rule("a, b -> b", S, marks={"a": ("lookup", "min")})),
        ["bool[4]", "i32[6]"], {"axis": 0}, "wrong", "lookup min"),
    "reverse passes": (
        planted("reverse", rule("b -> b", S, linear=[{0}])), ["f32[6]"], {"axes": (0,)}, "wrong", "b is marked pass"),
    "transpose swaps names": (
        planted("transpose", rule("a b -> a b", {"a": 4, "b": 4}, linear=[{0}])),
        ["f32[4,4]"], {"perm": (1, 0)}, "wrong", "a is marked pass"),
    "reshape splits the minor factor as major": (
        planted("reshape", rule("(a b) -> b a", {"a": 4, "b": 4}, linear=[{0}])),
        ["f32[16]"], {"shape": (4, 4)}, "wrong", "a is marked pass"),
    "pad with one is linear": (
        planted("pad", rule("o -> r", {"o": 5, "r": 6}, marks={"o": "gather", "r": "gather"}, linear=[{0}])),
        ["f32[5]"], {"low": (1,), "high": (0,), "value": 1.0}, "wrong", "linear in operand 1"),
    "narrowing floats is linear": (
        planted("cast", rule("c -> c", S, linear=[{0}])), ["f32[5]"], {"dtype": I32}, "wrong", "linear in operand 1"),
    "widening integers is linear": (
        planted("cast", rule("c -> c", S, linear=[{0}])), ["i8[5]"], {"dtype": I32}, "wrong", "linear in operand 1"),
    "floor is linear": (
        planted("floor", rule("c -> c", S, linear=[{0}])), ["bf16[5]"], {}, "wrong", "linear in operand 1"),
    "local shape forgotten": (
        replace(REGISTRY["broadcast"], localize=None),
        ["f32[4]"], {"shape": (3, 4), "dims": (1,)}, "wrong", "on 2 shards"),
    "wrong size": (planted("neg", rule("a -> a", {"a": 5}, linear=[{0}])), ["f32[4]"], {}, "malformed", "operand 0"),
    "wrong element type": (
        replace(REGISTRY["eq"], infer=lambda types, attrs: (types[0],)), ["f32[4]"] * 2, {},
        "malformed", "computed bool"),
    "add forgets to be linear": (
        planted("add", rule("a b, a b -> a b", S)), ["f32[4,6]"] * 2, {}, "missing", "operands 1, 2"),
    "einsum forgets one operand": (
        planted("einsum", rule("a b, b c -> a c", S, marks={"b": SUM}, linear=[{0}])),
        ["f32[4,6]", "f32[6,5]"], {"spec": "ab,bc->ac"}, "missing", "operand 2"),
    "integer neg forgets to be linear": (
        planted("neg", rule("a -> a", S)), ["i8[4]"], {}, "missing", "operand 1"),
    "exp gathers": (
        planted("exp", rule("a b -> a b", S, marks={"b": "gather"})), ["f32[4,6]"], {}, "missing", "pass holds"),
    "reshape gathers what it could share": (
        planted("reshape", rule("a c -> x c", {**S, "x": 4}, marks={"a": "gather", "x": "gather"}, linear=[{0}])),
        ["f32[4,5]"], {"shape": (4, 5)}, "missing", "shared as in"),
    "sum gathers": (
        planted("reduce_sum", rule("a b -> a", S, marks={"b": "gather"}, linear=[{0}])),
        ["f32[4,6]"], {"axes": (1,)}, "missing", "reduce sum holds"),
    "broadcast repeats on every device": (
        planted("broadcast", rule("a -> b a", S, marks={"b": "gather"}, linear=[{0}])),
        ["f32[4]"], {"shape": (6, 4), "dims": (1,)}, "missing", "pass holds"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake):
    op, texts, attrs, kind, fragment = MISTAKES[mistake]
    found = validate(op, types_of(texts), attrs)
    assert any(f.kind == kind and fragment in f.message for f in found), [str(f) for f in found]


def test_a_finding_is_one_readable_paragraph():
    op, texts, attrs, *_ = MISTAKES["cumsum passes"]
    (finding,) = validate(op, types_of(texts), attrs)
    first, second, third = str(finding).splitlines()
    assert first == "wrong: cumsum f32[4,6] {axis=1, reverse=False, exclusive=False}"
    assert second == "   rule a b -> a b"
    assert third.startswith("   b is marked pass, but on 2 shards result 0 put together differs at [")
    assert "expected" in third and "found" in third


def test_types_are_read_from_text_and_others_refused():
    assert types_of(["f32[4,6]", "i8[]"]) == (TensorType(F32, (4, 6)), TensorType(I8, ()))
    with pytest.raises(ValueError, match="'f33"):
        types_of(["f33[4]"])
