"""Types in source: resolve sizes and layouts, bind the sizes of generic defs, check values against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend import ast
from gshard_ir.frontend.lower_axes import Placed, make_sharding, resolve_axis
from gshard_ir.frontend.lower_consts import whole
from gshard_ir.frontend.lower_emit import Emitter, check_shape
from gshard_ir.frontend.lower_values import Item, StructValue, describe, text_of
from gshard_ir.ir import Value
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import DimSharding, Sharding
from gshard_ir.source import Span
from gshard_ir.types import DTYPES, KEY, TensorType

STATIC_KINDS: Mapping[str, tuple[type, ...]] = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
"""Types of compile-time parameters."""
MAX_TENSORS = 10_000
"""Most tensors in a struct: structs of structs double with every level."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor type as written: its shape and the layout that it asks for, if any."""

    type: TensorType
    dims: tuple[DimSharding, ...]
    placed: tuple[Placed, ...] = ()
    forbidden: tuple[Placed, ...] = ()

    def __str__(self) -> str:
        return str(self.type)


@dataclass(frozen=True)
class StructSpec:
    """A struct type, stacked over leading dims."""

    struct: StructType
    stack: tuple[int, ...] = ()
    dims: tuple[DimSharding, ...] = ()
    placed: tuple[Placed, ...] = ()

    def __str__(self) -> str:
        return self.struct.name + "".join(f"[{n}]" for n in self.stack)


