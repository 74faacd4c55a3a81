"""What the parser hands to the lowering: one frozen dataclass per construct of the language.

Every node has a keyword-only ``span``, the exact source range of the construct; it takes no part in
comparisons, so two trees are equal when they say the same thing. Nothing here is resolved: names
are text, sizes are expressions, and a construct that is not built yet still has its node. No path
from the root is longer than `parser.MAX_NESTING`, so recursive functions over a tree are safe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from gshard_ir.source import Span


@dataclass(frozen=True, kw_only=True)
class Node:
    """Base of all nodes."""

    span: Span = field(compare=False, repr=False)


# -- expressions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Name(Node):
    """An identifier: a value, size, def, op, struct, mesh axis or element type. ``_`` only as a target."""

    id: str


@dataclass(frozen=True)
class Number(Node):
    """An integer or float literal, never negative (`Unary` holds a sign). ``text`` is as written."""

    value: int | float
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Bool(Node):
    """``True`` or ``False``."""

    value: bool


@dataclass(frozen=True)
class NoneLit(Node):
    """``None``: no value, or a new axis inside a subscript."""


@dataclass(frozen=True)
class String(Node):
    """A string literal, unquoted."""

    value: str


@dataclass(frozen=True)
class EllipsisLit(Node):
    """``...`` inside a subscript."""


@dataclass(frozen=True)
class Placeholder(Node):
    """``_`` (not split) or ``?`` (left open) in a layout list such as ``[expert, _, ?]``."""

    kind: str


@dataclass(frozen=True)
class AxisExpr(Node):
    """A mesh axis in a type, or a sub-axis ``model:(2)2`` anywhere: the piece of ``size`` after a factor ``pre``.

    ``size`` 0 is the whole axis (as in `gshard_ir.mesh.AxisRef`). A whole axis in an expression is a `Name`.
    """

    name: str
    pre: int = 1
    size: int = 0


@dataclass(frozen=True)
class DimPin(Node):
    """An entry of a layout list with a suffix: ``data?`` (open), ``data!1`` (round). Without one it is a bare `Expr`.

    ``axes`` is a `Name`, an `AxisExpr`, a `Placeholder` ``_`` or a `Tuple` of the first two.
    """

    axes: Expr
    open: bool
    round: int = 0


@dataclass(frozen=True)
class Tuple(Node):
    """``a, b`` or ``(a, b)`` or ``()``."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class ListExpr(Node):
    """``[a, b]``: a shape, operands, axes, or a layout (then entries may be `Placeholder` and `DimPin`)."""

    items: tuple[Expr, ...]


@dataclass(frozen=True)
class Unary(Node):
    """``op`` is one of ``- + ~ not``."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary(Node):
    """``op`` is one of ``+ - * / // % ** @ & | ^``. ``op_span`` covers the operator."""

    op: str
    left: Expr
    right: Expr
    op_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Compare(Node):
    """``op`` is one of ``== != < <= > >=``; never chained."""

    op: str
    left: Expr
    right: Expr
    op_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Logical(Node):
    """``op`` is ``and`` or ``or``, on compile-time values."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Conditional(Node):
    """``then if cond else orelse``, on a compile-time ``cond``."""

    cond: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True)
class Keyword(Node):
    """``name=value`` in a call."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Call(Node):
    """``func(args, keywords)``; keyword names are distinct, positional arguments come first."""

    func: Expr
    args: tuple[Expr, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True)
