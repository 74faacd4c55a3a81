"""One function per kind of step that a random program may take; each returns None where it does not apply."""

from __future__ import annotations

import math
from collections.abc import Callable

from properties.state import (
    SIZES,
    Fact,
    State,
    fits,
    is_float,
    numeric,
    parameter,
    random_shape,
    random_sharding,
    splat,
    squash,
)

from gshard_ir.ir import Value
from gshard_ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, KEY, U8


def unary(s: State) -> Value | None:
    x = s.some(numeric)
    if x is None:
        return None
    f = s.facts[x]
    name = s.pick(
        ["neg", "abs", "sign", "stop_gradient"] + (["floor", "ceil", "round", "trunc"] if is_float(x) else ["not"])
    )
    if x.dtype.kind == "u" and name == "neg":
        name = "abs"
    fact = f if name in ("neg", "abs", "stop_gradient") else Fact(1, 0) if name == "sign" else Fact(f.bound + 1, 0)
    return s.add(name, x, fact=fact)


INEXACT = [
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "logistic", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "log2", "log10", "cbrt", "erf", "erfc", "erf_inv", "lgamma",
    "digamma",
]  # fmt: skip


def inexact(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype in (F32, F64))
    if x is None or s.exact_only:
        return None
    # The sign of a zero may differ between layouts, and rsqrt would show it.
    y = s.add(s.pick(INEXACT), s.builder("add", x, splat(s, 0.0, x)))
    return None if y is None else squash(s, y)


def inexact_binary(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype in (F32, F64))
    y = None if x is None else partner(s, x)
    if x is None or y is None or s.exact_only:
        return None
    name = s.pick(["div", "pow", "rem", "mod", "floor_div", "atan2", "hypot", "logaddexp"])
    if name == "div":
        # Linear in x: a pending x is divided piece by piece, and only quotients that are exact add up to the same.
        power = s.builder("select", s.builder("gt", y, splat(s, 0.0, y)), splat(s, 2.0, y), splat(s, -0.5, y))
        return s.add(name, x, power, fact=Fact(2 * s.facts[x].bound, s.facts[x].grain + 1))
    divisor = s.builder("max", s.builder("abs", y), splat(s, 0.5, y))
    z = s.add(name, x, divisor)
    return None if z is None else squash(s, z)


def partner(s: State, x: Value) -> Value | None:
    return s.some(lambda v: v.type == x.type)


def binary(s: State) -> Value | None:
    x = s.some(numeric)
    y = None if x is None else partner(s, x)
    if x is None or y is None:
        return None
    a, b = s.facts[x], s.facts[y]
    name = s.pick(
        ["add", "sub", "mul", "max", "min", "fmax", "fmin"]
        + ([] if is_float(x) else ["floor_div", "mod", "rem", "and", "or", "xor"])
    )
    if name == "mul":
        return s.add(name, x, y, fact=Fact(a.bound * b.bound, a.grain + b.grain))
    bound = a.bound + b.bound if name in ("add", "sub") else max(a.bound, b.bound)
    return s.add(name, x, y, fact=Fact(bound, max(a.grain, b.grain)))


def bits(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype.is_integer)
    y = None if x is None else partner(s, x)
    if x is None or y is None:
        return None
    name = s.pick(["shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count", "clz"])
    return s.add(name, x, y) if name.startswith("shift") else s.add(name, x, fact=Fact(64, 0))


def scaled(s: State) -> Value | None:
    x = s.some(is_float)
    if x is None:
        return None
    f, number = s.facts[x], s.pick([0.0, -1.0, 2.0, 0.5])
    name = s.pick(["mul", "add", "div"])
    if name == "div":
        return s.add("div", x, splat(s, 2.0, x), fact=Fact(f.bound, f.grain + 1))
    fact = Fact(f.bound * abs(number) + (0 if name == "mul" else f.bound + abs(number)), f.grain + 1)
    return s.add(name, x, splat(s, number, x), fact=fact)


def compare(s: State) -> Value | None:
    x = s.some(numeric)
    y = None if x is None else partner(s, x)
    if x is None or y is None:
        return None
    return s.add(s.pick(["eq", "ne", "lt", "le", "gt", "ge"]), x, y)


def logic(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype == BOOL)
    y = None if x is None else partner(s, x)
    if x is None or y is None:
        return None
    return s.add("not", x) if s.chance(4) else s.add(s.pick(["and", "or", "xor"]), x, y)


def test_float(s: State) -> Value | None:
    x = s.some(is_float)
    return None if x is None else s.add(s.pick(["is_nan", "is_finite"]), x)


def select(s: State) -> Value | None:
    pred = s.some(lambda v: v.dtype == BOOL)
    x = None if pred is None else s.some(lambda v: v.shape == pred.shape and v.dtype != KEY)
    y = None if x is None else partner(s, x)
    if pred is None or x is None or y is None:
        return None
    if s.chance(3) and numeric(x):
        y = splat(s, 0, x)
    return s.add("select", pred, x, y, fact=s.fact(x, y))


