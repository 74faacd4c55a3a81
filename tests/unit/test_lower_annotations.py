"""Annotations in types and expressions: what layout they ask for, exactly, or why they are refused."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from gshard_ir.errors import GShardError
from gshard_ir.frontend.lower import lower
from gshard_ir.frontend.lower_axes import device_order, mesh_order
from gshard_ir.frontend.parser import parse
from gshard_ir.ir import Module
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.sharding import Sharding
from gshard_ir.source import SourceFile, Span
from gshard_ir.verify import verify

HEAD = "mesh(data=2, expert=4, one=1)\n"


def program(text: str, **options: Any) -> Module:
    module = lower(parse(SourceFile("test.gshard", text)), **options)
    verify(module)
    return module


def pins(body: str, params: str = "x: f32[8, 6, 4]", **options: Any) -> list[tuple[str, str]]:
    """Layout and source text of each annotate op in order."""
    module = program(f"{HEAD}def main({params}):\n    {body}\n    return y\n", **options)
    found = []
    for op in module.main.body.ops:
        if op.name == "annotate":
            sharding = op.attrs["sharding"]
            assert isinstance(sharding, Sharding)
            found.append((sharding.show(op.result.shape), str(op.attrs["how"])))
    return found


def refused(body: str, params: str = "x: f32[8, 6, 4]", **options: Any) -> str:
    with pytest.raises(GShardError) as caught:
        program(f"{HEAD}def main({params}):\n    {body}\n    return y\n", **options)
    assert len(caught.value.diagnostics) == 1
    return str(caught.value)


EXPRESSIONS = [
    ("y = split(x, 0, data)", "[8@data,6,4]"),
    ("y = split(x, -1, data, expert)", "[8,6,4@(data,expert)]"),
    ("y = split(x, 1, (expert, data))", "[8,6@(expert,data),4]"),
    ("y = split(x, 0, one)", "[8@one,6,4]"),
    ("y = split(x, 0, expert:(2)2)", "[8@expert:(2)2,6,4]"),
    ("y = split(x, 0, expert:(2)2, expert:(1)2)", "[8@(expert:(2)2,expert:(1)2),6,4]"),
    ("y = split(x, 0, expert:(1)4)", "[8@expert,6,4]"),
    ("y = split(x, 0, 4)", "[8@expert,6,4]"),
    ("y = split(x, 0, 8)", "[8@(data,expert),6,4]"),
    ("y = split(x, 0, 1)", "[8@_,6,4]"),
    ('y = split(x, 0, "data")', "[8@data,6,4]"),
    ("y = replicate(x)", "[8@_,6@_,4@_]"),
    ("y = shard(x, [expert, _, ?])", "[8@expert,6@_,4]"),
    ("y = shard(x, [(data, expert), ?, _])", "[8@(data,expert),6,4@_]"),
    ("y = shard(x, [data?, expert!1, _])", "[8@data?,6@expert!1,4@_]"),
    ("y = shard(x, [(data, expert:(1)2)?!2, ?, ?])", "[8@(data,expert:(1)2)?!2,6,4]"),
    ("y = shard(x, [2, 4, 1])", "[8@data,6@expert,4@_]"),
    ("y = shard(x, [4, 1, 2], devices=[0, 4, 1, 5, 2, 6, 3, 7])", "[8@expert,6@_,4@data]"),
    ("y = shard(x, [8, 1, 1], devices=[0, 4, 1, 5, 2, 6, 3, 7])", "[8@(expert,data),6@_,4@_]"),
    ("y = shard(x, [2, 2, 2])", "[8@data,6@expert:(1)2,4@expert:(2)2]"),
    ("y = shard(x, [2, 4, 1], [0, 2, 4, 6, 1, 3, 5, 7])", "[8@expert:(2)2,6@(data,expert:(1)2),4@_]"),
]


@pytest.mark.parametrize(("body", "layout"), EXPRESSIONS, ids=[b for b, _ in EXPRESSIONS])
def test_expressions(body: str, layout: str) -> None:
    assert pins(body) == [(layout, body.removeprefix("y = "))]


def test_annotations_follow_one_another() -> None:
    assert pins("y = split(split(x, 0, data), 1, expert)") == [
        ("[8@data,6,4]", "split(x, 0, data)"),
        ("[8,6@expert,4]", "split(split(x, 0, data), 1, expert)"),
    ]


def test_source_text_over_several_lines_is_one_line() -> None:
    body = "y = split(\n        x,  # tokens\n        0,\n        data,\n    )"
    assert pins(body) == [("[8@data,6,4]", "split(x, 0, data)")]


def test_axes_come_before_other_meanings_of_a_name() -> None:
    params = "x: f32[8, 6, 4], data: f32[8, 6, 4]"
    assert pins("y = split(x, 0, data) + data", params)[0][0] == "[8@data,6,4]"


def test_axes_as_arguments_of_a_def() -> None:
    text = """mesh(data=2, expert=4)
def over(x, axis):
    return split(x, 0, axis)
def main(x: f32[8]):
    a = over(x, expert)
    b = over(x, "data")
    c = over(x, (data, expert))
    return a + b + c
