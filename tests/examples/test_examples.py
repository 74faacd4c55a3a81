"""Every example: through the command, on the simulator, as an emitted file on jax, and its bytes as XLA counts them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import assert_same

import gshard_ir as gs
from gshard_ir import data
from gshard_ir.agreement import verify
from gshard_ir.api import check, read
from gshard_ir.backends import reference_numpy, spmd_numpy
from gshard_ir.backends.hlo_traffic import measure
from gshard_ir.cli import main
from gshard_ir.program import STAGES, Program

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.relative_to(ROOT / "examples").as_posix() for p in (ROOT / "examples").rglob("*.gshard"))
EXACT = ("relayout.gshard", "scan.gshard", "two_axes.gshard")
"""Examples of movement, products and sums alone: with small multiples of 1/2 every order of summing is exact."""

SIZES = (1, 2, 3, 4, 6, 8)
FIXED = ("two_axes.gshard",)
"""Examples that name pieces of an axis and devices, so that no other mesh fits them."""

Array = np.ndarray[Any, np.dtype[Any]]


@cache
def program(name: str) -> Program:
    return gs.compile(ROOT / "examples" / name)


def arguments(p: Program) -> tuple[Array, ...]:
    return data.bind(p.lowered.main, (), data.seeded(p.lowered.main, 1))


def assert_agrees(p: Program, *, jax: bool) -> None:
    """Equal within the tolerance that ``gshard verify`` states: 256 units in the last place of an output's largest."""
    verdict = verify(p, arguments(p), jax=jax)
    assert verdict.agrees, f"{p}: {[d for d in verdict.differences if not d.agrees]} {verdict.partings}"
    assert {d.against for d in verdict.differences} == ({"simulator", "jax"} if jax else {"simulator"})


def test_the_examples_are_found() -> None:
    assert {"moe_layer/moe.gshard", "moe_layer/routing.gshard", "mlp.gshard", *EXACT, *FIXED} <= set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_command(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "examples" / name)
    assert main(["check", path]) == 0
    for stage in STAGES:
        capsys.readouterr()
        assert main(["dump", path, "--stage", stage]) == 0
        shown = capsys.readouterr()
        assert shown.out.strip() and not shown.err
    for target in ("jax", "jax-auto"):
        out = tmp_path / f"{target}.py"
        assert main(["compile", path, "-o", str(out), "--target", target]) == 0
        compile(out.read_text(encoding="utf-8"), str(out), "exec")


@pytest.mark.parametrize("name", EXAMPLES)
def test_simulator_and_jax_equal_the_reference(name: str) -> None:
    assert_agrees(program(name), jax=True)


