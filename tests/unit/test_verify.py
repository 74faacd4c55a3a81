"""The verifier finds planted faults, and shows where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from properties.checks import Seeded
from properties.programs import generate

from gshard_ir.errors import InternalError
from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.pipeline import compile_module
from gshard_ir.pipeline_base import rename
from gshard_ir.sharding import Layout, sharded
from gshard_ir.text import parse_module
from gshard_ir.types import F32, ShardedType, TensorType
from gshard_ir.verify import verify
from gshard_ir.verify_layout import MOVES

GLOBAL = """\
module @main mesh(a=2, b=4)

def @twice(%x: f32[8,6]) -> ("0": f32[8,6]) {
  %y = add(%x, %x) : f32[8,6]
  return %y
}

def @main(%x: f32[8@a,6], %w: f32[6,4]) -> ("y": f32[8,4@b]) {
  %d = call(%x) {callee="twice"} : f32[8,6]
  %s = annotate(%d) {how="split(d, 0, b)", sharding=sharding[_@b,_]} : f32[8,6]
  %p = einsum(%s, %w) {spec="ij,jk->ik"} : f32[8,4]
  %y = exp(%p) : f32[8,4]
  return %y
}
"""

LOCAL = """\
module @main local mesh(a=2, b=4, c=2, one=1)

