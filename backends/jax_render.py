"""What the renderers of ops share: the file being written, and operands spelled out to their full type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from gshard_ir.backends.py_code import ATOM, Code, jnp_dtype, strong, tuple_text
from gshard_ir.ir import Attr, Op
from gshard_ir.mesh import Mesh
from gshard_ir.types import TensorType


@dataclass
class Context:
    """What a renderer may ask of the file being written: the mesh, safe axis names, helpers to carry along."""

    mesh: Mesh
    axis_names: Mapping[str, str]
    helpers: set[str] = field(default_factory=set)

    def call(self, helper: str, *args: str) -> str:
        """Call a helper of the prelude and remember that the file needs it."""
        self.helpers.add(helper)
        return f"{helper}({', '.join(args)})"

    def axes(self, axes: Attr) -> tuple[str, ...]:
        """Axes of an attribute under their names in the emitted file."""
        return tuple(self.axis_names[str(a)] for a in cast("tuple[str, ...]", axes))


Renderer = Callable[[Context, Op, Sequence[Code]], Code]


def ints(attr: Attr) -> tuple[int, ...]:
    """An attribute that holds integers."""
    return cast("tuple[int, ...]", attr)


def full(code: Code, type_: TensorType) -> Code:
    """The code of an array of exactly the type's shape and dtype."""
    if code.is_literal:
        if not type_.shape:
            return strong(code)
        return code_of(_filled(code, type_), type_)
    if code.shape == type_.shape:
        return code
    return code_of(f"jnp.broadcast_to({code.text}, {tuple_text(type_.shape)})", type_)


def _filled(code: Code, type_: TensorType) -> str:
    shape, dtype = tuple_text(type_.shape), jnp_dtype(type_.dtype)
    if code.text in ("0", "0.0", "False"):
        return f"jnp.zeros({shape}, {dtype})"
    if code.text in ("1", "1.0", "True"):
        return f"jnp.ones({shape}, {dtype})"
    return f"jnp.full({shape}, {code.text}, {dtype})"


def code_of(text: str, type_: TensorType, bind: int = ATOM) -> Code:
    """Code whose value has exactly the given type."""
    return Code(text, type_.shape, type_.dtype, bind)


def fulls(op: Op, operands: Sequence[Code]) -> list[Code]:
    """Each operand spelled out."""
    return [full(c, v.type) for c, v in zip(operands, op.operands, strict=True)]


def joint(operands: Sequence[Code]) -> tuple[int, ...]:
    """The shape that the codes of element-wise operands broadcast to, thin where all are."""
    return np.broadcast_shapes(*(c.shape for c in operands))