"""
    module = program(text)
    layouts = [f.body.ops[0].attrs["sharding"] for name, f in module.functions.items() if name != "main"]
    assert [s.show((8,)) for s in layouts if isinstance(s, Sharding)] == ["[8@expert]", "[8@data]", "[8@(data,expert)]"]


def test_an_axis_left_out_of_the_override_has_size_1() -> None:
    assert pins("y = split(x, 0, data, expert)", mesh={"expert": 8}) == [
        ("[8@(data,expert),6,4]", "split(x, 0, data, expert)")
    ]


def test_like_and_barrier() -> None:
    module = program(
        'def main(x: f32[4], i: i32[4]):\n    y = like(x, i)\n    return barrier(y, direction="forward")\n'
    )
    assert [(op.name, dict(op.attrs)) for op in module.main.body.ops] == [
        ("like", {}),
        ("barrier", {"direction": "forward"}),
    ]


TYPES = [
    ("f32[8, 6]", None),
    ("f32[8@data, 6]", "[8@data,6]"),
    ("f32[8@(data,expert), 6@_]", "[8@(data,expert),6@_]"),
    ("f32[8@data?, 6@expert!1]", "[8@data?,6@expert!1]"),
    ("f32[8@expert:(2)2, 6]", "[8@expert:(2)2,6]"),
    ("f32[8, 6]!{data}", "[8,6]!{data}"),
    ("f32[8@data, 6]!{expert:(1)2}", "[8@data,6]!{expert:(1)2}"),
]


@pytest.mark.parametrize(("type_", "layout"), TYPES, ids=[t for t, _ in TYPES])
def test_types_of_parameters_and_results(type_: str, layout: str | None) -> None:
    module = program(f"{HEAD}def main(x: {type_}) -> {type_}:\n    return x * 2\n")
    for sharding in (module.main.param_shardings[0], module.main.result_shardings[0]):
        assert (sharding and sharding.show((8, 6))) == layout


REFUSED = [
    ("y = split(x, 0, exprt)", ["has no axis exprt", "data=2, expert=4, one=1", "try: expert"]),
    ("y = split(x, 3, data)", ["there is no dim 3 in f32[8,6,4]", "dims are 0 to 2"]),
    ("y = split(x, 0)", ["split takes a tensor, a dim and one axis or more"]),
    ("y = split(x, 0, axis=data)", ["split takes a tensor, a dim and one axis or more"]),
    ("y = split(x, 0, data, data)", ["axis data is used twice", "used first here"]),
    ("y = split(x, 0, expert, expert:(1)2)", ["expert:(1)2 and expert overlap"]),
    ("y = split(x, 0, expert:(1)2, expert:(1)2)", ["axis expert:(1)2 is used twice"]),
    ("y = split(x, 0, expert:(2)3)", ["expert:(2)3 is not a piece of axis expert", "2 * 3 = 6 does not divide 4"]),
    ("y = split(x, 0, 3)", ["no axis has size 3", "data=2, expert=4, one=1", "8 devices in all"]),
    ("y = split(x, 0, 0)", ["split into 1 piece or more"]),
    ("y = split(x, 0, 2.0)", ["expected a mesh axis, found the float 2.0"]),
    ("y = split(x, 0, _)", ["split: name a mesh axis here"]),
    ("y = split(2.0, 0, data)", ["split annotates a tensor, found the float 2.0"]),
    ("y = replicate(x, 0)", ["replicate takes 1 argument, found 2"]),
    ("y = shard(x, [data, _])", ["2 entries for the 3 dims of f32[8,6,4]", "try: [data, _, ?]"]),
    ("y = shard(x, [data, data, _])", ["axis data is used twice"]),
    ("y = shard(x, [2, 4])", ["2 numbers of pieces for the 3 dims of f32[8,6,4]"]),
    ("y = shard(x, [2, 2, 1])", ["4 pieces for 8 devices"]),
    ("y = shard(x, [4, 4, 1])", ["16 pieces for 8 devices"]),
    ("y = shard(x, [2, 4, 1], devices=[0, 1])", ["makes 8 pieces, devices lists 2"]),
    ("y = shard(x, [2, 4, 1], devices=[0, 1, 2, 3, 4, 5, 6, 6])", ["device 6 is listed twice"]),
    ("y = shard(x, [2, 4, 1], devices=[0, 1, 2, 3, 4, 5, 6, 8])", ["there is no device 8, they are 0 to 7"]),
    ("y = shard(x, [2, 4, 1], devices=[1, 0, 2, 3, 4, 5, 6, 7])", ["the first piece is on device 1"]),
    ("y = shard(x, [2, 4, 1], devices=[0, 1, 2, 3, 4, 5, 7, 6])",
     ["does not follow mesh axes", "piece 7 to device 7", "piece 6"]),
    ("y = shard(x, [2, 4, 1], devices=[0, 3, 1, 2, 4, 5, 6, 7])",
     ["does not follow mesh axes", "0, 3, 1, 2", "4 (data), 1 (expert)"]),
    ("y = like(x, x[0])", ["like ties tensors of one shape", "f32[6,4]"]),
    ('y = barrier(x, "sideways")', ["barrier stops", 'the string "sideways"']),
]  # fmt: skip


@pytest.mark.parametrize(("body", "fragments"), REFUSED, ids=[b for b, _ in REFUSED])
def test_refused_expressions(body: str, fragments: list[str]) -> None:
    text = refused(body)
    for fragment in fragments:
        assert fragment in text


def test_integer_form_is_refused_when_two_axes_fit() -> None:
    text = refused("y = split(x, 0, 2)", mesh={"data": 2, "expert": 2})
    assert "2 axes have size 2" in text and "try: name the axis: data or expert" in text


REFUSED_TYPES = [
    ("f32[8@datta]", ["has no axis datta", "try: data"]),
    ("f32[8@data, 6@data]", ["axis data is used twice"]),
    ("f32[8@data]!{data}", ["axis data is used and forbidden at once"]),
    ("f32[8@expert:(2)2]!{expert}", ["used and forbidden at once"]),
    ("f32[8]+{data}", ["cannot be partial over data", "try: remove it"]),
    ("f32[8]+max{data}", ["cannot be partial over data"]),
    ("f32[8@expert:(4)2]", ["4 * 2 = 8 does not divide 4"]),
]


@pytest.mark.parametrize(("type_", "fragments"), REFUSED_TYPES, ids=[t for t, _ in REFUSED_TYPES])
def test_refused_types(type_: str, fragments: list[str]) -> None:
    text = refused("y = x", f"x: {type_}")
    for fragment in fragments:
        assert fragment in text


def test_stack_and_leaf_cannot_use_one_axis() -> None:
    with pytest.raises(GShardError, match="axis a is used twice"):
        program("mesh(a=2)\nstruct L:\n    w: f32[4@a]\ndef main(p: L[2@a]):\n    return p.w\n")


# ---- device orders


def layouts(mesh: Mesh) -> list[tuple[tuple[AxisRef, ...], tuple[AxisRef, ...]]]:
    """All ways to put prime pieces of all axes on two dims."""
    pieces = []
    for name, size in mesh.shape.items():
        pre = 1
        while pre < size:
            prime = next(p for p in range(2, size + 1) if (size // pre) % p == 0)
            pieces.append(AxisRef(name, pre, prime) if prime < size else AxisRef(name))
            pre *= prime
    found = []
    for order in itertools.permutations(pieces):
        found += [(order[:cut], order[cut:]) for cut in range(len(order) + 1)]
    return found


def place(mesh: Mesh, refs: tuple[AxisRef, ...], device: int) -> tuple[int, int]:
    """Position of a device along axes, the first being the major one, and the number of positions."""
    fine = mesh.refine(refs)
    axes = [axis for ref in refs for axis in fine.expand(ref)]
    return fine.index(device, axes), math.prod(fine.size(a) for a in axes)


@pytest.mark.parametrize("sizes", [(2, 4), (4, 2), (8,), (2, 3), (6,), (2, 2, 2), (3, 1, 2)])
def test_device_orders_are_read_back(sizes: tuple[int, ...]) -> None:
    mesh = Mesh(tuple("abc"[: len(sizes)]), sizes)
    span = Span(SourceFile("t", ""), 1, 1, 1, 1)
    for dims in layouts(mesh):
        tiles = [place(mesh, refs, 0)[1] for refs in dims]
        devices = [0] * mesh.devices
        for device in range(mesh.devices):
            row, column = (place(mesh, refs, device)[0] for refs in dims)
            devices[row * tiles[1] + column] = device
        found = device_order(mesh, tiles, devices, span)
        for refs, wanted in zip(found, dims, strict=True):
            for device in range(mesh.devices):
                assert place(mesh, refs, device) == place(mesh, wanted, device)


@pytest.mark.parametrize("sizes", [(2, 4), (2, 3), (12,), (2, 2, 2), (4, 6), (3, 1, 4), ()])
def test_pieces_in_mesh_order_are_the_device_order_that_counts_up(sizes: tuple[int, ...]) -> None:
    mesh, span = Mesh(tuple("abc"[: len(sizes)]), sizes), Span(SourceFile("t", ""), 1, 1, 1, 1)
    for rank in range(4):
        for tiles in itertools.product(range(1, mesh.devices + 1), repeat=rank):
            if math.prod(tiles) == mesh.devices:
                counted = attempt(lambda t: device_order(mesh, t, range(mesh.devices), span), tiles)
                assert attempt(lambda t: mesh_order(mesh, t, span), tiles) == counted


def attempt(read: Callable[[tuple[int, ...]], object], tiles: tuple[int, ...]) -> object:
    try:
        return read(tiles)
    except GShardError:
        return "refused"


def test_most_device_orders_are_refused() -> None:
    mesh, span = Mesh(("a", "b"), (2, 2)), Span(SourceFile("t", ""), 1, 1, 1, 1)
    accepted = 0
    for order in itertools.permutations(range(4)):
        try:
            device_order(mesh, [2, 2], order, span)
            accepted += 1
        except GShardError:
            pass
    assert accepted == 2