def @main(%x: f32[8@a,16] as [8@a,16], %w: f32[16@b,6], %u: f32[8@c,6]) -> ("y": f32[8@a,6], "z": f32[8@b,6]) {
  %k = shard_slice(%x) {axes=("b",), dim=1} : f32[8@a,16@b]
  %p = einsum(%k, %w) {spec="ik,kj->ij"} : f32[8@a,6]+{b}
  %n = neg(%p) : f32[8@a,6]+{b}
  %s = reduce_scatter(%n) {axes=("b",), dim=0, kind="sum"} : f32[8@(a,b),6]
  %t = all_to_all(%s) {axes=("b",), concat_dim=0, split_dim=1} : f32[8@a,6@b]
  %e = exp(%t) : f32[8@a,6@b]
  %m = mask_padding(%e) {axes=("b",), dim=1, size=6, value=-inf} : f32[8@a,6@b]
  %r = reduce_max(%m) {axes=(1,)} : f32[8@a]+max{b}
  %h = all_reduce(%r) {axes=("b",), kind="max"} : f32[8@a]
  %g = all_gather(%e) {axes=("b",), dim=1} : f32[8@a,6]
  %b = broadcast(%h) {dims=(0,), shape=(4, 6)} : f32[8@a,6]
  %y = sub(%g, %b) : f32[8@a,6]
  %q = all_gather(%n) {axes=("a",), dim=0} : f32[8,6]+{b}
  %z = reduce_scatter(%q) {axes=("b",), dim=0, kind="sum"} : f32[8@b,6]
  return %y, %z
}
"""

GLOBAL_FAULTS = {
    "unknown op": ("exp(%p)", "expo(%p)", "there is no op expo"),
    "wrong result type": ("exp(%p) : f32[8,4]\n  return %y", "exp(%p) : f32[8,5]\n  return %p", "found (f32[8,5])"),
    "wrong operand types": ('"ij,jk->ik"} : f32[8,4]', '"ij,kj->ik"} : f32[8,4]', "einsum"),
    "operand count": ("exp(%p)", "exp(%p, %p)", "exp takes 1 operands, found 2"),
    "missing attribute": (", sharding=sharding[_@b,_]}", "}", "annotate has attributes ['how', 'sharding']"),
    "unknown callee": ('callee="twice"', 'callee="thrice"', "no function @thrice"),
    "call signature": ("call(%x)", "call(%w)", "@twice takes (f32[8,6]), found (f32[6,4])"),
    "call results": ('{callee="twice"} : f32[8,6]', '{callee="twice"} : f32[8,7]', "call has result types (f32[8,6])"),
    "regions": ("exp(%p) : f32[8,4]", "exp(%p) : f32[8,4] do () { yield }", "exp has 0 regions, found 1"),
    "unknown axis": ("sharding[_@b,_]", "sharding[_@c,_]", "the mesh has no axis c"),
    "axis used twice": ("sharding[_@b,_]", "sharding[_@b,_@b]", "an axis is used twice"),
    "axis of a parameter": ("f32[8@a,6]", "f32[8@c,6]", "parameter x: the mesh has no axis c"),
    "collective": ("exp(%p)", 'all_reduce(%p) {axes=("a",), kind="sum"}', "no place in a global program"),
    "names": ("%w: f32[6,4]", '"x" %w: f32[6,4]', "parameter names ('x', 'x') are not distinct"),
}

LOCAL_FAULTS = {
    "gather of a major axis": ('all_to_all(%s) {axes=("b",)', 'all_to_all(%s) {axes=("a",)', "the minor axes of dim 0"),
    "gather of another dim": (
        'all_gather(%e) {axes=("b",), dim=1}',
        'all_gather(%e) {axes=("b",), dim=0}',
        "minor axes",
    ),
    "result keeps the axis": ("dim=1} : f32[8@a,6]\n", "dim=1} : f32[8@a,6@b]\n", "into [8@a,6], the result says"),
    "wrong reduction": ('{axes=("b",), kind="max"}', '{axes=("b",), kind="sum"}', "owes no sum over b"),
    "reduction of nothing owed": ('all_reduce(%r) {axes=("b",)', 'all_reduce(%r) {axes=("a",)', "owes no max over a"),
    "forgotten pending sum": ("f32[8@a,6]+{b}\n  %n", "f32[8@a,6]\n  %n", "the result is [8@a,6]+{b}"),
    "sum through exp": ("neg(%p)", "exp(%p)", "exp is not linear in operand 0, which owes a sum over b"),
    "sum of one summand": ("sub(%g, %b)", "mul(%p, %b)", "the result is [8@a,6]+{b}"),
    "slice over a used axis": ('shard_slice(%x) {axes=("b",)', 'shard_slice(%x) {axes=("a",)', "a, which is in use"),
    "slice of another dim": ('("b",), dim=1} : f32[8@a,16@b]', '("b",), dim=0} : f32[8@a,16@b]', "into [8@(a,b),16]"),
    "scatter into another dim": ('dim=0, kind="sum"} : f32[8@(a,b)', 'dim=1, kind="sum"} : f32[8@(a,b)', "[8@a,6@b]"),
    "swapped axes": ("f32[8@(a,b),6]", "f32[8@(b,a),6]", "into [8@(a,b),6]"),
    "operands split differently": (
        "sub(%g, %b)",
        "sub(%g, %u)",
        "operand 1 is f32[8@c,6], the other tensors ask for [8@a,6]",
    ),
    "result split differently": ("exp(%t) : f32[8@a,6@b]", "exp(%t) : f32[8@b,6@a]", "exp"),
    "wrong padding": ("size=6", "size=7", "is not 7 rows over b"),
    "axis used twice": ("exp(%t) : f32[8@a,6@b]", "exp(%t) : f32[8@a,6@a]", "axis a is used twice"),
    "axis of size 1": ("exp(%t) : f32[8@a,6@b]", "exp(%t) : f32[8@a,6@(b,one)]", "axis one has size 1"),
    "local shape": (
        "exp(%t) : f32[8@a,6@b]",
        "exp(%t) : f32[8@a,6@b] holding [4,3]",
        "one device holds [4, 3], the layout says [4, 2]",
    ),
    "local attribute": ("shape=(4, 6)", "shape=(8, 6)", "broadcast"),
    "pin broken": ("as [8@a,16]", "as [8@b,16]", "is not what the signature asks for: 8@b"),
    "forbidden axis": ("as [8@a,16]", "as [8@a,16]!{a}", "is split over a forbidden axis"),
    "no layout": ("f32[8@a]+max{b}", "local f32[4]", "one of them has no layout"),
}


@pytest.mark.parametrize("text", [GLOBAL, LOCAL], ids=["global", "local"])
def test_valid(text: str) -> None:
    verify(parse_module(text))


@pytest.mark.parametrize("name", GLOBAL_FAULTS)
def test_global_fault(name: str) -> None:
    planted(GLOBAL, *GLOBAL_FAULTS[name])


@pytest.mark.parametrize("name", LOCAL_FAULTS)
def test_local_fault(name: str) -> None:
    planted(LOCAL, *LOCAL_FAULTS[name])


def planted(text: str, old: str, new: str, fragment: str) -> None:
    assert text.count(old) == 1
    faulty = text.replace(old, new)
    with pytest.raises(InternalError) as caught:
        verify(parse_module(faulty))
    assert fragment in str(caught.value)


def test_uneven_chunks_do_not_nest() -> None:
    text = (
        "module @f local mesh(a=2, b=4)\n"
        'def @f(%x: f32[10@(a,b)]) -> ("y": f32[10@a]) {\n'
        '  %y = all_gather(%x) {axes=("b",), dim=0} : f32[10@a]\n  return %y\n}'
    )
    with pytest.raises(InternalError, match="10 rows over 2 and then over 4 devices are other chunks"):
        verify(parse_module(text))


def test_a_count_must_know_its_shard() -> None:
    text = (
        "module @f local mesh(a=2)\n"
        'def @f() -> ("y": i32[8@a]) {\n'
        "  %y = iota() {axis=0, dtype=i32, shape=(4,)} : i32[8@a]\n  return %y\n}"
    )
    with pytest.raises(InternalError, match="iota takes no account of which shard over a"):
        verify(parse_module(text))


def test_the_fault_is_shown_in_place() -> None:
    with pytest.raises(InternalError) as caught:
        verify(parse_module(LOCAL.replace("neg(%p)", "exp(%p)")))
    assert (
        str(caught.value)
        == """\