def cast(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype != KEY and s.facts[v].bound < 2**20)
    if x is None:
        return None
    to = s.pick([F32, F32, I32, BOOL, BF16, F16] + ([] if s.exact_only else [F64, I64, I8, U8]))
    f = s.facts[x] if x.dtype != BOOL else Fact(1, 0)
    if x.dtype.is_integer and not math.isfinite(f.bound):
        return None
    if not fits(to, f) or (x.dtype.is_float and to.kind == "u") or (to.itemsize == 1 and f.bound > 100):
        return None
    return s.add("cast", x, dtype=to, fact=f)


def einsum(s: State) -> Value | None:
    x = s.some(lambda v: numeric(v) and v.type.rank > 0)
    if x is None:
        return None
    y = s.some(lambda v: v.dtype == x.dtype)
    assert y is not None
    letters = "abcdefgh"
    left = letters[: x.type.rank]
    sizes = dict(zip(left, x.shape, strict=True))
    right, fresh = "", list(letters[x.type.rank :])
    for n in y.shape:
        same = [c for c in left if sizes[c] == n and c not in right]
        letter = s.pick(same) if same and not s.chance(3) else fresh.pop(0)
        sizes[letter] = n
        right += letter
    pool = list(dict.fromkeys(left + right))
    if s.chance(6):
        right, pool = "", list(left)
    out = ""
    while pool:
        letter = pool.pop(s.choose.below(len(pool)))
        if not s.chance(3) and len(out) < 3:
            out += letter
    summed = math.prod(sizes[c] for c in set(left + right) - set(out))
    a, b = s.facts[x], s.facts[y]
    if right or (y.type.rank == 0 and "," in right):
        fact = Fact(a.bound * b.bound * max(1, summed), a.grain + b.grain)
        return s.add("einsum", x, y, spec=f"{left},{right}->{out}", fact=fact)
    return s.add("einsum", x, spec=f"{left}->{out}", fact=Fact(a.bound * max(1, summed), a.grain))


def axes_of(s: State, x: Value) -> tuple[int, ...]:
    return tuple(d for d in range(x.type.rank) if s.chance(2)) or (x.type.rank - 1,)


def reduce_(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY)
    if x is None:
        return None
    axes = axes_of(s, x)
    count = math.prod(x.shape[a] for a in axes)
    f = s.facts[x]
    if x.dtype == BOOL:
        return s.add(s.pick(["reduce_and", "reduce_or"]), x, axes=axes)
    name = s.pick(["reduce_sum", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])
    if name in ("reduce_max", "reduce_min") and count == 0:
        return None
    fact = f
    if name == "reduce_sum":
        fact = Fact(f.bound * max(1, count), f.grain)
    elif name == "reduce_prod":
        fact = Fact(max(1.0, f.bound) ** min(count, 60), f.grain * count)
    return s.add(name, x, axes=axes, fact=fact)


def arg_select(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY and min(v.shape) > 0)
    if x is None:
        return None
    return s.add(s.pick(["argmax", "argmin"]), x, axis=s.choose.below(x.type.rank))


def scan(s: State) -> Value | None:
    x = s.some(lambda v: numeric(v) and v.type.rank > 0)
    if x is None:
        return None
    axis, f = s.choose.below(x.type.rank), s.facts[x]
    name, exclusive, n = s.pick(["cumsum", "cumsum", "cumprod", "cummax", "cummin"]), s.chance(3), x.shape[axis]
    facts = {"cumsum": Fact(f.bound * max(1, n), f.grain), "cumprod": Fact(max(1.0, f.bound) ** n, f.grain * max(1, n))}
    y = s.add(name, x, axis=axis, reverse=s.chance(2), exclusive=exclusive, fact=facts.get(name, f))
    if y is not None and name not in facts and exclusive:
        # The largest of nothing is the extreme of the type.
        s.facts[y] = Fact()
        return squash(s, y) if is_float(x) else y
    return y


def log_scan(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype in (F32, F64) and v.type.rank > 0)
    if x is None or s.exact_only:
        return None
    y = s.add("cumlogsumexp", x, axis=s.choose.below(x.type.rank), reverse=s.chance(2), exclusive=s.chance(3))
    return None if y is None else squash(s, y)


def broadcast(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank <= 2 and v.dtype != KEY)
    if x is None:
        return None
    shape, dims = list(x.shape), list(range(x.type.rank))
    for _ in range(1 + s.choose.below(2)):
        at = s.choose.below(len(shape) + 1)
        shape.insert(at, s.pick(SIZES))
        dims = [d + (d >= at) for d in dims]
    return s.add("broadcast", x, shape=tuple(shape), dims=tuple(dims), fact=s.facts[x])


