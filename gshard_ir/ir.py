"""The IR: immutable SSA with regions, calls and multi-result ops.

Equality is identity: two ops with the same text are two ops. Passes rebuild; nothing is edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Layout, Sharding
from gshard_ir.source import Span
from gshard_ir.types import DType, TensorType

Attr = int | float | bool | str | None | DType | Sharding | Layout | tuple["Attr", ...]
Attrs = Mapping[str, Attr]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor that is computed once. ``hint`` is the name that a reader would expect."""

    type: TensorType
    hint: str = ""
    span: Span | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype


@dataclass(frozen=True, eq=False)
class Op:
    """One operation. ``name`` is a key of the op registry; attributes are immutable data."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attrs: Attrs = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    span: Span | None = field(default=None, repr=False)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value


@dataclass(frozen=True, eq=False)
class Region:
    """Parameters, ops in order, and the values that leave it."""

    params: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]

    def walk(self) -> Iterator[Op]:
        """Yield every op, those inside nested regions after their parent."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(frozen=True, eq=False)
class Function:
    """A def, specialised to its types. Parameter and result names are dotted paths (``p.wi``)."""

    name: str
    body: Region
    param_names: tuple[str, ...]
    result_names: tuple[str, ...]
    param_shardings: tuple[Sharding | None, ...]
    result_shardings: tuple[Sharding | None, ...]
    span: Span | None = field(default=None, repr=False)

    @property
    def params(self) -> tuple[Value, ...]:
        return self.body.params

    @property
    def results(self) -> tuple[Value, ...]:
        return self.body.results

    def with_body(self, body: Region) -> Function:
        return replace(self, body=body)


@dataclass(frozen=True, eq=False)
class Module:
    """A program: a mesh, functions by name, and which one is the entry.

    ``local`` is False for the program as the user meant it and True for what one device runs,
    where types are :class:`~gshard_ir.types.ShardedType` (or plain for device-local scratch).
    """

    mesh: Mesh
    functions: Mapping[str, Function]
    entry: str
    local: bool = False

    @property
    def main(self) -> Function:
        return self.functions[self.entry]

    def with_main(self, function: Function, *, mesh: Mesh | None = None, local: bool | None = None) -> Module:
        """Return a module whose entry is ``function``, other functions kept."""
        functions = {**self.functions, self.entry: function}
        return Module(mesh or self.mesh, functions, self.entry, self.local if local is None else local)


def users(region: Region) -> dict[Value, list[tuple[Op, int]]]:
    """Map each value to its uses ``(op, operand index)`` in program order; region results are not uses."""
    found: dict[Value, list[tuple[Op, int]]] = {}
    for op in region.walk():
        for i, value in enumerate(op.operands):
            found.setdefault(value, []).append((op, i))
    return found
