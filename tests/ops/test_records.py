"""The registry is what the page of decisions says, and bad applications are refused with numbers and an edit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import gshard_ir.ops  # noqa: F401  (fills the registry)
from gshard_ir.errors import InternalError
from gshard_ir.opdef import REGISTRY, OpError, define, infer, opdef, rule_of
from gshard_ir.sharding import DimSharding, Layout, Sharding, sharded
from gshard_ir.types import BOOL, F32, I8, I32, KEY, TensorType
from gshard_ir.validate import types_of

DESIGN = Path(__file__).parents[2] / "docs" / "design.md"
FAMILIES = {
    "elementwise", "movement", "broadcast", "contraction", "reduction", "lookup", "source", "annotation",
    "collective", "local", "control",
}  # fmt: skip


def documented() -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Read op -> (operands, attributes) off the page."""
    found = {}
    text = DESIGN.read_text()
    for names, operands, attrs in re.findall(r"^\| ([a-z][\w ]*) \| ([\w* ]*?) ?\| ([\w ]*?) ?\|", text, re.M):
        if names != "op":
            for name in names.split():
                found[name] = (tuple(operands.split()), tuple(attrs.split()))
    for name, attrs in re.findall(r"`(\w+)\{([\w ]+)\}`", text):
        operands = {"axis_index": (), "uniform_shard": ("key", "offsets*")}.get(name, ("x",))
        found[name] = (operands, tuple(attrs.split()))
    return found


def test_the_registry_is_the_documented_table():
    table = documented()
    assert len(table) > 70
    assert {n: (op.operands, op.attrs) for n, op in REGISTRY.items()} == table


@pytest.mark.parametrize("name", list(REGISTRY))
def test_every_record_is_complete_and_its_examples_infer(name):
    op = REGISTRY[name]
    assert op.doc and op.examples and op.family in FAMILIES
    assert (op.rule is None) == (op.family in ("collective", "local", "control"))
    for texts, attrs in op.examples:
        types = types_of(texts)
        assert infer(name, types, attrs) == op.infer(types, attrs)
        if op.rule:
            assert rule_of(name, types, attrs).iteration_space >= 1


def test_local_types_infer_plain_types(mesh_of):
    local = sharded(TensorType(F32, (7, 4)), Layout((("a",), ())), mesh_of(a=2))
    for name, attrs in (
        ("neg", {}),
        ("all_reduce", {"kind": "sum", "axes": ("a",)}),
        ("cumsum", {"axis": 1, "reverse": False, "exclusive": False}),
    ):
        assert infer(name, [local], attrs) == (TensorType(F32, (4, 4)),)


