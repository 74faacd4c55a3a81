"""Layout tables and pictures: what each device holds is what sharding an array gives it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import gshard_ir as gs
from gshard_ir.backends.spmd_numpy import shard
from gshard_ir.cli import main
from gshard_ir.dump.layout import MOST_RANGES, ValueLayout
from gshard_ir.dump.table import plain
from gshard_ir.errors import GShardError

SOURCE = """\
mesh(x=2, y=3, z=2)

def inner(a: f32[8, 7]) -> f32[8, 7]:
    kept = a * 2.0
    return kept + 1.0

def main(a: f32[8@x, 7@y], b: f32[5@(z,y), 6], c: f32[8@x, 7@y, 5@z, 2]) -> (f32[8, 7], f32[5, 6], f32[8, 7, 5, 2]):
    d = inner(a)
    e = replicate(b)
    f = c + 1.0
    return d, e, f
"""


@pytest.fixture(scope="module")
def program() -> gs.Program:
    return gs.compile(SOURCE)


def one(program: gs.Program, name: str) -> ValueLayout:
    (found,) = program.layout(name)
    return found


@pytest.mark.parametrize("name", ["a", "b", "c", "e", "f"])
def test_ranges_are_what_a_device_is_given(program: gs.Program, name: str) -> None:
    layout = one(program, name)
    whole = np.arange(1, 1 + np.prod(layout.type.whole), dtype=np.float32).reshape(layout.type.whole)
    pieces = shard(whole, layout.type, layout.mesh)
    assert len(pieces) == 12
    for device, piece in enumerate(pieces):
        place = layout.place(device)
        expected = whole[tuple(slice(*r) for r in place.ranges)]
        assert np.array_equal(piece[tuple(slice(n) for n in expected.shape)], expected)
    assert layout.type.nbytes == pieces[0].nbytes


@pytest.mark.parametrize("name", ["a", "b", "c", "e"])
def test_ranges_tile_each_dim(program: gs.Program, name: str) -> None:
    for dim in one(program, name).dims:
        ranges = dim.ranges()
        assert ranges is not None and len(ranges) == dim.shards
        assert ranges[0][0] == 0 and ranges[-1][1] == dim.size
        assert all(a[1] == b[0] for a, b in pairwise(ranges))
        assert dim.padding == sum(dim.local - (stop - start) for start, stop in ranges)


TWO_DIMS = """\
a  (line 7)    f32[8@x,7@y]    mesh x=2,y=3,z=2

  dim  size  axes  shards  local  padding  index ranges
    0     8  x          2      4           0:4  4:8
    1     7  y          3      3        2  0:3  3:6  6:7

  48 B on each device; 2 devices hold the same

  down: dim 0 over x, across: dim 1 over y
        0:3   3:6    6:7
      ┌─────┬─────┬───────┐
  0:4 │ 0-1 │ 2-3 │  4-5  │
      ├─────┼─────┼───────┤
  4:8 │ 6-7 │ 8-9 │ 10-11 │
      └─────┴─────┴───────┘"""


def test_the_table_and_picture_of_two_dims(program: gs.Program) -> None:
    assert str(one(program, "a@7")) == TWO_DIMS


def test_pictures_of_one_and_three_dims_show_every_device_once(program: gs.Program) -> None:
    for name, panels in (("b", 1), ("c", 2)):
        text = str(one(program, name))
        boxes = [cell.strip() for x in text.splitlines() if "│" in x for cell in x.split("│")[1:-1]]
        devices: list[int] = []
        for box in boxes:
            for word in box.split(","):
                first, _, last = word.partition("-")
                devices += range(int(first), int(last or first) + 1)
        assert sorted(devices) == list(range(12))
        assert text.count("┌") == panels


def test_a_device_is_put_in_brackets_and_its_ranges_are_shown(program: gs.Program) -> None:
    found = one(program, "b@7")
    lines = plain(found.lines(5))
    boxes = [cell.strip() for x in lines.splitlines() if "│" in x for cell in x.split("│")[1:-1]]
    assert [b for b in boxes if b.startswith("[")] == ["[5,11]"]
    assert "device 5 is x=0, y=2, z=1" in lines
    # z is the major axis of dim 0: device 5 is shard 1 * 3 + 2, of one row each
    assert found.place(5).ranges == ((5, 5), (0, 6))
    assert "it holds padding alone" in lines
    with pytest.raises(GShardError, match="no device 12"):
        found.place(12)


def test_values_are_found_by_name_line_and_def(program: gs.Program) -> None:
    assert [v.row.view.line for v in program.layout("d")] == [8]
    assert one(program, "inner.kept").row.whole == "f32[8@x,7@y]"
    assert one(program, "kept").row.view.callee == "inner"
    with pytest.raises(GShardError, match=r"no value keptt[\s\S]*try: kept"):
        program.layout("keptt")
    with pytest.raises(GShardError, match=r"no value d on line 3[\s\S]*it is on 8[\s\S]*try: d@8"):
        program.layout("d@3")


def test_pending_sums_are_told() -> None:
    p = gs.compile("mesh(m=4)\ndef f(a: f32[4, 8@m], b: f32[8@m, 4]) -> f32[4, 4]:\n    c = a @ b\n    return c\n")
    first, *_ = p.layout("c")
    assert first.pending == (("sum", "m"),)
    assert "still to be reduced: sum over m" in str(first)


def test_nothing_grows_with_the_mesh() -> None:
    source = "mesh(x=2, y=2)\ndef f(a: f32[4096@x, 8]) -> f32[4096@x, 8]:\n    return a + 1.0\n"
    p = gs.compile(source, mesh={"x": 2048, "y": 1 << 19})
    layout = p.layout("a")[0]
    text = str(layout)
    assert len(text) < 3000
    assert ".." in text and f"0-{(1 << 19) - 1}" in text
    assert layout.dims[0].shards > MOST_RANGES and layout.dims[0].ranges() is None
    assert layout.place(2047 << 19).ranges[0] == (4094, 4096)


def test_scalars_and_keys_have_a_layout() -> None:
    p = gs.compile(
        "mesh(x=2)\ndef f(k: key, a: f32[4@x]) -> f32[4]:\n    s = sum(a)\n    return a * s + uniform(k, [4])\n"
    )
    assert "a scalar" in str(p.layout("k")[0])
    assert "0-1" in str(p.layout("s")[-1])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.gshard").write_text(SOURCE, encoding="utf-8")
    assert main(["layout", "a.gshard", "a@7", "--device", "3"]) == 0
    assert "on device 3" in capsys.readouterr().out
    assert main(["layout", "a.gshard", "a@7", "--device", "3", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "gshard-layout-1"
    (value,) = document["values"]
    assert value["dims"][1]["ranges"] == [[0, 3], [3, 6], [6, 7]]
    assert value["place"] == {"device": 3, "coordinates": {"x": 0, "y": 1, "z": 1}, "ranges": [[0, 4], [3, 6]]}
    for words in (["nothing"], ["a", "--device", "12"], ["a", "--device", "-1"], ["a", "--device", "x"]):
        assert main(["layout", "a.gshard", *words]) == 2
        assert "error:" in capsys.readouterr().err
