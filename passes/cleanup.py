"""Remove what nobody reads and compute nothing twice."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gshard_ir.ir import Module, Op, Region, Value
from gshard_ir.pipeline_base import map_functions, used_values
from gshard_ir.text import attr_text


@dataclass(frozen=True)
class Cleanup:
    """Every op has a use, and with ``merge`` no two ops compute the same value in the same layout.

    All ops are pure, collectives included: the same op on the same operands with the same
    attributes and result types is the same value. Parameters stay, read or not.
    """

    name: str = "cleanup"
    merge: bool = True

    def run(self, module: Module) -> Module:
        """Return the module without dead and, if asked, without repeated ops."""
        changed = {}
        for name, function in module.functions.items():
            body = _merged(function.body, {}, {}) if self.merge else function.body
            changed[name] = function.with_body(_live(body))
        return map_functions(module, changed)


Key = tuple[object, ...]


def _merged(region: Region, seen: dict[Key, Op], new: dict[Value, Value]) -> Region:
    """Drop ops that repeat an earlier one of this or an enclosing region."""
    seen = dict(seen)
    out: list[Op] = []
    for op in region.ops:
        operands = tuple(new.get(v, v) for v in op.operands)
        if op.regions:
            out.append(replace(op, operands=operands, regions=tuple(_merged(r, seen, new) for r in op.regions)))
            continue
        key = _key(op, operands)
        if (twin := seen.get(key)) is None:
            same = op if operands == op.operands else replace(op, operands=operands)
            seen[key] = same
            out.append(same)
        else:
            new.update(zip(op.results, twin.results, strict=True))
    return Region(region.params, tuple(out), tuple(new.get(v, v) for v in region.results))


def _key(op: Op, operands: tuple[Value, ...]) -> Key:
    # Attributes by their text: as values 1 == True == 1.0 and 0.0 == -0.0, and a NaN equals nothing.
    attrs = tuple((name, attr_text(op.attrs[name])) for name in sorted(op.attrs))
    return (op.name, operands, attrs, tuple(v.type for v in op.results))


def _live(region: Region) -> Region:
    """Drop ops none of whose results is read."""
    needed: set[Value] = set(region.results)
    kept: list[Op] = []
    for op in reversed(region.ops):
        if needed.isdisjoint(op.results):
            continue
        live = replace(op, regions=tuple(map(_live, op.regions))) if op.regions else op
        needed |= used_values([live])
        kept.append(live)
    return Region(region.params, tuple(reversed(kept)), region.results)