@pytest.mark.parametrize("name", EXACT)
def test_exact_where_sums_are(name: str) -> None:
    p = program(name)
    args = []
    for value, drawn in zip(p.lowered.main.params, arguments(p), strict=True):
        halves = np.round(drawn.astype(np.float64)) / 2
        args.append(halves.astype(drawn.dtype) if value.type.dtype.is_float else drawn)
    expected = reference_numpy.run(p.lowered, args)
    for way, found in (("simulator", spmd_numpy.run(p.local, args)), ("jax", p.executable(*args))):
        for label, a, b in zip(p.lowered.main.result_names, expected, found, strict=True):
            assert_same(a, np.asarray(b), f"{name} {label}: {way}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_bytes_are_those_of_xla(name: str) -> None:
    p = program(name)
    dtypes = {v.type.dtype.name for op in p.local.main.body.ops for v in op.operands}
    assert "bf16" not in dtypes, "XLA:CPU widens its collectives; see test_bytes_of_bf16"
    measured = measure(p.lower().compile().as_text())
    assert p.traffic().bytes == pytest.approx(measured.sent, abs=1e-6)


def test_bytes_of_bf16(tmp_path: Path) -> None:
    """XLA:CPU computes sums of bf16 in f32 and sends them so: twice the bytes that an accelerator sends."""
    source = (ROOT / "examples" / "mlp.gshard").read_text(encoding="utf-8")
    path = tmp_path / "mlp.gshard"
    path.write_text(source.replace("f32[", "bf16["), encoding="utf-8")
    p = gs.compile(path)
    assert p.traffic().counts == {"all_reduce": 1}
    measured = measure(p.lower().compile().as_text())
    assert p.traffic().bytes * 2 == pytest.approx(measured.sent)
    assert p.traffic().bytes * 2 == pytest.approx(program("mlp.gshard").traffic().bytes)


MOE = ROOT / "examples" / "moe_layer" / "moe.gshard"


@pytest.mark.parametrize(
    ("mesh", "sent"),
    [({"expert": 4}, 393_222), ({"expert": 8}, 229_383), ({"data": 2, "expert": 4}, 196_615)],
    ids=str,
)
def test_the_layer_is_two_exchanges_and_one_scalar(mesh: dict[str, int], sent: int) -> None:
    p = gs.compile(MOE, mesh=mesh)
    assert p.traffic().counts == {"all_to_all": 2, "all_reduce": 1}
    assert p.traffic().bytes == sent
    measured = measure(p.lower().compile().as_text())
    assert measured.sent == sent
    assert dict(measured.counts) == {"all-to-all": 2, "all-reduce": 1}
    exchanges = [(c.line, c.reason) for c in p.traffic().collectives if c.kind == "all_to_all"]
    assert exchanges == [(21, "split(sent, 0, expert)"), (23, "combine is split over G, line 16")]


def test_the_layer_on_two_devices() -> None:
    p = gs.compile(MOE, mesh={"expert": 2})
    assert p.traffic().bytes <= 524_292
    assert measure(p.lower().compile().as_text()).sent == p.traffic().bytes


LAYER_MESHES = [*({"expert": n} for n in SIZES), {"data": 2, "expert": 4}, {"data": 2, "expert": 2}]
SMALL = {"S": 24, "M": 16, "H": 32}


@pytest.mark.parametrize("sizes", [{}, {"G": 7, "E": 6, **SMALL}, {"G": 5, "E": 3, **SMALL}], ids=str)
@pytest.mark.parametrize("mesh", LAYER_MESHES, ids=str)
def test_the_layer_on_meshes_that_divide_and_do_not(mesh: dict[str, int], sizes: dict[str, int]) -> None:
    assert_agrees(gs.compile(MOE, mesh=mesh, defines=sizes), jax=False)


@pytest.mark.parametrize(
    ("mesh", "sizes"),
    [
        ({"expert": 3}, {"G": 7, "E": 6, **SMALL}),
        ({"expert": 8}, {"G": 5, "E": 3, **SMALL}),
        ({"data": 2, "expert": 4}, {"G": 7, "E": 6, **SMALL}),
    ],
    ids=str,
)
def test_the_layer_on_jax_where_nothing_divides(mesh: dict[str, int], sizes: dict[str, int]) -> None:
    p = gs.compile(MOE, mesh=mesh, defines=sizes)
    assert_agrees(p, jax=True)
    assert measure(p.lower().compile().as_text()).sent == pytest.approx(p.traffic().bytes)


def meshes_of(name: str) -> list[dict[str, int]]:
    """Every size on the minor axis alone; both axes where there are two."""
    declared = check(read(str(ROOT / "examples" / name))).mesh_sizes
    axes = list(declared)
    single = [{axes[-1]: n} for n in SIZES]
    return single if len(axes) == 1 else [*single, *({axes[0]: 2, axes[-1]: n} for n in (2, 3, 4))]


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in FIXED and n != "moe_layer/moe.gshard"])
def test_other_meshes(name: str) -> None:
    for mesh in meshes_of(name):
        assert_agrees(gs.compile(ROOT / "examples" / name, mesh=mesh), jax=False)
