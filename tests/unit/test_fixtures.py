"""Golden tests of passes: ``fixtures/<pass>/<idea>.ir`` holds a program, ``---`` and what the pass makes of it.

Both sides are also run, on hostile inputs, and must agree bit for bit. ``pytest --update`` rewrites the
goldens. Locations are shown where the program has some; a program that is refused has the error as golden.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support import arguments, assert_same

from gshard_ir.backends import reference_numpy, spmd_numpy
from gshard_ir.errors import GShardError
from gshard_ir.ir import Module
from gshard_ir.passes.axes import Axes
from gshard_ir.passes.cleanup import Cleanup
from gshard_ir.passes.inline import Inline
from gshard_ir.passes.per_use import PerUse
from gshard_ir.passes.pins import PinResults
from gshard_ir.pipeline import compile_module
from gshard_ir.text import parse_module, print_module
from gshard_ir.verify import verify

FOLDER = Path(__file__).parents[1] / "fixtures"
FILES = sorted(FOLDER.glob("*/*.ir"))
SEPARATOR = "\n---\n"
PASSES: dict[str, Callable[[Module], Module]] = {
    "axes": Axes().run,
    "cleanup": Cleanup().run,
    "inline": Inline(max_ops=16).run,
    "partition": lambda module: compile_module(module).partitioned.module,
    "per_use": PerUse().run,
    "pins": PinResults().run,
}


@pytest.mark.parametrize("path", FILES, ids=[f"{p.parent.name}/{p.stem}" for p in FILES])
def test_fixture(path: Path, update: bool) -> None:
    program, separator, golden = path.read_text(encoding="utf-8").partition(SEPARATOR)
    before = parse_module(program, path.name)
    verify(before)
    try:
        after = PASSES[path.parent.name](before)
    except GShardError as error:
        found = f"{error}\n"
    else:
        verify(after)
        found = print_module(after, locations="loc(" in program)
        run_both(before, after)
    if update:
        path.write_text(program + SEPARATOR + found, encoding="utf-8")
        return
    assert separator, f"{path} has no golden: run pytest with --update and read what it wrote"
    assert found == golden


def run_both(before: Module, after: Module) -> None:
    for seed in (0, 100, 200):
        args = arguments(before, seed)
        expected = reference_numpy.run(before, args)
        found = spmd_numpy.run(after, args) if after.local else reference_numpy.run(after, args)
        for name, a, b in zip(before.main.result_names, expected, found, strict=True):
            assert_same(a, b, name)


def test_each_pass_has_fixtures() -> None:
    assert {p.parent.name for p in FILES} == set(PASSES)
