"""Which ways an op may run: the one that propagation suggests, and all that the search may choose from."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from gshard_ir.factors import Rule, Split, consistent, to_factors
from gshard_ir.ir import Op, Value
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import opdef
from gshard_ir.passes.plan import Strategy, local_space
from gshard_ir.passes.propagate import Pin, Propagation
from gshard_ir.sharding import Layout

LIMIT = 512
"""Strategies kept per op; meshes of many axes are cut off there, in enumeration order."""


def labels(op: Op, rule: Rule, layouts: Mapping[Value, Layout], mesh: Mesh) -> dict[tuple[int, tuple[str, ...]], int]:
    """Bytes behind each (factor, axes) that the layouts of an op's operands and results suggest."""
    votes: dict[tuple[int, tuple[str, ...]], int] = {}
    for value, dims in zip((*op.operands, *op.results), (*rule.operands, *rule.results), strict=True):
        for factor, axes in to_factors(rule, dims, layouts[value], mesh).items():
            if rule.factors[factor].splittable:
                votes[factor, axes] = votes.get((factor, axes), 0) + max(1, value.type.nbytes)
    return votes


def initial(op: Op, propagation: Propagation) -> Strategy:
    """Take, heaviest first, every suggested split that does not collide with one already taken."""
    rule, mesh = propagation.rules[op], propagation.mesh
    if op.name in ("annotate", "like"):
        dims = propagation.layouts[op.result].dims
        return Strategy(tuple(dims[rule.results[0].index((f,))] for f in range(len(rule.factors))))
    split: list[tuple[str, ...]] = [()] * len(rule.factors)
    used: set[str] = set()
    ranked = sorted(labels(op, rule, propagation.layouts, mesh).items(), key=lambda kv: (-kv[1], kv[0]))
    for (factor, axes), _ in ranked:
        if split[factor] or any(a in used for a in axes):
            continue
        trial = [axes if f == factor else old for f, old in enumerate(split)]
        if consistent(rule, tuple(trial), mesh):
            split = trial
            used |= set(axes)
    return Strategy(tuple(split))


def candidates(op: Op, propagation: Propagation, start: Strategy) -> list[Strategy]:
    """Every admissible strategy of one op, ``start`` first.

    Pins are met exactly; a contraction never visits more points than under ``start``; an uneven split is
    tried only where propagation itself suggested it.
    """
    rule, mesh = propagation.rules[op], propagation.mesh
    if op.name == "like":
        return [start]
    pin = propagation.pins.get(op.result) if op.name == "annotate" else None
    suggested = set(labels(op, rule, propagation.layouts, mesh))
    limit = local_space(rule, start.split, mesh) if opdef(op.name).family == "contraction" else None
    found = [start]
    for strategy in _enumerate(op, rule, mesh):
        if strategy == start or not consistent(rule, strategy.split, mesh):
            continue
        if pin is not None and not _honours(rule, strategy.split, pin):
            continue
        if not _reasonable(rule, strategy.split, mesh, suggested, start):
            continue
        if limit is not None and local_space(rule, strategy.split, mesh) > limit:
            continue
        found.append(strategy)
        if len(found) == LIMIT:
            break
    return found


def _enumerate(op: Op, rule: Rule, mesh: Mesh) -> list[Strategy]:
    axes = [a for a, n in zip(mesh.names, mesh.sizes, strict=True) if n > 1]
    splittable = [f for f, factor in enumerate(rule.factors) if factor.splittable and factor.size > 1]
    groups = range(len(rule.linear)) if op.name != "annotate" else range(0)
    choices: list[tuple[str, int]] = [("", 0), *(("split", f) for f in splittable), *(("linear", g) for g in groups)]
    found = []
    for picks in itertools.islice(itertools.product(choices, repeat=len(axes)), 16 * LIMIT):
        split: list[tuple[str, ...]] = [()] * len(rule.factors)
        linear = []
        for axis, (what, which) in zip(axes, picks, strict=True):
            if what == "split":
                split[which] = (*split[which], axis)
            elif what == "linear":
                linear.append((axis, which))
        found.append(Strategy(tuple(split), tuple(linear)))
    return found


def _honours(rule: Rule, split: Split, pin: Pin) -> bool:
    dims = tuple(split[f] for (f,) in rule.results[0])
    return pin.honoured(Layout(dims))


def _reasonable(
    rule: Rule, split: Split, mesh: Mesh, suggested: set[tuple[int, tuple[str, ...]]], start: Strategy
) -> bool:
    for f, (factor, axes) in enumerate(zip(rule.factors, split, strict=True)):
        if axes and factor.size % mesh.size(axes) and axes != start.split[f] and (f, axes) not in suggested:
            return False
    return True
