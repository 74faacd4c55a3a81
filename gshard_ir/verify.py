"""The verifier: what must hold of every module between any two passes.

A failure is a bug of the compiler, never of the user's program; it is shown in the IR around the op
at fault. Layouts of local programs are checked by :mod:`gshard_ir.verify_layout`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gshard_ir import opdef
from gshard_ir.errors import InternalError
from gshard_ir.ir import Attr, Function, Module, Op, Region, Value
from gshard_ir.mesh import user_axes
from gshard_ir.sharding import Layout, Sharding
from gshard_ir.text import Printer, name_values
from gshard_ir.types import DType, ShardedType, TensorType
from gshard_ir.verify_layout import CheckError, check_layout, check_local_op, check_pin

ATTR_TYPES = (int, float, bool, str, type(None), DType, Sharding, Layout)
AROUND = 3
"""Ops shown before and after the one at fault."""


def verify(module: Module) -> None:
    """Check structure, types and, in a local module, layouts.

    Raises :class:`~gshard_ir.errors.InternalError` with the message and the IR around the op at fault.
    """
    try:
        _check_module(module)
    except CheckError as error:
        raise InternalError(f"the module is not valid: {error}") from None
    for function in module.functions.values():
        _FunctionCheck(module, function).run()


def _check_module(module: Module) -> None:
    names, sizes = module.mesh.names, module.mesh.sizes
    if len(set(names)) < len(names) or len(names) != len(sizes) or len(names) != len(module.mesh.parents):
        raise CheckError(f"mesh axes {names} of sizes {sizes} and parents {module.mesh.parents}")
    if not all(type(size) is int and size > 0 for size in sizes):
        raise CheckError(f"mesh axes have sizes {sizes}")
    if module.entry not in module.functions:
        raise CheckError(f"there is no entry @{module.entry}, only {list(module.functions)}")
    for name, function in module.functions.items():
        if name != function.name:
            raise CheckError(f"function @{function.name} is filed as @{name}")


class _FunctionCheck:
    """Walks one function with the values in scope; ``at`` is the op being checked."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.scope: set[Value] = set()
        self.defined: set[Value] = set()
        self.at: Op | None = None

    def run(self) -> None:
        try:
            self.signature()
            self.region(self.function.body)
            self.at = None
            self.boundary()
        except CheckError as error:
            raise InternalError(self.show(str(error))) from None

    # Structure

    def signature(self) -> None:
        f = self.function
        for what, values, names, pins in (
            ("parameter", f.params, f.param_names, f.param_shardings),
            ("result", f.results, f.result_names, f.result_shardings),
        ):
            if not len(values) == len(names) == len(pins):
                raise CheckError(f"{len(values)} {what}s, {len(names)} names and {len(pins)} shardings")
            if len(set(names)) < len(names):
                raise CheckError(f"{what} names {names} are not distinct")
            for value, name, pin in zip(values, names, pins, strict=True):
                if pin is not None:
                    self.sharding(pin, value.type, f"{what} {name}")

    def region(self, region: Region) -> None:
        outer = set(self.scope)
        self.define(region.params)
        for op in region.ops:
            self.op(op)
        for value in region.results:
            if value not in self.scope:
                raise CheckError(f"a region returns %{value.hint}, which is not defined there")
        self.scope = outer

    def define(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self.defined:
                raise CheckError(f"%{value.hint} is defined twice")
            self.type(value.type)
            self.defined.add(value)
            self.scope.add(value)

    def op(self, op: Op) -> None:
        self.at = op
        for i, value in enumerate(op.operands):
            if value not in self.scope:
                raise CheckError(f"operand {i} (%{value.hint}) is not defined before this use")
        for attr in op.attrs.values():
            self.attr(attr)
        try:
            record = opdef.opdef(op.name)
        except KeyError:
            raise CheckError(f"there is no op {op.name}") from None
        if len(op.regions) != record.regions:
            raise CheckError(f"{op.name} has {record.regions} regions, found {len(op.regions)}")
        for region in op.regions:
            self.region(region)
        self.at = op
        self.define(op.results)
        try:
            self.types(op, record)
        except opdef.OpError as error:
            raise CheckError(" ".join((error.message, *error.notes))) from None

    # Types

    def types(self, op: Op, record: opdef.OpDef) -> None:
        inferred: Sequence[TensorType] = opdef.infer(op.name, [v.type for v in op.operands], op.attrs)
        if op.name == "call":
            inferred = self.call(op)
        found = [v.type for v in op.results]
        if self.module.local:
            check_local_op(op, record, inferred, self.module.mesh)
        elif record.family in ("collective", "local"):
            raise CheckError(f"{op.name} has no place in a global program")
        elif list(inferred) != found:
            raise CheckError(f"{op.name} has result types {_show(inferred)}, found {_show(found)}")

    def call(self, op: Op) -> Sequence[TensorType]:
        callee = self.module.functions.get(str(op.attrs["callee"]))
        if callee is None:
            raise CheckError(f"there is no function @{op.attrs['callee']}")
        wanted, found = [v.type for v in callee.params], [v.type for v in op.operands]
        if wanted != found:
            raise CheckError(f"@{callee.name} takes {_show(wanted)}, found {_show(found)}")
        return [v.type for v in callee.results]

    def type(self, type_: TensorType) -> None:
        if not all(type(n) is int and n >= 0 for n in type_.shape):
            raise CheckError(f"{type_.shape!r} is not a shape")
        if isinstance(type_, ShardedType):
            if not self.module.local:
                raise CheckError(f"{type_} has no place in a global program")
            check_layout(type_, self.module.mesh)

    def attr(self, attr: Attr) -> None:
        if isinstance(attr, tuple):
            for item in attr:
                self.attr(item)
        elif type(attr) not in ATTR_TYPES:
            raise CheckError(f"{attr!r} ({type(attr).__name__}) is no attribute value")
        elif isinstance(attr, Sharding):
            self.sharding(attr, None, "annotation")

    def sharding(self, sharding: Sharding, type_: TensorType | None, what: str) -> None:
        if type_ is not None and len(sharding.dims) != type_.rank:
            raise CheckError(f"{what}: a sharding of {len(sharding.dims)} dims on {type_}")
        axes = user_axes(self.module.mesh)
        for ref in sharding.refs():
            if ref.name not in axes:
                raise CheckError(f"{what}: the mesh has no axis {ref.name}")
        used = [ref for dim in sharding.dims for ref in dim.axes]
        if len(set(used)) < len(used):
            raise CheckError(f"{what}: an axis is used twice in {sharding}")

    def boundary(self) -> None:
        """In a local program, arguments and results owe no reduction and lie as their types ask."""
        f = self.function
        if not self.module.local:
            return
        for values, pins in ((f.params, f.param_shardings), (f.results, f.result_shardings)):
            for value, pin in zip(values, pins, strict=True):
                if not isinstance(value.type, ShardedType):
                    raise CheckError(f"%{value.hint} crosses the boundary without a layout")
                if value.type.layout.pending:
                    raise CheckError(f"%{value.hint} crosses the boundary as {value.type}: a reduction is still owed")
                if pin is not None:
                    check_pin(value.type, pin, self.module.mesh)

    # Showing

    def show(self, message: str) -> str:
        """Return the message under the op at fault, with the ops around it."""
        printer = Printer(self.module, name_values(self.function.body), locations=False)
        lines = [f"the IR of @{self.function.name} is not valid"]
        ops = list(self.function.body.walk())
        if self.at is None or self.at not in ops:
            head = printer.function(self.function).split("\n")[0]
            return "\n".join([*lines, f"  {head}", f"  {'^' * len(head)}", f"  {message}"])
        place = ops.index(self.at)
        first, last = max(0, place - AROUND), min(len(ops), place + AROUND + 1)
        lines += ["  ..."] * (first > 0)
        for op in ops[first:last]:
            shown = printer.op(op, 1)
            lines.append(shown[0])
            if op is self.at:
                lines += ["  " + "^" * (len(shown[0]) - 2), f"  {message}"]
                if op.span is not None:
                    lines.append(f"  from {op.span}")
        return "\n".join([*lines, *(["  ..."] * (last < len(ops)))])


def _show(types: Iterable[TensorType]) -> str:
    return f"({', '.join(map(str, types))})"
