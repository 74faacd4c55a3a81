"""One record per op: import fills the registry."""

from gshard_ir.ops import (
    annotation,
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    random,
    reduction,
    resize,
    scan,
    shape,
    special,
)

__all__ = [
    "annotation",
    "collective",
    "contraction",
    "control",
    "elementwise",
    "indexing",
    "random",
    "reduction",
    "resize",
    "scan",
    "shape",
    "special",
]
