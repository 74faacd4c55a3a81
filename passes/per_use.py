"""Give each use of a constant its own copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.pipeline_base import map_functions

SOURCES = frozenset({"constant", "iota"})
SHAPERS = frozenset({"broadcast", "cast", "reshape"})


@dataclass(frozen=True)
class PerUse:
    """Every ``constant``, ``iota`` and broadcast of a scalar, and every cast, broadcast or reshape of one, has one use.

    Such values cost nothing to make again, on any layout; shared, they would tie the layouts of
    ops that have nothing to do with each other.
    """

    name: str = "per_use"

    def run(self, module: Module) -> Module:
        """Return the module with constants copied to where they are used; unused ones are gone."""
        changed = {}
        for name, function in module.functions.items():
            changed[name] = function.with_body(_Copier().region(function.body))
        return map_functions(module, changed)


class _Copier:
    def __init__(self) -> None:
        self.makers: dict[Value, Op] = {}
        self.taken: set[Value] = set()

    def region(self, region: Region) -> Region:
        out: list[Op] = []
        for op in region.ops:
            if self.cheap(op):
                self.makers[op.result] = op
                continue
            operands = tuple(self.use(v, out) for v in op.operands)
            regions = tuple(self.region(r) for r in op.regions)
            out.append(replace(op, operands=operands, regions=regions))
        results = tuple(self.use(v, out) for v in region.results)
        return Region(region.params, tuple(out), results)

    def cheap(self, op: Op) -> bool:
        if op.name in SOURCES:
            return True
        if op.name not in SHAPERS:
            return False
        (operand,) = op.operands
        return operand in self.makers or (op.name == "broadcast" and not operand.shape)

    def use(self, value: Value, out: list[Op]) -> Value:
        """Return ``value``, made again just before its use when it is a constant; the first use keeps the original."""
        maker = self.makers.get(value)
        if maker is None:
            return value
        operands = tuple(self.use(v, out) for v in maker.operands)
        result = replace(value) if value in self.taken else value
        self.taken.add(value)
        out.append(replace(maker, operands=operands, results=(result,)))
        return result
