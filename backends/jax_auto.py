"""Emit the global program as plain ``jax.jit`` with the user's annotations as constraints: XLA partitions.

What a user would otherwise write, and the yardstick for our own plan. It gets our boundary layouts where
they divide; an uneven demand becomes a constraint inside, which jax allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from gshard_ir.backends.jax_file import (
    Port,
    assemble,
    entry_ports,
    header,
    safe_axes,
    spec_text,
    tables,
    uses_wide_types,
    write_functions,
)
from gshard_ir.backends.jax_functions import Dialect, show_place
from gshard_ir.backends.jax_ops import TABLE, Context, code_of, full
from gshard_ir.backends.jax_shard_map import mesh_line
from gshard_ir.backends.py_code import Code, comment_text
from gshard_ir.ir import Attr, Function, Module, Op, Region, Value
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Sharding


def emit(global_: Module, local: Module, *, title: str = "") -> str:
    """Return the source of a Python file: ``build(mesh)`` in it gives the jitted global program.

    ``global_`` is the inlined program on the refined mesh; ``local``, its partitioned form, says how
    arguments and results lie at the boundary. Arrays are whole: nothing is padded.
    """
    axes = safe_axes(global_.mesh)
    module = _with_uneven_pins(global_)
    context = Context(module.mesh, axes)
    ports = entry_ports(local, axes)
    inputs, outputs = ([_even(p, module.mesh, axes) for p in side] for side in ports)
    pins = [op for op in module.main.body.walk() if op.name == "annotate"]
    notes = {op: comment_text(f"{show_place(op.span)} {op.attrs['how']}".strip()) for op in pins}
    dialect = Dialect({**TABLE, "annotate": _constrain}, frozenset({"annotate"}), notes)
    name, functions = write_functions(module, context, dialect, [p.name for p in inputs], ("mesh",))
    first = f"{title or name} for a mesh {module.mesh}, partitioned by XLA from {len(pins)} constraints."
    head = header(first, [], uses_wide_types(module), "Mesh, NamedSharding, PartitionSpec as P")
    build = _build(module.mesh, axes, name, outputs)
    return assemble(head, context, tables(module.mesh, inputs, outputs), functions, build, False, module.mesh)


def _constrain(context: Context, op: Op, operands: Sequence[Code]) -> Code:
    x = full(operands[0], op.operands[0].type)
    spec = spec_text(_spec(context, cast("Sharding", op.attrs["sharding"])))
    return code_of(context.call("constrain", x.text, "mesh", spec), op.result.type)


def _spec(context: Context, sharding: Sharding) -> list[tuple[str, ...] | None]:
    """Axes per dim; None where the user left the dim to the compiler."""
    spec: list[tuple[str, ...] | None] = []
    for dim in sharding.dims:
        axes = tuple(context.axis_names[a] for ref in dim.axes for a in context.mesh.expand(ref))
        spec.append(None if dim.open and not axes else axes)
    return spec


def _with_uneven_pins(module: Module) -> Module:
    """Arguments whose type asks for an uneven split are constrained first thing inside."""
    main = module.main
    pinned: dict[Value, Value] = {}
    first: list[Op] = []
    for value, name, sharding in zip(main.params, main.param_names, main.param_shardings, strict=True):
        if sharding is not None and _uneven(value, sharding, module.mesh):
            pinned[value] = Value(value.type, value.hint or name, value.span)
            attrs: dict[str, Attr] = {"sharding": sharding, "how": f"{name}: {value.dtype}{sharding.show(value.shape)}"}
            first.append(Op("annotate", (value,), (pinned[value],), attrs, (), value.span))
    body = main.body
    ops = [*first, *(replace(op, operands=tuple(pinned.get(v, v) for v in op.operands)) for op in body.ops)]
    if not pinned:
        return module
    results = tuple(pinned.get(v, v) for v in body.results)
    function: Function = main.with_body(Region(body.params, tuple(ops), results))
    return module.with_main(function)


def _uneven(value: Value, sharding: Sharding, mesh: Mesh) -> bool:
    shards = [mesh.size(a for ref in dim.axes for a in mesh.expand(ref)) for dim in sharding.dims]
    return any(n % k for n, k in zip(value.shape, shards, strict=True))


def _even(port: Port, mesh: Mesh, axes: Mapping[str, str]) -> Port:
    """The whole array, split at the boundary only where that is even."""
    sizes = {axes[name]: size for name, size in mesh.shape.items()}
    spec = []
    for n, dim in zip(port.whole, port.spec, strict=False):
        shards = 1
        for axis in dim:
            shards *= sizes[axis]
        spec.append(dim if n % shards == 0 else ())
    return replace(port, shape=port.whole, spec=tuple(spec))


def _build(mesh: Mesh, axes: Mapping[str, str], name: str, outputs: Sequence[Port]) -> str:
    outs = "tuple(NamedSharding(mesh, spec) for *_, spec in OUTPUTS.values())"
    if len(outputs) == 1:
        outs = "next(NamedSharding(mesh, spec) for *_, spec in OUTPUTS.values())"
    return "\n".join(
        [
            "def build(mesh):",
            f'    """Compile {name} for ``mesh``, whose axes are those of MESH, in that order."""',
            "    if tuple(mesh.shape.items()) != tuple(MESH.items()):",
            '        raise ValueError(f"this program is for a mesh of {MESH}, not {dict(mesh.shape)}")',
            mesh_line(mesh, axes),
            "    ins = tuple(NamedSharding(mesh, spec) for *_, spec in INPUTS.values())",
            f"    outs = {outs}",
            f"    return jax.jit(partial({name}, mesh), in_shardings=ins, out_shardings=outs)",
        ]
    )