the IR of @main is not valid
  %k = shard_slice(%x) {axes=("b",), dim=1} : f32[8@a,16@b]
  %p = einsum(%k, %w) {spec="ik,kj->ij"} : f32[8@a,6]+{b}
  %n = exp(%p) : f32[8@a,6]+{b}
  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  exp is not linear in operand 0, which owes a sum over b
  %s = reduce_scatter(%n) {axes=("b",), dim=0, kind="sum"} : f32[8@(a,b),6]
  %t = all_to_all(%s) {axes=("b",), concat_dim=0, split_dim=1} : f32[8@a,6@b]
  %e = exp(%t) : f32[8@a,6@b]
  ..."""
    )


# Faults that text cannot say.


def edited(module: Module, ops: tuple[Op, ...], results: tuple[Value, ...] | None = None) -> Module:
    body = module.main.body
    return module.with_main(module.main.with_body(Region(body.params, ops, results or body.results)))


def test_use_before_definition() -> None:
    module = parse_module(GLOBAL)
    a, b, c, d = module.main.body.ops
    with pytest.raises(InternalError, match=r"operand 0 .%s. is not defined before this use"):
        verify(edited(module, (a, c, b, d)))


def test_value_of_another_function() -> None:
    module = parse_module(GLOBAL)
    stranger = module.functions["twice"].body.ops[0].result
    with pytest.raises(InternalError, match=r"operand 0 .%y. is not defined"):
        verify(edited(module, (*module.main.body.ops, Op("neg", (stranger,), (Value(stranger.type),)))))


def test_entry_must_exist() -> None:
    with pytest.raises(InternalError, match="there is no entry @other"):
        verify(replace(parse_module(GLOBAL), entry="other"))


def test_no_reduction_is_owed_at_the_boundary() -> None:
    module = parse_module(LOCAL)
    pending = next(op.result for op in module.main.body.ops if op.name == "neg")
    with pytest.raises(InternalError, match=r"crosses the boundary as .* a reduction is still owed"):
        verify(edited(module, module.main.body.ops, (pending, module.main.results[1])))


def test_value_defined_twice() -> None:
    module = parse_module(GLOBAL)
    with pytest.raises(InternalError, match="%y is defined twice"):
        verify(edited(module, (*module.main.body.ops, module.main.body.ops[-1])))


def test_result_that_nobody_computes() -> None:
    module = parse_module(GLOBAL)
    with pytest.raises(InternalError, match="returns %lost"):
        verify(edited(module, module.main.body.ops, (Value(TensorType(F32, (8, 4)), "lost"),)))


@pytest.mark.parametrize("bad", [np.int64(1), [0], np.float32(1), {"a": 1}, (0, np.int32(1))])
def test_attributes_are_plain_data(bad: object) -> None:
    module = parse_module(GLOBAL)
    *rest, last = module.main.body.ops
    with pytest.raises(InternalError, match="is no attribute value"):
        verify(edited(module, (*rest, replace(last, attrs={"x": bad}))))  # type: ignore[dict-item]


def test_a_global_program_has_no_local_types() -> None:
    module = parse_module(GLOBAL)
    *rest, last = module.main.body.ops
    local = Value(sharded(last.result.type, Layout((("a",), ())), module.mesh), "y")
    with pytest.raises(InternalError, match="has no place in a global program"):
        verify(edited(module, (*rest, replace(last, results=(local,))), (local,)))


def test_shapes_are_plain_numbers() -> None:
    module = parse_module(GLOBAL)
    *rest, last = module.main.body.ops
    odd = Value(TensorType(F32, (np.int64(8), 4)), "y")  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="is not a shape"):
        verify(edited(module, (*rest, replace(last, results=(odd,))), (odd,)))


# Every way of getting one layout of a random local program wrong.


def other_layouts(type_: ShardedType, module: Module) -> Iterator[Layout]:
    """Yield layouts of the same tensor that are not the one it has."""
    layout, mesh = type_.layout, module.mesh
    for dim, axes in enumerate(layout.dims):
        if axes:
            yield layout.with_dim(dim, axes[:-1])
    for axis, size in mesh.shape.items():
        if size > 1 and axis not in layout.axes:
            yield layout.with_pending("sum", (*dict(layout.pending).get("sum", ()), axis), mesh)
            for dim, axes in enumerate(layout.dims):
                # A dim of one row is the same array on the first device, split or not.
                if type_.whole[dim] > 1:
                    yield layout.with_dim(dim, (*axes, axis))
    for kind, axes in layout.pending:
        yield layout.with_pending(kind, (), mesh)
        yield layout.with_pending(kind, (), mesh).with_pending("min" if kind == "max" else "max", axes, mesh)


def test_every_wrong_layout_is_found() -> None:
    tried = 0
    for seed in range(40):
        module = compile_module(generate(Seeded(seed)).module, search=False).partitioned.module
        for place, op in enumerate(module.main.body.ops):
            # The end of a longer local form states a layout that its scratch operands cannot confirm.
            known = op.name in MOVES or all(isinstance(v.type, ShardedType) for v in op.operands)
            if not (known and op.operands and isinstance(op.results[0].type, ShardedType)):
                continue
            for layout in other_layouts(op.results[0].type, module):
                tried += 1
                with pytest.raises(InternalError):
                    verify(relabelled(module, place, layout))
    assert tried > 500


def relabelled(module: Module, place: int, layout: Layout) -> Module:
    """Return the module with the first result of one op in another layout."""
    ops, op = module.main.body.ops, module.main.body.ops[place]
    old = op.results[0]
    new = Value(sharded(old.type, layout, module.mesh), old.hint)
    body = rename(Region((), ops[place + 1 :], module.main.body.results), {old: new})
    changed = replace(op, results=(new, *op.results[1:]))
    return edited(module, (*ops[:place], changed, *body.ops), body.results)