class Attribute(Node):
    """``value.name``: a struct field. ``name_span`` covers the field's name."""

    value: Expr
    name: str
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Slice(Node):
    """``start:stop:step`` in a subscript; a missing part is None."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(frozen=True)
class Subscript(Node):
    """``value[items]``; items may also be `Slice`, `EllipsisLit` and `NoneLit`."""

    value: Expr
    items: tuple[Expr, ...]


Expr: TypeAlias = (
    Name
    | Number
    | Bool
    | NoneLit
    | String
    | EllipsisLit
    | Placeholder
    | AxisExpr
    | DimPin
    | Tuple
    | ListExpr
    | Unary
    | Binary
    | Compare
    | Logical
    | Conditional
    | Call
    | Attribute
    | Slice
    | Subscript
)


# -- types -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DimExpr(Node):
    """One dim of a type: ``64``, ``N``, ``2 * S // E@data?``.

    ``size`` is integer arithmetic (`Name`, `Number`, `Unary`, `Binary`), or None for ``...``. ``axes``,
    ``open`` and ``round`` are the fields of `sharding.DimSharding`: ``64`` is ``(), True, 0``; ``64@_``
    is ``(), False, 0``; ``64@data`` is ``(data,), False, 0``.
    """

    size: Expr | None
    axes: tuple[AxisExpr, ...] = ()
    open: bool = True
    round: int = 0


@dataclass(frozen=True)
class PendingExpr(Node):
    """``+max{model}``: ``kind`` is ``sum`` (nothing written), ``max``, ``min`` or ``prod``."""

    kind: str
    axes: tuple[AxisExpr, ...]


@dataclass(frozen=True)
class TensorTypeExpr(Node):
    """``f32[8@data, N]+{model}!{data}``. ``dtype`` is a key of `types.DTYPES`; a scalar has no dims."""

    dtype: str
    dims: tuple[DimExpr, ...]
    pending: tuple[PendingExpr, ...] = ()
    forbidden: tuple[AxisExpr, ...] = ()


@dataclass(frozen=True)
class NamedType(Node):
    """A name that is no tensor type: a struct, or a word such as ``int``. ``Layer[n]`` has one entry in ``stack``."""

    name: str
    stack: tuple[DimExpr, ...] = ()


@dataclass(frozen=True)
class KeyType(Node):
    """``key``: one random key."""


@dataclass(frozen=True)
class TupleType(Node):
    """``(f32[8], f32[])``."""

    items: tuple[TypeExpr, ...]


TypeExpr: TypeAlias = TensorTypeExpr | NamedType | KeyType | TupleType


# -- statements --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assign(Node):
    """``target = value``; ``x += y`` arrives as ``x = x + y``.

    ``target`` is a `Name` (``_`` discards) or a `Tuple` of targets.
    """

    target: Name | Tuple
    value: Expr


@dataclass(frozen=True)
class ExprStmt(Node):
    """A bare expression: a call for its effect on the enclosing loop, or a doc string."""

    value: Expr


@dataclass(frozen=True)
class Return(Node):
    """``return value``; ``return a, b`` holds a `Tuple`."""

    value: Expr | None


@dataclass(frozen=True)
class For(Node):
    """``for target in iter:``; ``iter`` is any expression: ``range(n)``, ``unroll(n)``, a stacked struct."""

    target: Name | Tuple
    iter: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class While(Node):
    """``while cond:``"""

    cond: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True)
class If(Node):
    """``if cond:`` on a compile-time value; ``elif`` is an `If` alone in ``orelse``."""

    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


Stmt: TypeAlias = Assign | ExprStmt | Return | For | While | If


# -- top level ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImportedName(Node):
    """``name`` or ``name as alias``; ``alias`` is the name that is bound."""

    name: str
    alias: str


@dataclass(frozen=True)
class Import(Node):
    """``from std.moe import a, b as c``: ``module`` is ``std.moe``."""

    module: str
    names: tuple[ImportedName, ...]


@dataclass(frozen=True)
class MeshAxis(Node):
    """``data=2``"""

    name: str
    size: Expr


@dataclass(frozen=True)
class MeshDecl(Node):
    """``mesh(data=2, model=4)``, axes major to minor."""

    axes: tuple[MeshAxis, ...]


@dataclass(frozen=True)
class ConstDecl(Node):
    """``const A, B = 1, 2``: as many values as names."""

    names: tuple[Name, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class FieldDecl(Node):
    """``wg: f32[M, E]``"""

    name: str
    type: TypeExpr


@dataclass(frozen=True)
class StructDecl(Node):
    """``struct Name:`` and its fields. ``name_span`` covers the name."""

    name: str
    fields: tuple[FieldDecl, ...]
    name_span: Span = field(compare=False, repr=False)


@dataclass(frozen=True)
class Param(Node):
    """``name: type = default``; a parameter without a type is a compile-time option or takes its argument's type."""

    name: str
    type: TypeExpr | None
    default: Expr | None


@dataclass(frozen=True)
class Decorator(Node):
    """``@remat`` or ``@manual(data)``."""

    name: str
    args: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Def(Node):
    """``def name[sizes](params) -> result: body``; ``result`` is None when no ``->`` was written.

    ``span`` runs from the first decorator to the end of the body; ``name_span`` covers the name.
    """

    name: str
    sizes: tuple[Name, ...]
    params: tuple[Param, ...]
    result: TypeExpr | None
    body: tuple[Stmt, ...]
    name_span: Span = field(compare=False, repr=False)
    decorators: tuple[Decorator, ...] = ()


Item: TypeAlias = Import | MeshDecl | ConstDecl | StructDecl | Def


@dataclass(frozen=True)
class Program(Node):
    """A whole file, items in source order."""

    items: tuple[Item, ...]
