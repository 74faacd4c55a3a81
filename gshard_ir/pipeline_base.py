"""What a pass is, and the few ways in which passes rebuild the IR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from gshard_ir.ir import Function, Module, Op, Region, Value


class Pass(Protocol):
    """One step of the pipeline: a frozen dataclass whose fields are its options.

    The docstring of the class is its promise: what holds of the module that it returns. The
    pipeline verifies the module before and after each pass.
    """

    @property
    def name(self) -> str:
        """How dumps and messages call the pass."""
        ...

    def run(self, module: Module, /) -> Module:
        """Return the rewritten module; the given one is left as it was."""
        ...


def with_operands(op: Op, new: Mapping[Value, Value]) -> Op:
    """Return ``op`` with operands (those of ops in its regions too) renamed; results keep their identity."""
    operands = tuple(new.get(v, v) for v in op.operands)
    regions = tuple(rename(r, new) for r in op.regions)
    if operands == op.operands and regions == op.regions:
        return op
    return replace(op, operands=operands, regions=regions)


def rename(region: Region, new: Mapping[Value, Value]) -> Region:
    """Return ``region`` with every use of a key of ``new`` replaced; itself when there is none."""
    ops = tuple(with_operands(op, new) for op in region.ops)
    results = tuple(new.get(v, v) for v in region.results)
    return region if ops == region.ops and results == region.results else Region(region.params, ops, results)


def map_functions(module: Module, change: Mapping[str, Function]) -> Module:
    """Return ``module`` with some functions replaced, in the same order."""
    functions = {name: change.get(name, f) for name, f in module.functions.items()}
    return Module(module.mesh, functions, module.entry, module.local)


def used_values(ops: Iterable[Op]) -> set[Value]:
    """Every value that ``ops``, or ops and results of their regions, read. For membership tests only."""
    found: set[Value] = set()
    for op in ops:
        found.update(op.operands)
        for region in op.regions:
            found |= used_values(region.ops)
            found.update(region.results)
    return found