@dataclass(frozen=True)
class TupleSpec:
    """A tuple of types."""

    items: tuple[Spec, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class StaticSpec:
    """A compile-time value: ``int``, ``float`` (integers too), ``bool`` or ``str``."""

    kind: str

    def __str__(self) -> str:
        return f"compile-time {self.kind}"


@dataclass(frozen=True, eq=False)
class StructType:
    """A declared struct. Two are the same only if they are the same declaration."""

    name: str
    fields: Mapping[str, Spec]

    @cached_property
    def tensors(self) -> int:
        """How many tensors one of it holds."""
        return sum(map(tensors, self.fields.values()))


Spec: TypeAlias = TensorSpec | StructSpec | TupleSpec | StaticSpec


@dataclass(frozen=True)
class Leaf:
    """One tensor of a type: dotted path, global type, layout asked for, where."""

    path: str
    type: TensorType
    sharding: Sharding | None


class Resolver:
    """Turns type expressions into specs. ``evaluate`` gives sizes, ``struct`` looks a struct up by name."""

    def __init__(self, mesh: Mesh, evaluate: Callable[[ast.Expr], Item], struct: Callable[[str, Span], StructType]):
        self.mesh, self.evaluate, self.struct = mesh, evaluate, struct

    def resolve(self, node: ast.TypeExpr, actual: Item = None) -> Spec:
        """Return what a type says; ``...`` stands for as many dims as ``actual`` has there."""
        if isinstance(node, ast.KeyType):
            return TensorSpec(TensorType(KEY, ()), ())
        if isinstance(node, ast.TupleType):
            parts = (
                actual if isinstance(actual, tuple) and len(actual) == len(node.items) else (None,) * len(node.items)
            )
            return TupleSpec(tuple(self.resolve(t, a) for t, a in zip(node.items, parts, strict=True)))
        if isinstance(node, ast.NamedType):
            return self._named(node)
        return self._tensor(node, actual)

    def _named(self, node: ast.NamedType) -> Spec:
        if node.name in STATIC_KINDS and not node.stack:
            return StaticSpec(node.name)
        struct = self.struct(node.name, node.span)
        sizes, dims, placed = self._dims(node.stack)
        if struct.tensors > MAX_TENSORS:
            message = f"struct {node.name} holds {struct.tensors:,} tensors, at most {MAX_TENSORS:,}"
            raise fail(message, node.span, suggestion="T[n] for a stack of n: each tensor of T gains a dim")
        spec = StructSpec(struct, check_shape(sizes, node.span), dims, placed)
        for leaf in spec_leaves(spec) if spec.stack else ():
            if leaf.type.dtype == KEY:
                edit = "a key beside it, and fold_in(key, i)"
                raise fail(f"{node.name} holds a random key and cannot be stacked", node.span, suggestion=edit)
            check_shape(leaf.type.shape, node.span)
        return spec

    def _tensor(self, node: ast.TensorTypeExpr, actual: Item) -> Spec:
        if node.dtype == "key":
            raise fail("an array of random keys", node.span, suggestion="key, and fold_in(key, i) for more of them")
        if node.pending:
            axes = ", ".join(str(a.name) for p in node.pending for a in p.axes)
            raise fail(
                f"a value of the program cannot be partial over {axes}",
                node.pending[0].span,
                "a pending reduction is the compiler's choice; an argument, a result or an annotated value is complete",
                suggestion="remove it",
            )
        dims = node.dims
        if spreads(node):
            dims = self._spread(node, actual)
        sizes, shardings, placed = self._dims(dims)
        forbidden = tuple((resolve_axis(self.mesh, a.name, a.span, a.pre, a.size), a.span) for a in node.forbidden)
        type_ = TensorType(DTYPES[node.dtype], check_shape(sizes, node.span))
        make_sharding(shardings, placed, forbidden, self.mesh)
        return TensorSpec(type_, shardings, placed, forbidden)

    def _spread(self, node: ast.TensorTypeExpr, actual: Item) -> tuple[ast.DimExpr, ...]:
        """Replace ``...`` by the dims that the actual tensor has in its place."""
        at = rest_dim(node)
        if not isinstance(actual, Value):
            raise fail("... needs an argument to take its dims from", node.span, suggestion="write the sizes")
        missing = max(actual.type.rank - (len(node.dims) - 1), 0)
        rest = tuple(
            ast.DimExpr(ast.Number(n, span=node.span), span=node.dims[at].span) for n in actual.shape[at : at + missing]
        )
        return (*node.dims[:at], *rest, *node.dims[at + 1 :])

    def _dims(self, dims: Sequence[ast.DimExpr]) -> tuple[tuple[int, ...], tuple[DimSharding, ...], tuple[Placed, ...]]:
        sizes, shardings, placed = [], [], list[Placed]()
        for dim in dims:
            if dim.size is None:
                raise fail("... stands in tensor types only, once", dim.span)
            sizes.append(whole(self.evaluate(dim.size), "a size", dim.size.span, low=0))
            refs = [(resolve_axis(self.mesh, a.name, a.span, a.pre, a.size), a.span) for a in dim.axes]
            placed += refs
            shardings.append(DimSharding(tuple(r for r, _ in refs), dim.open, dim.round))
        return tuple(sizes), tuple(shardings), tuple(placed)


def tensors(spec: Spec) -> int:
    """Count the tensors of a type, without going through them."""
    if isinstance(spec, StructSpec):
        return spec.struct.tensors
    return sum(map(tensors, spec.items)) if isinstance(spec, TupleSpec) else isinstance(spec, TensorSpec)


def spreads(node: ast.TensorTypeExpr) -> bool:
    """Tell whether one of the dims is ``...``."""
    return any(d.size is None for d in node.dims)


def rest_dim(node: ast.TensorTypeExpr) -> int:
    """Return which dim of a type is ``...``."""
    found = [i for i, d in enumerate(node.dims) if d.size is None]
    if len(found) > 1:
        raise fail("... stands once in a tensor type", node.dims[found[1]].span)
    return found[0]


def spec_leaves(spec: Spec, path: str = "", outer: StructSpec | None = None) -> Iterator[Leaf]:
    """Yield the tensors of a type in order; ``outer`` holds leading dims that stacked structs add."""
    if isinstance(spec, TensorSpec):
        dims, placed, shape = spec.dims, spec.placed, spec.type.shape
        if outer is not None:
            dims, placed, shape = outer.dims + dims, outer.placed + placed, outer.stack + shape
        sharding = make_sharding(dims, placed, spec.forbidden)
        yield Leaf(path, TensorType(spec.type.dtype, shape), None if sharding.says_nothing else sharding)
    elif isinstance(spec, TupleSpec):
        for i, item in enumerate(spec.items):
            yield from spec_leaves(item, f"{path}.{i}" if path else str(i), outer)
    elif isinstance(spec, StructSpec):
        stacked = spec
        if outer is not None:
            stacked = StructSpec(
                spec.struct, outer.stack + spec.stack, outer.dims + spec.dims, outer.placed + spec.placed
            )
        for name, item in spec.struct.fields.items():
            yield from spec_leaves(item, f"{path}.{name}" if path else name, stacked)


def parameter(spec: Spec, leaf: Callable[[], Value], stack: tuple[int, ...] = ()) -> Item:
    """Build an item of a type out of fresh tensors, taken in the order of :func:`spec_leaves`."""
    if isinstance(spec, TensorSpec):
        return leaf()
    if isinstance(spec, TupleSpec):
        return tuple(parameter(s, leaf, stack) for s in spec.items)
    if isinstance(spec, StructSpec):
        inner = stack + spec.stack
        return StructValue(spec.struct, {n: parameter(s, leaf, inner) for n, s in spec.struct.fields.items()}, inner)
    raise fail(f"{spec} has no tensor")


Sizes = MutableMapping[str, tuple[int, str]]
"""Sizes of a generic def that are bound so far, and what bound them."""


def bind_sizes(
    node: ast.TypeExpr | None, item: Item, names: Sequence[str], sizes: Sizes, what: str, span: Span
) -> None:
    """Bind the generic sizes that stand alone in a type to the dims of the value in that place.

    Raises a diagnostic when one size would have two values.
    """
    if isinstance(node, ast.TupleType) and isinstance(item, tuple):
        for part, value in zip(node.items, item, strict=False):
            bind_sizes(part, value, names, sizes, what, span)
        return
    dims: tuple[ast.DimExpr, ...] = ()
    shape: tuple[int, ...] = ()
    if isinstance(node, ast.TensorTypeExpr) and isinstance(item, Value):
        dims, shape = node.dims, item.shape
        if any(d.size is None for d in dims):
            at, rest = rest_dim(node), len(shape) - len(dims) + 1
            dims, shape = dims[:at] + dims[at + 1 :], shape[:at] + shape[at + max(rest, 0) :]
    elif isinstance(node, ast.NamedType) and isinstance(item, StructValue):
        dims, shape = node.stack, item.stack
    if len(dims) != len(shape):
        return
    for d, (dim, n) in enumerate(zip(dims, shape, strict=True)):
        if not isinstance(dim.size, ast.Name) or dim.size.id not in names:
            continue
        name, source = dim.size.id, f"{what}, dim {d}"
        known = sizes.setdefault(name, (n, source))
        if known[0] != n:
            raise GShardError(
                Diagnostic(
                    f"{name} is {known[0]} and {n} at once",
                    span,
                    (f"{known[1]} makes {name} {known[0]}", f"{source} of {describe(item)} makes it {n}"),
                    also=((dim.span, "the size in the type"),),
                )
            )


def conform(emit: Emitter, item: Item, spec: Spec, what: str, span: Span) -> Item:
    """Check that an item is of a type and return it, a literal as the scalar tensor that the type asks for."""
    if isinstance(spec, StaticSpec):
        kinds = STATIC_KINDS[spec.kind]
        if isinstance(item, kinds) and (spec.kind == "bool" or not isinstance(item, bool)):
            return float(item) if spec.kind == "float" and isinstance(item, int) else item
        raise _mismatch(what, item, str(spec), span)
    if isinstance(spec, TupleSpec):
        if not isinstance(item, tuple) or len(item) != len(spec.items):
            raise _mismatch(what, item, str(spec), span)
        return tuple(
            conform(emit, part, s, f"{what}, part {i}", span)
            for i, (part, s) in enumerate(zip(item, spec.items, strict=True))
        )
    if isinstance(spec, StructSpec):
        if not isinstance(item, StructValue) or item.type is not spec.struct or item.stack != spec.stack:
            raise _mismatch(what, item, f"struct {spec}", span)
        return item
    if isinstance(item, int | float) and not spec.type.shape and spec.type.dtype != KEY:
        return emit.constant(item, spec.type.dtype, (), span)
    if not isinstance(item, Value) or item.type != spec.type:
        raise _mismatch(what, item, str(spec), span)
    return item


def _mismatch(what: str, item: Item, expected: str, span: Span) -> GShardError:
    edit = None
    if isinstance(item, Value) and expected.startswith(("f", "b", "i", "u")) and "[" in expected:
        dtype, shape = expected.split("[", 1)
        if str(item.type).endswith("[" + shape) and dtype in DTYPES:
            edit = f"cast({text_of(span)}, {dtype})"
    return fail(f"{what} is {describe(item)}, expected {expected}", span, suggestion=edit)
