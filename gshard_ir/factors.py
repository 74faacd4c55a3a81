"""Factor rules: what each dim of an op's operands and results has in common.

A rule is einops-like: ``b m k, b k n -> b m n``. Propagation, partitioning, cost and the printed
explanation all read the same rule. A dim may hold several factors, major first: ``(a b) c -> a (b c)``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gshard_ir.memo import hash_once
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Layout

SCANS = ("sum", "prod", "max", "min", "logsumexp")
MARKS = ("pass", "reduce", "scan", "select", "lookup", "gather")


@dataclass(frozen=True)
class Factor:
    """One iteration dim of an op.

    ``mark`` says how a split of it is computed: ``pass`` on the shard alone; ``reduce`` on the shard
    with a reduction ``combine`` owed; ``scan`` locally, combined with an exclusive prefix of the totals;
    ``select`` locally, then among the candidates of all shards; ``lookup`` on the owner of each
    index, with a reduction ``combine`` owed; ``gather`` not at all: the dim is gathered first.
    """

    name: str
    size: int
    mark: str = "pass"
    combine: str = ""

    @property
    def splittable(self) -> bool:
        return self.mark != "gather"


Dims = tuple[tuple[int, ...], ...]


@hash_once
@dataclass(frozen=True)
class Rule:
    """Factors, and per operand and result the factors of every dim, major first.

    ``linear``: groups of operands in which the op is linear when the others are held fixed: a
    pending sum on all of a group passes to the result (``add`` is one group of two, ``mul`` two of one).
    """

    factors: tuple[Factor, ...]
    operands: tuple[Dims, ...]
    results: tuple[Dims, ...]
    linear: tuple[frozenset[int], ...] = ()

    @cached_property
    def iteration_space(self) -> int:
        """Number of points over all factors: the op's work, in elementary steps."""
        return math.prod(f.size for f in self.factors)

    @cached_property
    def result_factors(self) -> frozenset[int]:
        return frozenset(f for dims in self.results for dim in dims for f in dim)

    def show(self) -> str:
        """Write the rule: ``G S M, M E -> G S E  (M reduce sum)``."""

        def side(tensors: tuple[Dims, ...]) -> str:
            return ", ".join(" ".join(self._show_dim(d) for d in dims) or "." for dims in tensors)

        marks = [f"{f.name} {f.mark}{' ' + f.combine if f.combine else ''}" for f in self.factors if f.mark != "pass"]
        return f"{side(self.operands)} -> {side(self.results)}" + (f"  ({'; '.join(marks)})" if marks else "")

    def _show_dim(self, dim: tuple[int, ...]) -> str:
        names = [self.factors[f].name for f in dim]
        return names[0] if len(names) == 1 else f"({' '.join(names)})"


def rule(
    text: str,
    sizes: Mapping[str, int],
    *,
    marks: Mapping[str, str | tuple[str, str]] | None = None,
    linear: Sequence[frozenset[int] | set[int]] = (),
) -> Rule:
    """Parse ``"b m k, b k n -> b m n"`` with factor sizes; ``.`` is a scalar, ``1``-free.

    ``marks`` maps a factor to a mark, or to ``("reduce", "sum")``.
    """
    left, right = text.split("->")
    index: dict[str, int] = {}

    def parse(side: str) -> tuple[Dims, ...]:
        if not side.strip():
            return ()
        return tuple(_dims(tensor, index) for tensor in side.split(","))

    operands, results = parse(left), parse(right)
    made = []
    for name in index:
        mark = (marks or {}).get(name, "pass")
        kind, combine = mark if isinstance(mark, tuple) else (mark, "")
        made.append(Factor(name, sizes[name], kind, combine))
    return Rule(tuple(made), operands, results, tuple(map(frozenset, linear)))


def _dims(tensor: str, index: dict[str, int]) -> Dims:
    dims = []
    for word in re.findall(r"\([^)]*\)|[^\s()]+", tensor):
        if word != ".":
            names = word.strip("()").split()
            dims.append(tuple(index.setdefault(n, len(index)) for n in names))
    return tuple(dims)


Split = tuple[tuple[str, ...], ...]
"""Per factor of a rule, the mesh axes that split it, major to minor."""


def project(dims: Dims, split: Split) -> tuple[tuple[str, ...], ...]:
    """Axes per dim of a tensor whose factors are split as given."""
    return tuple(tuple(a for f in dim for a in split[f]) for dim in dims)


def consistent(rule_: Rule, split: Split, mesh: Mesh) -> bool:
    """Can every tensor of the op hold this split, with equal chunks on all of them?

    A dim of several factors is laid out flat, so a factor after a split one may be split only where
    all before it are split completely, and no factor of such a dim may be uneven (Shardy's rule for
    reshapes; a lone factor may be uneven).
    """
    for dims in (*rule_.operands, *rule_.results):
        for dim in dims:
            if len(dim) > 1 and not _nests(rule_, dim, split, mesh):
                return False
    return all(f.splittable or not axes for f, axes in zip(rule_.factors, split, strict=True))


def _nests(rule_: Rule, dim: tuple[int, ...], split: Split, mesh: Mesh) -> bool:
    last = max((i for i, f in enumerate(dim) if split[f]), default=-1)
    for i, f in enumerate(dim[: last + 1]):
        size, shards = rule_.factors[f].size, mesh.size(split[f])
        if size % shards or (i < last and size != shards):
            return False
    return True


def to_factors(rule_: Rule, dims: Dims, layout: Layout, mesh: Mesh) -> dict[int, tuple[str, ...]]:
    """Read per-factor axes off a tensor's layout; what cannot be attributed to a factor is left out."""
    found: dict[int, tuple[str, ...]] = {}
    for dim, axes in zip(dims, layout.dims, strict=True):
        if len(dim) == 1:
            if axes:
                found[dim[0]] = axes
            continue
        rest = list(axes)
        for f in dim:
            size, taken = rule_.factors[f].size, []
            while rest and size % mesh.size(rest[0]) == 0 and size > 1:
                size //= mesh.size(rest[0])
                taken.append(rest.pop(0))
            if taken:
                found[f] = tuple(taken)
            if size != 1:
                break
    return found
