"""What the op records share: typed attribute access, checks that complain well, rule drafts, numpy helpers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from gshard_ir.factors import Dims, Factor, Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpError, Types
from gshard_ir.types import BOOL, KEY, DType, TensorType

# ---- attributes


def get_int(attrs: Attrs, name: str) -> int:
    """Return an integer attribute; raise :class:`OpError` when it is something else."""
    value = attrs[name]
    if not isinstance(value, int) or isinstance(value, bool):
        raise OpError(f"{name} must be an integer, found {value!r}", suggestion=f"{name}=0")
    return value


def get_ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    """Return an attribute that is a tuple of integers."""
    value = attrs[name]
    if not isinstance(value, tuple) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        raise OpError(f"{name} must be a list of integers, found {value!r}", suggestion=f"{name}=(0,)")
    return value  # type: ignore[return-value]


def get_shape(attrs: Attrs, name: str = "shape") -> tuple[int, ...]:
    """Return an attribute that is a shape: non-negative integers."""
    shape = get_ints(attrs, name)
    for d, n in enumerate(shape):
        if n < 0:
            raise OpError(f"dim {d} of {name} {show(shape)} is negative", suggestion=f"{name}={show(map(abs, shape))}")
    return shape


def get_dtype(attrs: Attrs, name: str = "dtype") -> DType:
    """Return an attribute that is an element type."""
    value = attrs[name]
    if not isinstance(value, DType):
        raise OpError(f"{name} must be an element type, found {value!r}", suggestion=f"{name}=f32")
    return value


def get_names(attrs: Attrs, name: str = "axes") -> tuple[str, ...]:
    """Return an attribute that lists mesh axes, each once, at least one."""
    value = attrs[name]
    if not isinstance(value, tuple) or not all(isinstance(v, str) for v in value):
        raise OpError(f"{name} must be a list of mesh axes, found {value!r}")
    if not value or len(set(value)) < len(value):
        raise OpError(f"{name} must name at least one mesh axis and each one once, found {value!r}")
    return value  # type: ignore[return-value]


# ---- checks


def show(sizes: Iterable[int]) -> str:
    """Write sizes as ``[2,3]``."""
    return f"[{','.join(map(str, sizes))}]"


def plain(type_: TensorType) -> TensorType:
    """Drop what a local type says about the whole."""
    return TensorType(type_.dtype, type_.shape)


def require(
    name: str,
    types: Types,
    accepts: Callable[[DType], bool],
    what: str,
    instead: str,
    only: Sequence[int] | None = None,
) -> None:
    """Refuse operands whose element type is not accepted; ``instead`` is the type to cast to."""
    for i in range(len(types)) if only is None else only:
        if not accepts(types[i].dtype):
            edit = None if types[i].dtype == KEY else f"cast operand {i + 1} to {instead}"
            raise OpError(
                f"{name} takes {what} operands, operand {i + 1} is {plain(types[i])}", suggestion=edit, operand=i
            )


def require_same(name: str, types: Types, only: Sequence[int] | None = None) -> None:
    """Refuse operands of unequal shape or element type; the first one sets the measure."""
    which = list(range(len(types)) if only is None else only)
    first = types[which[0]]
    for i in which[1:]:
        found = f"operand {which[0] + 1} is {plain(first)}, operand {i + 1} is {plain(types[i])}"
        if types[i].dtype != first.dtype:
            edit = f"cast operand {i + 1} to {first.dtype}"
            raise OpError(f"{name} takes operands of one element type", found, suggestion=edit, operand=i)
        if types[i].shape != first.shape:
            wide = max((first, types[i]), key=lambda t: (t.rank, t.size))
            narrow = i if wide is first else which[0]
            edit = f"broadcast or reshape operand {narrow + 1} to {show(wide.shape)}"
            raise OpError(f"{name} takes operands of one shape", found, suggestion=edit, operand=i)


def require_axis(name: str, type_: TensorType, axis: int, attr: str = "axis", operand: int | None = 0) -> int:
    """Refuse a dim number that the tensor does not have; ``operand`` is which one it is, if it is one."""
    if not 0 <= axis < type_.rank:
        edit = f"{attr}={type_.rank - 1}" if type_.rank else None
        raise OpError(
            f"{name} along dim {axis} of {plain(type_)}: it has {type_.rank} dims, numbered from 0",
            suggestion=edit,
            operand=operand,
        )
    return axis


def require_axes(name: str, type_: TensorType, axes: Sequence[int], attr: str = "axes") -> None:
    """Refuse dim numbers that are out of range or repeated."""
    for axis in axes:
        require_axis(name, type_, axis, attr)
    if len(set(axes)) < len(axes):
        edit = f"{attr}={show(dict.fromkeys(axes))}"
        raise OpError(f"{name}: {attr} {show(axes)} names a dim twice", suggestion=edit, operand=0)


def is_scalar(name: str, types: Types, i: int, dtype: Callable[[DType], bool], what: str) -> None:
    """Refuse operand ``i`` unless it is a scalar of the given kind."""
    if types[i].shape or not dtype(types[i].dtype):
        raise OpError(f"operand {i + 1} of {name} must be {what}, found {plain(types[i])}", operand=i)


def float_only(dtype: DType) -> bool:
    """Accept floats."""
    return dtype.is_float


def numeric(dtype: DType) -> bool:
    """Accept floats and integers."""
    return dtype.is_numeric


def bits(dtype: DType) -> bool:
    """Accept integers and bool."""
    return dtype.is_integer or dtype == BOOL


def no_keys(name: str, types: Types) -> None:
    """Refuse random keys, which cannot be moved element by element."""
    require(name, types, not_key, "number or bool", "u32")


def not_key(dtype: DType) -> bool:
    """Accept everything but random keys."""
    return dtype != KEY


def check_value(name: str, value: object, dtype: DType) -> int | float | bool:
    """Return a Python number that an element of ``dtype`` can hold; raise :class:`OpError` for any other."""
    if dtype == BOOL:
        if isinstance(value, int) and value in (0, 1):
            return bool(value)
        raise OpError(f"{name} of bool takes true or false, found {value!r}", suggestion="true")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise OpError(f"{name} of {dtype} takes a number, found {value!r}", suggestion="0")
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy())
        if not isinstance(value, int):
            edit = f"{int(value)}" if math.isfinite(value) else "0"
            raise OpError(f"{name} of {dtype} takes an integer, found {value!r}", suggestion=edit)
        if not info.min <= value <= info.max:
            edit = f"{min(max(value, int(info.min)), int(info.max))}"
            raise OpError(f"{value} does not fit {dtype}: {info.min} to {info.max}", suggestion=edit)
    return value


# ---- rules


class Draft:
    """The factors of a rule under construction."""

    def __init__(self) -> None:
        self.factors: list[Factor] = []

    def new(self, name: str, size: int, mark: str = "pass", combine: str = "") -> tuple[int, ...]:
        """Add a factor and return it as a dim of its own."""
        self.factors.append(Factor(name, size, mark, combine))
        return (len(self.factors) - 1,)

    def dims(self, shape: Sequence[int], prefix: str = "d") -> Dims:
        """Add one passing factor per dim, named ``d0 d1 ..``."""
        return tuple(self.new(f"{prefix}{d}", n) for d, n in enumerate(shape))

    def build(self, operands: Sequence[Dims], results: Sequence[Dims], linear: Sequence[Iterable[int]] = ()) -> Rule:
        """Close the rule."""
        return Rule(tuple(self.factors), tuple(operands), tuple(results), tuple(map(frozenset, linear)))


def sums(dtype: DType, *groups: Iterable[int]) -> tuple[frozenset[int], ...]:
    """Return linear groups, or none when the element type has no sum."""
    return tuple(map(frozenset, groups)) if dtype.is_numeric else ()


def same_dims(types: Types, linear: Sequence[Iterable[int]] = (), results: int = 1) -> Rule:
    """Return the rule of an element-wise op."""
    draft = Draft()
    dims = draft.dims(types[0].shape)
    return draft.build((dims,) * len(types), (dims,) * results, linear)


def only_result(shape: Sequence[int], operands: Sequence[Dims] = ()) -> Rule:
    """Return the rule of an op that makes a tensor from nothing: every device can make its shard."""
    draft = Draft()
    return draft.build(operands, (draft.dims(shape),))


def result_shape(attrs: Attrs, operands: Types, results: Types) -> Attrs:
    """``localize`` of an op whose attribute ``shape`` is that of its result."""
    return {**attrs, "shape": results[0].shape}


# ---- numpy


def silent(function: Callable[..., Any]) -> Callable[..., Array]:
    """Wrap a numpy meaning: no warnings, and always an array (numpy turns 0-d arrays into scalars)."""

    @functools.wraps(function)
    def quiet(*arrays: Array, **attrs: Any) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*arrays, **attrs))

    return quiet


def in_f32(function: Callable[..., Any]) -> Callable[..., Array]:
    """Compute 16-bit floats in f32 and round once at the end."""

    @functools.wraps(function)
    def wide(*arrays: Array, **attrs: Any) -> Array:
        dtype = arrays[0].dtype
        if dtype.itemsize == 2:
            arrays = tuple(a.astype(np.float32) for a in arrays)
        return np.asarray(function(*arrays, **attrs)).astype(dtype, copy=False)

    return wide


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the identity of max."""
    if dtype == np.bool_:
        return False
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -math.inf


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the identity of min."""
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else math.inf
