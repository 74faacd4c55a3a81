"""What an op is, in one record, and the registry of all records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.sharding import Layout
from gshard_ir.types import TensorType

Types = tuple[TensorType, ...]
Array = np.ndarray[Any, np.dtype[Any]]


class OpError(Exception):
    """A rejected application of an op: what, the numbers, one edit; the caller knows where.

    ``operand`` is the index of the operand at fault, if one is.
    """

    def __init__(self, message: str, *notes: str, suggestion: str | None = None, operand: int | None = None) -> None:
        super().__init__(message)
        self.message, self.notes, self.suggestion, self.operand = message, notes, suggestion, operand


@dataclass(frozen=True)
class OpDef:
    """One op: the single source of its meaning for every pass and backend.

    - ``operands``: names; a trailing ``*`` takes any number. ``attrs``: the attribute names, all required.
    - ``infer(types, attrs)``: result types; raises :class:`OpError`. Reads ``dtype`` and ``shape`` alone.
    - ``rule(types, attrs)``: the factor rule on *global* types.
    - ``reference(*arrays, **attrs)``: the numpy meaning (an array, or a tuple when ``results`` > 1).
    - ``localize(attrs, operands, results)``: attributes for one device, where an attribute holds a global size;
      the arguments after ``attrs`` are the *local* operand and result types.
    - ``family``: ``elementwise``, ``movement``, ``broadcast``, ``contraction``, ``reduction``, ``lookup``,
      ``source`` (no tensor operands: rebuilt per use), ``annotation``, ``collective`` or ``local``; orders propagation.
    - ``examples``: argument types as text and attributes, for the validator and the docs.
    """

    name: str
    operands: tuple[str, ...]
    infer: Callable[[Types, Attrs], Types]
    reference: Callable[..., Any]
    rule: Callable[[Types, Attrs], Rule] | None = None
    attrs: tuple[str, ...] = ()
    localize: Callable[[Attrs, Types, Types], Attrs] | None = None
    family: str = "elementwise"
    examples: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = ()
    doc: str = ""
    regions: int = 0

    @property
    def variadic(self) -> bool:
        return bool(self.operands) and self.operands[-1].endswith("*")


REGISTRY: dict[str, OpDef] = {}


def define(op: OpDef) -> OpDef:
    """Register a record. A second one under the same name is an error: it catches a double import."""
    if op.name in REGISTRY:
        raise ValueError(f"op {op.name} is defined twice")
    REGISTRY[op.name] = op
    return op


def opdef(name: str) -> OpDef:
    """Look an op up; raise ``KeyError`` for an unknown one."""
    import gshard_ir.ops  # noqa: F401  (fills the registry)

    return REGISTRY[name]


def infer(name: str, types: Sequence[TensorType], attrs: Attrs) -> Types:
    """Check operand count, attributes and types of one application and return the result types."""
    op = opdef(name)
    fixed = len(op.operands) - op.variadic
    if len(types) < fixed or (len(types) > fixed and not op.variadic):
        raise OpError(f"{name} takes {'at least ' * op.variadic}{fixed} operands, found {len(types)}")
    if set(attrs) != set(op.attrs):
        raise OpError(f"{name} has attributes {sorted(op.attrs)}, found {sorted(attrs)}")
    return op.infer(tuple(types), attrs)


def rule_of(name: str, types: Sequence[TensorType], attrs: Attrs) -> Rule:
    """Return the factor rule of one application on global types."""
    op = opdef(name)
    if op.rule is None:
        raise KeyError(f"{name} runs on one device: it has no factor rule")
    return op.rule(tuple(types), attrs)


__all__ = ["REGISTRY", "Array", "Layout", "OpDef", "OpError", "Types", "define", "field", "infer", "opdef", "rule_of"]
