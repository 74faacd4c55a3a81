"""A plan: for every op, which factors are split over which mesh axes; everything else follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gshard_ir.factors import Rule, Split, project
from gshard_ir.ir import Function, Op, Value
from gshard_ir.memo import hash_once
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import rule_of
from gshard_ir.sharding import Layout, chunk


@hash_once
@dataclass(frozen=True)
class Strategy:
    """How one op runs: axes per factor, and axes along which a linear operand group is a pending sum.

    ``linear`` holds ``(axis, index into rule.linear)``; along such an axis the group's operands are
    pending, the others replicated, and the result is pending.
    """

    split: Split
    linear: tuple[tuple[str, int], ...] = ()


def rules_of(function: Function) -> dict[Op, Rule]:
    """Return the factor rule of every op of a global function."""
    return {op: rule_of(op.name, [v.type for v in op.operands], op.attrs) for op in function.body.ops}


@lru_cache(maxsize=16384)
def operand_layout(rule: Rule, strategy: Strategy, operand: int, mesh: Mesh) -> Layout:
    """Layout in which an op that runs as ``strategy`` needs an operand."""
    owed = [axis for axis, group in strategy.linear if operand in rule.linear[group]]
    layout = Layout(project(rule.operands[operand], strategy.split))
    return layout.with_pending("sum", owed, mesh) if owed else layout


@lru_cache(maxsize=16384)
def result_layout(rule: Rule, strategy: Strategy, result: int, mesh: Mesh) -> Layout:
    """Layout in which an op that runs as ``strategy`` leaves a result."""
    owed: dict[str, list[str]] = {}
    for factor, axes in zip(rule.factors, strategy.split, strict=True):
        if axes and factor.mark in ("reduce", "lookup"):
            owed.setdefault(factor.combine or "sum", []).extend(axes)
    if strategy.linear:
        owed.setdefault("sum", []).extend(axis for axis, _ in strategy.linear)
    layout = Layout(project(rule.results[result], strategy.split))
    for kind, pending in owed.items():
        layout = layout.with_pending(kind, pending, mesh)
    return layout


def local_space(rule: Rule, split: Split, mesh: Mesh) -> int:
    """Points of an op's iteration space that one device visits, padding included."""
    total = 1
    for factor, axes in zip(rule.factors, split, strict=True):
        total *= chunk(factor.size, mesh.size(axes)) if axes else factor.size
    return total


TRANSPARENT = ("annotate", "like", "barrier")
"""Ops that change no element: on a device their result is a copy of the first operand in some layout."""


def roots_of(function: Function) -> dict[Value, Value]:
    """Map each value to the one whose copies it shares: barriers are seen through.

    What reads an annotated value reads it in the layout that was asked for, or makes its own copy from that.
    """
    roots = {v: v for v in function.params}
    for op in function.body.ops:
        for value in op.results:
            roots[value] = roots[op.operands[0]] if op.name == "barrier" else value
    return roots


@dataclass(frozen=True)
class Plan:
    """A strategy per op plus the layouts at the boundary.

    ``home`` maps each value to the layout it is made in, ``roots`` to the value whose copies it shares.
    """

    function: Function
    mesh: Mesh
    rules: Mapping[Op, Rule]
    strategies: Mapping[Op, Strategy]
    params: tuple[Layout, ...]
    results: tuple[Layout, ...]
    launch_bytes: float = 0.0
    home: Mapping[Value, Layout] = field(init=False)
    roots: Mapping[Value, Value] = field(init=False)

    def __post_init__(self) -> None:
        home = dict(zip(self.function.params, self.params, strict=True))
        roots = roots_of(self.function)
        for op in self.function.body.ops:
            for i, value in enumerate(op.results):
                made = result_layout(self.rules[op], self.strategies[op], i, self.mesh)
                home[value] = home[roots[value]] if op.name == "barrier" else made
        object.__setattr__(self, "home", home)
        object.__setattr__(self, "roots", roots)

    def needs(self) -> dict[Value, set[Layout]]:
        """For each root, the layouts in which its users and the boundary want it."""
        wanted: dict[Value, set[Layout]] = {v: set() for v in self.roots.values()}
        for op in self.function.body.ops:
            for i, value in enumerate(op.operands if op.name != "barrier" else ()):
                wanted[self.roots[value]].add(operand_layout(self.rules[op], self.strategies[op], i, self.mesh))
        for value, layout in zip(self.function.results, self.results, strict=True):
            wanted[self.roots[value]].add(layout)
        return wanted