SHARDING = Sharding((DimSharding(),))
REFUSED = [
    ("add", ["f32[4,6]", "f32[6]"], {}, 1, r"one shape", r"operand 2 to \[4,6\]"),
    ("add", ["f32[6]", "f32[4,6]"], {}, 1, r"one shape", r"operand 1 to \[4,6\]"),
    ("add", ["f32[4]", "i32[4]"], {}, 1, r"one element type", r"cast operand 2 to f32"),
    ("add", ["f32[4]"], {}, None, r"takes 2 operands, found 1", None),
    ("add", ["bool[4]", "bool[4]"], {}, 0, r"float or integer operands, operand 1 is bool\[4\]", r"cast"),
    ("add", ["key", "key"], {}, 0, r"operand 1 is key", None),
    ("div", ["i32[4]", "i32[4]"], {}, 0, r"float operands, operand 1 is i32\[4\]", r"cast operand 1 to f32"),
    ("exp", ["i32[4]"], {}, 0, r"float operands", r"cast"),
    ("not", ["f32[4]"], {}, 0, r"bool or integer", r"cast"),
    ("select", ["f32[4]", "f32[4]", "f32[4]"], {}, 0, r"bool predicate", r"cast operand 1 to bool"),
    ("select", ["bool[4]", "f32[4]", "f32[5]"], {}, 2, r"one shape", r"\[5\]"),
    ("select", ["bool[4]", "f32[5]", "f32[5]"], {}, 0, r"shape of its cases", r"\[5\]"),
    ("cast", ["f32[4]"], {"dtype": KEY}, 0, r"random key", r"parameter"),
    ("einsum", ["f32[4,6]", "f32[5,3]"], {"spec": "ab,bc->ac"}, 1, r"dim b is 6 in operand 1 but 5 in operand 2", "6"),
    ("einsum", ["f32[4,6]", "f32[6]"], {"spec": "ab,bc->ac"}, 1, r"names 2 dims \(bc\) of operand 2, which has 1", "1"),
    ("einsum", ["f32[4,4]"], {"spec": "aa->a"}, 0, r"letter a stands twice in operand 1", "own"),
    ("einsum", ["f32[4]"], {"spec": "a->ab"}, None, r"letter b of the result is in no operand", r'"a->a"'),
    ("einsum", ["f32[4]"], {"spec": "a"}, None, r"one ->", "ab,bc->ac"),
    ("einsum", ["f32[4]"], {"spec": "...a->a"}, None, r"single letters", None),
    ("einsum", ["f32[4]", "i32[4]"], {"spec": "a,a->"}, 1, r"one element type", r"cast operand 2 to f32"),
    ("einsum", ["f32[4]"], {"spec": "a,b->ab"}, None, r"names 2 operands, found 1", None),
    ("reduce_sum", ["f32[4,6]"], {"axes": (2,)}, 0, r"along dim 2 of f32\[4,6\]: it has 2 dims", r"axes=1"),
    ("reduce_sum", ["f32[4,6]"], {"axes": (1, 1)}, 0, r"names a dim twice", r"axes=\[1\]"),
    ("reduce_sum", ["bool[4]"], {"axes": (0,)}, 0, r"float or integer", r"cast operand 1 to i32"),
    ("reduce_and", ["i32[4]"], {"axes": (0,)}, 0, r"takes bool operands", r"bool"),
    ("argmax", ["f32[4,0]"], {"axis": 1}, 0, r"it is empty", None),
    ("argmax", ["f32[4]"], {"axis": -1}, 0, r"along dim -1", r"axis=0"),
    ("cumsum", ["f32[4]"], {"axis": 0, "reverse": 1, "exclusive": False}, None, r"true or false, found 1", "reverse"),
    ("broadcast", ["f32[4]"], {"shape": (3, 5), "dims": (1,)}, 0, r"dim 0 is 4, dim 1 of the result \[3,5\] is 5", "4"),
    ("broadcast", ["f32[4,3]"], {"shape": (3, 4), "dims": (1, 0)}, 0, r"rising dims", r"dims=\[0,1\]"),
    ("reshape", ["f32[4,6]"], {"shape": (5, 5)}, 0, r"24 elements do not make 25", None),
    ("reshape", ["f32[4,6]"], {"shape": (3, 5)}, 0, r"24 elements do not make 15", r"shape=\[3,8\]"),
    ("reshape", ["f32[4]"], {"shape": (-4,)}, None, r"negative", r"shape=\[4\]"),
    ("transpose", ["f32[4,6]"], {"perm": (0, 0)}, 0, r"each of its 2 dims once", r"perm=\[1,0\]"),
    ("concat", ["f32[4,6]", "f32[5,6]"], {"axis": 1}, 1, r"other dims are equal", r"\[4,6\]"),
    ("concat", ["f32[4]", "i32[4]"], {"axis": 0}, 1, r"one element type", r"cast operand 2"),
    ("concat", [], {"axis": 0}, None, r"at least 1 operand", None),
    ("slice", ["f32[6]"], {"starts": (2,), "limits": (9,), "strides": (1,)}, 0, r"slice 2:9 of dim 0 .* 6 rows", "2:6"),
    ("slice", ["f32[6]"], {"starts": (0,), "limits": (6,), "strides": (0,)}, 0, r"stride 0", "reverse"),
    ("slice", ["f32[6]"], {"starts": (), "limits": (6,), "strides": (1,)}, 0, r"starts has 0 numbers for 1", None),
    ("pad", ["f32[6]"], {"low": (-1,), "high": (0,), "value": 0}, 0, r"not be negative", r"slice"),
    ("pad", ["i8[6]"], {"low": (1,), "high": (0,), "value": 200}, None, r"200 does not fit i8: -128 to 127", r"127"),
    ("take", ["f32[6]", "f32[2]"], {"axis": 0}, 1, r"integer index", r"cast operand 2 to i32"),
    ("take", ["f32[0]", "i32[2]"], {"axis": 0}, 0, r"empty", None),
    ("take", ["f32[4]", "i32[2]"], {"axis": 1}, 0, r"has 1 dims", r"axis=0"),
    ("constant", [], {"value": 1.5, "dtype": I32, "shape": ()}, None, r"i32 takes an integer, found 1.5", r"^1$"),
    ("constant", [], {"value": 3, "dtype": BOOL, "shape": ()}, None, r"true or false", "true"),
    ("constant", [], {"value": True, "dtype": F32, "shape": ()}, None, r"takes a number, found True", "0"),
    ("iota", [], {"dtype": BOOL, "shape": (3,), "axis": 0}, None, r"floats or integers, found bool", "i32"),
    ("iota", [], {"dtype": I8, "shape": (3,), "axis": 1}, None, r"along dim 1", r"axis=0"),
    ("uniform", ["f32[2]"], {"shape": (3,)}, 0, r"must be a key, found f32\[2\]", None),
    ("fold_in", ["key", "f32[]"], {}, 1, r"i32 or u32 scalar", None),
    ("uniform_shard", ["key"], {"shape": (2,), "whole": (4,)}, None, r"takes 1 offsets, found 0", None),
    ("annotate", ["f32[4,6]"], {"sharding": SHARDING, "how": ""}, 0, r"1 dims on f32\[4,6\], which has 2", "2 dims"),
    ("like", ["f32[4,6]", "f32[4]"], {}, 1, r"one shape", r"same shape"),
    ("barrier", ["f32[4]"], {"direction": "up"}, None, r"forward, backward or both, found 'up'", "both"),
    ("all_reduce", ["f32[4]"], {"kind": "mean", "axes": ("a",)}, None, r"reduces by sum, max, min, prod", "sum"),
    ("all_reduce", ["bool[4]"], {"kind": "sum", "axes": ("a",)}, 0, r"not defined", None),
    ("all_gather", ["f32[4]"], {"axes": ("a", "a"), "dim": 0}, None, r"each one once", None),
    ("all_gather", ["f32[4]"], {"axes": ("a",), "dim": 1}, 0, r"along dim 1", r"dim=0"),
    ("permute", ["f32[4]"], {"source": Layout(()), "target": Layout(())}, 0, r"layout of 1 dims", None),
    ("mask_leader", ["bool[4]"], {"axes": ("a",)}, 0, r"float or integer", "cast"),
    ("call", [], {"callee": 3}, None, r"name of a function", None),
    ("neg", ["f32[4]"], {"axis": 0}, None, r"neg has attributes \[\], found \['axis'\]", None),
]


