"""Check factor rules by brute force: run each op's numpy meaning on shards and compare with the whole.

This is what a mark promises, word for word, and nothing else: no partitioner, no cost, no layouts. A rule
may promise too much (``wrong``), too little (``missing``) or not fit the op's types (``malformed``).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gshard_ir.factors import MARKS, SCANS, Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import REGISTRY, OpDef, Types
from gshard_ir.promises import PROMISES, Cut, RefutedError, Trial, adds_up
from gshard_ir.sharding import REDUCTIONS
from gshard_ir.types import DTYPES, KEY, DType, TensorType

SETTLES = ("annotate", "like")
"""Identities that are not linear on purpose: a pin is never partial."""


@dataclass(frozen=True)
class Finding:
    """One thing that a rule gets wrong; ``kind`` is ``wrong``, ``missing`` or ``malformed``."""

    kind: str
    application: str
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.application}\n   rule {self.rule}\n   {self.message}"


def types_of(texts: Iterable[str]) -> Types:
    """Read types written ``f32[4,6]``, ``i32[]`` or ``key``."""
    found = []
    for text in texts:
        match = re.fullmatch(r"(\w+)(?:\[([\d,]*)\])?", text)
        if match is None or match[1] not in DTYPES:
            raise ValueError(f"{text!r} is not a tensor type")
        found.append(TensorType(DTYPES[match[1]], tuple(int(n) for n in (match[2] or "").split(",") if n)))
    return tuple(found)


def validate(
    op: OpDef, types: Types, attrs: Attrs, *, shards: Sequence[int] = (2, 3, 4), rounds: int = 6, seed: int = 0
) -> list[Finding]:
    """Check the rule of one application: every factor and linear group on its own, on hostile data.

    Splits of several factors at once follow: a shard of an op is the same op, whose rule holds as well.
    A promise is kept on ``rounds`` draws for every shard count; one that the rule does not make is called
    ``missing`` only when four times as many draws cannot refute it.
    Ops without a rule have nothing to check.
    """
    if op.rule is None:
        return []
    rule = op.rule(types, attrs)
    details = ", ".join(f"{k}={getattr(v, 'name', v)}" for k, v in attrs.items())
    application = f"{op.name} {', '.join(map(str, types))}" + (f" {{{details}}}" if details else "")

    def finding(kind: str, message: str) -> Finding:
        return Finding(kind, application, rule.show(), message)

    if flaws := _flaws(rule, types, op.infer(types, attrs)):
        return [finding("malformed", flaw) for flaw in flaws]
    rng = np.random.default_rng(seed)
    try:
        trials = [Trial.make(op, types, attrs, rng, wild=bool(i % 2)) for i in range(4 * rounds)]
    except RefutedError as why:
        return [finding("malformed", str(why))]
    found = []
    for f in range(len(rule.factors)):
        found += [finding(*flaw) for flaw in _judge_factor(trials, rounds, rule, f, shards)]
    return found + [finding(*flaw) for flaw in _judge_linear(trials[::2], rounds, rule)]


def validate_examples(ops: Iterable[OpDef] | None = None) -> list[Finding]:
    """Check the rules of all examples of ``ops``, by default of every op in the registry."""
    import gshard_ir.ops  # noqa: F401  (fills the registry)

    chosen = list(REGISTRY.values()) if ops is None else list(ops)
    return [f for op in chosen for texts, attrs in op.examples for f in validate(op, types_of(texts), attrs)]


def _flaws(rule: Rule, types: Types, results: Types) -> list[str]:
    """What makes a rule unreadable for these types, whatever its marks promise."""
    flaws = []
    for side, tensors, expected in (("operand", rule.operands, types), ("result", rule.results, results)):
        if len(tensors) != len(expected):
            flaws.append(f"the rule has {len(tensors)} {side}s, the op has {len(expected)}")
            continue
        for i, (dims, type_) in enumerate(zip(tensors, expected, strict=True)):
            used = [f for dim in dims for f in dim]
            sizes = tuple(math.prod(rule.factors[f].size for f in dim) for dim in dims)
            if sizes != type_.shape:
                flaws.append(f"the factors of {side} {i} make {list(sizes)}, but it is {type_}")
            if len(set(used)) < len(used):
                flaws.append(f"a factor stands twice in {side} {i}")
    for f, factor in enumerate(rule.factors):
        if f not in {g for tensor in (*rule.operands, *rule.results) for dim in tensor for g in dim}:
            flaws.append(f"{factor.name} is in no operand and no result")
        combines = {"reduce": REDUCTIONS, "lookup": REDUCTIONS, "scan": SCANS}.get(factor.mark, ("",))
        if factor.mark not in MARKS or factor.combine not in combines:
            flaws.append(f"{factor.name} is marked {factor.mark} {factor.combine}")
        if factor.mark in ("reduce", "select", "lookup") and f in rule.result_factors:
            flaws.append(f"{factor.name} is marked {factor.mark} but is in a result")
        if factor.mark == "scan" and f not in rule.result_factors:
            flaws.append(f"{factor.name} is marked scan but is in no result")
    if any(not group or not group <= set(range(len(types))) for group in rule.linear):
        flaws.append("a linear group names an operand that does not exist")
    return flaws


Flaw = tuple[str, str]


def _judge_factor(trials: Sequence[Trial], rounds: int, rule: Rule, f: int, shards: Sequence[int]) -> list[Flaw]:
    factor = rule.factors[f]
    if factor.mark != "gather":
        why = _refute(trials[:rounds], rule, f, factor.mark, factor.combine, shards)
        if why:
            return [("wrong", f"{factor.name} is marked {factor.mark} {factor.combine}".rstrip() + f", but {why}")]
    if factor.mark == "pass" or factor.size < 2 or any(t.size == 0 for t in trials[0].results):
        return []
    for other, promised in _stronger(rule, f):
        mark, combine = promised
        if _refute(trials, other, f, mark, combine, shards) is None:
            shared = "" if other is rule else f", shared as in {other.show()}"
            held = f"{mark} {combine}".rstrip()
            return [("missing", f"{factor.name} is marked {factor.mark}, but {held} holds{shared}")]
    return []


def _stronger(rule: Rule, f: int) -> list[tuple[Rule, tuple[str, str]]]:
    """List what else a factor might promise: to pass, alone or as a factor of the result, or to reduce."""
    found = [(rule, ("pass", ""))]
    if rule.factors[f].mark != "gather" or f in rule.result_factors:
        return found
    in_operands = {g for dims in rule.operands for dim in dims for g in dim}
    for g in sorted(rule.result_factors - in_operands):
        if rule.factors[g].size == rule.factors[f].size:
            results = tuple(tuple(tuple(f if h == g else h for h in dim) for dim in dims) for dims in rule.results)
            found.append((replace(rule, results=results), ("pass", "")))
    return found + [(rule, ("reduce", combine)) for combine in REDUCTIONS]


def _refute(trials: Sequence[Trial], rule: Rule, f: int, mark: str, combine: str, shards: Sequence[int]) -> str | None:
    """Return why a factor does not keep a promise on some trial and shard count, or None when it always does."""
    cuts = [cut for k in shards if (cut := Cut(rule, f, k, combine)).possible]
    if not cuts:
        size = rule.factors[f].size
        cuts = [Cut(rule, f, k, combine) for k in range(2, size + 1) if size % k == 0][:1]
    for cut, trial in itertools.product(cuts, trials):
        if combine != "" and not all(_combines(combine, t.dtype) for t in trial.results):
            return f"{combine} of {trial.results[0].dtype} is not defined"
        try:
            PROMISES[mark](trial, cut)
        except RefutedError as why:
            return f"on {cut.shards} shards {why}"
    return None


def _combines(combine: str, dtype: DType) -> bool:
    return dtype.is_numeric or (dtype != KEY and combine in ("max", "min"))


def _judge_linear(trials: Sequence[Trial], rounds: int, rule: Rule) -> list[Flaw]:
    first = trials[0]
    found: list[Flaw] = []

    def name(group: Iterable[int]) -> str:
        return f"operand{'s' * (len(set(group)) > 1)} {', '.join(str(i + 1) for i in sorted(group))}"

    for group in rule.linear:
        why = _refute_linear(trials[:rounds], group, (False,))
        if why:
            found.append(("wrong", f"declared linear in {name(group)}, but {why}"))
    if first.op.name in SETTLES or any(t.size == 0 for t in first.results):
        return found
    for n in range(1, min(len(first.types), 4) + 1):
        for members in itertools.combinations(range(len(first.types)), n):
            group = frozenset(members)
            if group not in rule.linear and _refute_linear(trials, group, (False, True)) is None:
                found.append(("missing", f"it is linear in {name(group)}, which the rule does not declare"))
    return found


def _refute_linear(trials: Sequence[Trial], group: frozenset[int], spreads: Sequence[bool]) -> str | None:
    first = trials[0]
    involved = (*first.results, *(first.types[i] for i in sorted(group)))
    if len(first.results) != 1 or not all(t.dtype.is_numeric for t in involved):
        return f"there is no sum of {', '.join(map(str, involved))}"
    for trial, spread in itertools.product(trials, spreads):
        try:
            adds_up(trial, group, spread=spread)
        except RefutedError as why:
            return str(why)
    return None