def reshape(s: State) -> Value | None:
    x = s.some(lambda v: v.dtype != KEY and v.type.rank > 0)
    if x is None:
        return None
    shape: list[int] = []
    for n in x.shape:
        divisors = [d for d in range(1, n + 1) if n % d == 0] or [0]
        cut = s.pick(divisors)
        if s.chance(3) and cut:
            shape += [cut, n // cut]
        elif s.chance(3) and shape:
            shape[-1] *= n
        else:
            shape.append(n)
    if s.chance(4):
        shape.insert(s.choose.below(len(shape) + 1), 1)
    if len(shape) > 4:
        shape = [math.prod(x.shape)]
    return s.add("reshape", x, shape=tuple(shape), fact=s.facts[x])


def transpose(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 1 and v.dtype != KEY)
    if x is None:
        return None
    pool, perm = list(range(x.type.rank)), []
    while pool:
        perm.append(pool.pop(s.choose.below(len(pool))))
    return s.add("transpose", x, perm=tuple(perm), fact=s.facts[x])


def concat(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY)
    if x is None:
        return None
    axis = s.choose.below(x.type.rank)

    def joins(v: Value) -> bool:
        same = v.dtype == x.dtype and v.type.rank == x.type.rank
        return same and all(a == b for d, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if d != axis)

    parts = [x, *(p for p in (s.some(joins) for _ in range(1 + s.choose.below(2))) if p is not None)]
    return s.add("concat", *parts, axis=axis, fact=s.fact(*parts))


def slice_(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY and min(v.shape) > 0)
    if x is None:
        return None
    starts, limits, strides = [], [], []
    for n in x.shape:
        whole = s.chance(2)
        start = 0 if whole else s.choose.below(n)
        limit = n if whole else start + 1 + s.choose.below(n - start)
        starts.append(start)
        limits.append(limit)
        strides.append(1 if whole else 1 + s.choose.below(2))
    return s.add("slice", x, starts=tuple(starts), limits=tuple(limits), strides=tuple(strides), fact=s.facts[x])


def pad(s: State) -> Value | None:
    x = s.some(lambda v: numeric(v) and v.type.rank > 0)
    if x is None:
        return None
    low = tuple(s.choose.below(3) if s.chance(2) else 0 for _ in x.shape)
    high = tuple(s.choose.below(2) for _ in x.shape)
    f = s.facts[x]
    return s.add("pad", x, low=low, high=high, value=s.pick([0, 1, 2]), fact=Fact(max(2, f.bound), f.grain))


def reverse(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY)
    return None if x is None else s.add("reverse", x, axes=axes_of(s, x), fact=s.facts[x])


def iota(s: State) -> Value | None:
    shape = random_shape(s, 1)
    dtype = s.pick([F32, I32, I32])
    fact = Fact(max(shape), 0)
    return s.add("iota", dtype=dtype, shape=shape, axis=s.choose.below(len(shape)), fact=fact)


def take(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype not in (KEY,) and min(v.shape) > 0)
    if x is None:
        return None
    axis = s.choose.below(x.type.rank)
    index = s.some(lambda v: v.dtype.is_integer and v.type.rank + x.type.rank <= 4)
    if index is None or s.chance(2):
        n = x.shape[axis]
        index = parameter(s, s.pick([I32, I32, I32, I8, U8]), random_shape(s, 0)[:2], low=-n - 2, high=n + 3)
    if index.type.rank + x.type.rank > 5:
        return None
    # Integer results out of range are the extreme of the type; floats are NaN.
    fact = s.facts[x] if is_float(x) else Fact()
    return s.add("take", x, index, axis=axis, fact=fact)


def draw(s: State) -> Value | None:
    key = s.some(lambda v: v.dtype == KEY)
    if key is None:
        key = parameter(s, KEY, ())
    if s.chance(2):
        number = s.builder.constant(s.choose.below(5), I32)
        s.facts[number] = Fact(5, 0)
        key = s.add("fold_in", key, number)
        assert key is not None
    u = s.add("uniform", key, shape=random_shape(s, 1))
    if u is None:
        return None
    eight = s.builder("mul", u, splat(s, 8.0, u))
    s.facts[eight] = Fact(8, 30)
    return s.add("floor", eight, fact=Fact(8, 0))


def annotate(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY)
    if x is None:
        return None
    return s.add("annotate", x, sharding=random_sharding(s, x.type.rank), how="annotation", fact=s.facts[x])


def like(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY)
    y = None if x is None else s.some(lambda v: v.shape == x.shape)
    if x is None or y is None:
        return None
    return s.add("like", x, y, fact=s.facts[x])


def barrier(s: State) -> Value | None:
    x = s.some(lambda v: v.type.rank > 0 and v.dtype != KEY)
    direction = s.pick(["forward", "backward", "both"])
    return None if x is None else s.add("barrier", x, direction=direction, fact=s.facts[x])


MAKERS: list[Callable[[State], Value | None]] = [
    unary, binary, scaled, compare, logic, test_float, select, cast, einsum, einsum, reduce_, reduce_, arg_select,
    scan, broadcast, reshape, transpose, concat, slice_, pad, reverse, iota, take, draw, annotate, annotate, annotate,
    annotate, like, barrier, inexact, inexact_binary, take, arg_select, scan, reshape, einsum,
    inexact, inexact, inexact_binary, bits, scan, log_scan,
]  # fmt: skip