@pytest.mark.parametrize(("name", "texts", "attrs", "operand", "message", "suggestion"), REFUSED)
def test_bad_applications_are_refused(name, texts, attrs, operand, message, suggestion):
    with pytest.raises(OpError) as caught:
        infer(name, types_of(texts), attrs)
    error = caught.value
    assert re.search(message, error.message), error.message
    assert error.operand == operand
    if suggestion is None:
        assert error.suggestion is None or "\n" not in error.suggestion
    else:
        assert error.suggestion and re.search(suggestion, error.suggestion), error.suggestion


MANGLED = [3, -1, 1.5, "x", None, True, (), (0,), (-1,), ("x",), (1.5,), (99,), F32]


def outcome(name, types, attrs):
    try:
        return infer(name, types, attrs)
    except OpError as error:
        return error


@pytest.mark.parametrize("name", list(REGISTRY))
def test_mangled_attributes_and_operands_raise_op_errors_only(name):
    """Whatever stands in an attribute or operand: an answer or an OpError, never another exception."""
    odd = types_of(["f32[]", "i32[0]", "bool[2,3]", "key", "bf16[1,1,1]"])
    for texts, attrs in REGISTRY[name].examples:
        types = types_of(texts)
        tried = [({**attrs, key: value}, types) for key in attrs for value in MANGLED]
        tried += [(attrs, (*types[:i], other, *types[i + 1 :])) for i in range(len(types)) for other in odd]
        for changed, operands in tried:
            answer = outcome(name, operands, changed)
            if isinstance(answer, OpError):
                assert answer.message and (answer.operand is None or answer.operand < len(operands))
                continue
            assert all(isinstance(t, TensorType) for t in answer)
            if REGISTRY[name].rule:
                rule_of(name, operands, changed)


def test_collectives_have_no_meaning_on_one_device():
    for op in REGISTRY.values():
        if op.family == "collective":
            with pytest.raises(InternalError, match="simulator"):
                op.reference(np.zeros((4, 6), np.float32), **op.examples[0][1])


def test_an_op_is_defined_once():
    with pytest.raises(ValueError, match="defined twice"):
        define(opdef("add"))


@pytest.mark.parametrize(
    ("attrs", "operand", "result", "limits"),
    [
        ({"starts": (0, 1), "limits": (8, 3), "strides": (1, 1)}, (4, 5), (4, 2), (4, 3)),
        ({"starts": (0, 0), "limits": (3, 5), "strides": (1, 1)}, (8, 3), (3, 3), (3, 3)),
    ],
)
def test_slices_of_shards_keep_whole_dims_whole(attrs, operand, result, limits):
    local = opdef("slice").localize(attrs, (TensorType(F32, operand),), (TensorType(F32, result),))
    assert local == {**attrs, "limits": limits}
    assert opdef("slice").infer((TensorType(F32, operand),), local) == (TensorType(F32, result),)
