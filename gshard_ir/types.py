"""Element types and tensor types. Values only, no algorithms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gshard_ir.sharding import Layout


@dataclass(frozen=True)
class DType:
    """An element type. ``kind``: f float, i signed, u unsigned, b bool, k random key (two u32 words)."""

    name: str
    kind: str
    itemsize: int

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_numeric(self) -> bool:
        return self.kind in "fiu"

    def numpy(self) -> np.dtype[Any]:
        """Return the numpy dtype (bf16 through ml_dtypes, which jax brings; a key is u32 words)."""
        if self.name == "bf16":
            import ml_dtypes

            bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bf16
        return np.dtype(_NUMPY[self.name])


_NUMPY = {
    "f32": "float32", "f16": "float16", "f64": "float64", "i8": "int8", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u32": "uint32", "bool": "bool", "key": "uint32",
}  # fmt: skip

F32, F16, BF16, F64 = DType("f32", "f", 4), DType("f16", "f", 2), DType("bf16", "f", 2), DType("f64", "f", 8)
I8, I32, I64 = DType("i8", "i", 1), DType("i32", "i", 4), DType("i64", "i", 8)
U8, U32 = DType("u8", "u", 1), DType("u32", "u", 4)
BOOL, KEY = DType("bool", "b", 1), DType("key", "k", 8)

DTYPES: dict[str, DType] = {d.name: d for d in (F32, F16, BF16, F64, I8, I32, I64, U8, U32, BOOL, KEY)}


def dtype_of(array: np.ndarray[Any, Any]) -> DType:
    """Return the element type of a numpy array; raise ``KeyError`` when the language has none for it."""
    names = {"bfloat16": "bf16", **{numpy: ours for ours, numpy in _NUMPY.items() if ours != "key"}}
    return DTYPES[names[array.dtype.name]]


@dataclass(frozen=True)
class TensorType:
    """``dtype[shape]``. In a local program ``shape`` is what one device holds."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        if self.dtype == KEY and not self.shape:
            return "key"
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ShardedType(TensorType):
    """What one device holds of a tensor of global shape ``whole`` laid out as ``layout``.

    ``shape`` is the local shape including padding: dim d has ``ceil(whole[d] / shards)`` rows on
    every device; rows at or past ``whole[d]`` are padding and hold garbage.
    """

    whole: tuple[int, ...]
    layout: Layout

    def __str__(self) -> str:
        return f"{self.dtype}{self.layout.show(self.whole)}"


def same_array(a: TensorType, b: TensorType) -> bool:
    """Compare element type and run-time shape, ignoring how either is sharded."""
    return a.dtype == b.dtype and a.shape == b.shape
