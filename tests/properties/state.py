"""What a random program under construction knows, and where its data and annotations come from.

Float data are multiples of 1/2 and every value carries a bound and a grain (it is a multiple of
``2**-grain``), so that sums are exact in any order and sharded must equal unsharded bit for bit. An
inexact element-wise op is followed at once by a squash to small integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gshard_ir.builder import Builder
from gshard_ir.ir import Module, Value
from gshard_ir.mesh import AxisRef, Mesh
from gshard_ir.sharding import DimSharding, Sharding
from gshard_ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, KEY, U8, U32, DType, TensorType

MESHES = [(1,), (2,), (3,), (4,), (6,), (8,), (2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (1, 4), (2, 2, 2)]
SIZES = [1, 2, 3, 4, 5, 6, 7, 8]
MANTISSA = {"f32": 24, "f64": 53, "f16": 11, "bf16": 8}
FLOATS, INTS = (F32, F64, F16, BF16), (I32, I8, I64, U8, U32)


class Chooser(Protocol):
    """A source of decisions: hypothesis draws or a seeded generator."""

    def below(self, n: int) -> int:
        """Return an integer in ``[0, n)``."""
        ...


@dataclass(frozen=True)
class Fact:
    """What is known of a value: ``|v| <= bound`` and ``v`` is a multiple of ``2**-grain`` (NaN aside)."""

    bound: float = math.inf
    grain: int = 0


@dataclass
class Program:
    """A random module with arguments for it."""

    module: Module
    args: list[np.ndarray[Any, Any]]


@dataclass
class State:
    choose: Chooser
    mesh: Mesh
    exact_only: bool = False
    builder: Builder = field(default_factory=Builder)
    values: list[Value] = field(default_factory=list)
    facts: dict[Value, Fact] = field(default_factory=dict)
    args: list[np.ndarray[Any, Any]] = field(default_factory=list)
    shardings: list[Sharding | None] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[self.choose.below(len(items))]

    def chance(self, one_in: int) -> bool:
        return self.choose.below(one_in) == 0

    def add(self, name: str, *operands: Value, fact: Fact | None = None, **attrs: Any) -> Value | None:
        """Add an op unless its result could be inexact; None then."""
        if fact is not None and not fits(operands[0].dtype if operands else attrs["dtype"], fact):
            return None
        (value,) = self.builder.add(name, operands, hint=f"v{len(self.builder.ops)}", **attrs)
        self.used.add(name)
        self.facts[value] = fact or Fact()
        return value

    def some(self, ok: Callable[[Value], bool]) -> Value | None:
        """Pick one of the values so far that satisfies ``ok``, recent ones twice as likely."""
        found = [v for v in self.values if ok(v)]
        found += [v for v in found if v in self.values[-4:]]
        return self.pick(found) if found else None

    def fact(self, *values: Value) -> Fact:
        """Join of the facts of several values."""
        facts = [self.facts[v] for v in values]
        return Fact(max(f.bound for f in facts), max(f.grain for f in facts))


def fits(dtype: DType, fact: Fact) -> bool:
    return not dtype.is_float or fact.bound * 2**fact.grain <= 2 ** MANTISSA[dtype.name]


def numeric(v: Value) -> bool:
    return v.dtype.is_numeric


def is_float(v: Value) -> bool:
    return v.dtype.is_float


def splat(s: State, number: float | bool, like: Value) -> Value:
    value = s.builder("constant", value=number, dtype=like.dtype, shape=like.shape)
    s.used.add("constant")
    s.facts[value] = Fact(abs(float(number)), 2)
    return value


def squash(s: State, x: Value) -> Value | None:
    """Small integers again: floor of x clamped to [-3, 3]."""
    y = s.builder("max", x, splat(s, -3.0, x))
    y = s.builder("min", y, splat(s, 3.0, x))
    s.facts[y] = Fact(3, 0)
    return s.add("floor", y, fact=Fact(3, 0))


def random_shape(s: State, least: int) -> tuple[int, ...]:
    rank = max(least, s.pick([0, 1, 2, 2, 3]))
    return tuple(0 if s.chance(60) else s.pick(SIZES) for _ in range(rank))


def random_sharding(s: State, rank: int) -> Sharding:
    """A legal annotation: distinct axes, sometimes several on a dim, closed, open, of a later round, forbidden."""
    pool = [AxisRef(n) for n in s.mesh.names]
    if s.chance(8):
        pool = [ref for name, size in zip(s.mesh.names, s.mesh.sizes, strict=True) for ref in pieces(name, size)]
    dims: list[list[AxisRef]] = [[] for _ in range(rank)]
    for _ in range(len(pool)):
        ref = pool.pop(s.choose.below(len(pool)))
        if rank and not s.chance(6):
            dims[s.choose.below(rank)].append(ref)
        elif s.chance(6):
            pool.append(ref)
            break
    forbidden = (pool[0],) if pool and s.chance(8) else ()
    made = []
    for axes in dims:
        opened = s.chance(2)
        made.append(DimSharding(tuple(axes), opened, 1 if axes and s.chance(6) else 0))
    return Sharding(tuple(made), forbidden)


def pieces(name: str, size: int) -> list[AxisRef]:
    factor = next((p for p in (2, 3) if size % p == 0 and size > p), 0)
    return [AxisRef(name, 1, factor), AxisRef(name, factor, size // factor)] if factor else [AxisRef(name)]


def parameter(s: State, dtype: DType, shape: tuple[int, ...], low: int = -8, high: int = 9) -> Value:
    """Add a parameter with data of mixed signs, ties and sometimes a NaN."""
    rng = np.random.default_rng(s.choose.below(1 << 16))
    value = s.builder.param(TensorType(dtype, shape), f"p{len(s.args)}")
    if dtype == KEY:
        array = rng.integers(0, 1 << 32, (*shape, 2), dtype=np.uint32)
    elif dtype == BOOL:
        array = rng.integers(0, 2, shape).astype(bool)
    elif dtype.is_float:
        array = np.asarray(rng.integers(low, high, shape) / 2, dtype=dtype.numpy())
        if array.size and s.chance(10):
            array[tuple(rng.integers(0, n) for n in shape)] = np.nan
    else:
        array = rng.integers(max(low, 0) if dtype.kind == "u" else low, high, shape).astype(dtype.numpy())
    s.args.append(np.asarray(array))
    s.facts[value] = Fact(4, 1) if dtype.is_float else Fact(max(-low, high), 0)
    s.shardings.append(random_sharding(s, len(shape)) if shape and not s.chance(5) else None)
    s.values.append(value)
    return value
