"""Emit a local program as a Python file around ``jax.shard_map``: what an engineer would write by hand.

The emitter itself needs no jax: it writes text. The file imports jax and numpy alone, public API only.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from gshard_ir.backends.jax_collectives import COLLECTIVES, LOCAL_TABLE
from gshard_ir.backends.jax_file import (
    Port,
    assemble,
    entry_ports,
    header,
    safe_axes,
    tables,
    uses_wide_types,
    write_functions,
)
from gshard_ir.backends.jax_functions import Dialect, show_place
from gshard_ir.backends.jax_ops import TABLE, Context
from gshard_ir.backends.py_code import comment_text, quoted, tuple_text
from gshard_ir.ir import Module, Op
from gshard_ir.mesh import Mesh, user_axes
from gshard_ir.passes.traffic import of_module, of_op

NOTE_WIDTH = 110
"""Columns of a comment above a collective."""

TABLES = {**TABLE, **LOCAL_TABLE}


def emit(local: Module, *, title: str = "", reasons: Mapping[Op, str] | None = None) -> str:
    """Return the source of a Python file that runs the local program on a mesh of real devices.

    ``build(mesh)`` in the file takes a mesh with the user's axes and returns the jitted program. Its arguments
    and results are global arrays, padded where a dim does not divide (``INPUTS`` and ``OUTPUTS`` give the
    shapes). ``reasons`` says what each collective is for; it becomes part of the comment above it.
    """
    axes = safe_axes(local.mesh)
    context = Context(local.mesh, axes)
    inputs, outputs = entry_ports(local, axes)
    notes = {op: _note(op, local.mesh, (reasons or {}).get(op, "")) for op in _collectives(local)}
    dialect = Dialect(TABLES, frozenset(COLLECTIVES), notes)
    name, functions = write_functions(local, context, dialect, [p.name for p in inputs])
    padded = any(p.padded for p in (*inputs, *outputs))
    first = f"{title or name}, partitioned by gshard for a mesh {local.mesh}."
    head = header(first, _summary(local, padded), uses_wide_types(local), "Mesh, PartitionSpec as P")
    ports = tables(local.mesh, inputs, outputs)
    return assemble(head, context, ports, functions, _build(local.mesh, axes, name, outputs), padded, local.mesh)


def _collectives(local: Module) -> list[Op]:
    return [op for op in local.main.body.walk() if op.name in COLLECTIVES]


def _note(op: Op, mesh: Mesh, reason: str) -> str:
    """``moe.gshard:22 split(sent, 0, expert): all_to_all over expert, 114,688 bytes sent per device``."""
    moved = of_op(op, mesh)
    assert moved is not None
    axes = mesh.show_axes(moved.axes) if moved.axes else "no axis"
    kind = f" {op.attrs['kind']}" if "kind" in op.attrs else ""
    what = f"{op.name}{kind} over {axes}, {bytes_text(moved.sent)} sent per device"
    why = comment_text(" ".join(w for w in (show_place(op.span), f"{reason}:" if reason else "") if w))
    if len(why) + len(what) < NOTE_WIDTH:
        return f"{why} {comment_text(what)}".strip()
    return "\n".join([*textwrap.wrap(why, NOTE_WIDTH), comment_text(what)])


def bytes_text(count: float) -> str:
    """``114,688 bytes``; a fraction is rounded to one decimal."""
    return f"{f'{count:,.1f}'.removesuffix('.0')} bytes"


def _summary(local: Module, padded: bool) -> list[str]:
    ops = _collectives(local)
    counts = {name: sum(op.name == name for op in ops) for name in COLLECTIVES}
    shown = ", ".join(f"{n} {name}" for name, n in counts.items() if n) or "no communication"
    total = bytes_text(sum(moved.sent for _, moved in of_module(local)))
    lines = [f"Each device sends {total}: {shown}."]
    if padded:
        lines.append("Dims that do not divide are padded: pad() the arguments to INPUTS, trim() the results.")
    return lines


def _build(mesh: Mesh, axes: Mapping[str, str], name: str, outputs: Sequence[Port]) -> str:
    outs = "tuple(spec for *_, spec in OUTPUTS.values())"
    if len(outputs) == 1:
        outs = "next(spec for *_, spec in OUTPUTS.values())"
    return "\n".join(
        [
            "def build(mesh):",
            f'    """Compile {name} for ``mesh``, whose axes are those of MESH, in that order."""',
            "    if tuple(mesh.shape.items()) != tuple(MESH.items()):",
            '        raise ValueError(f"this program is for a mesh of {MESH}, not {dict(mesh.shape)}")',
            mesh_line(mesh, axes),
            "    ins = tuple(spec for *_, spec in INPUTS.values())",
            f"    outs = {outs}",
            f"    return jax.jit(jax.shard_map({name}, mesh=mesh, in_specs=ins, out_specs=outs, check_vma=False))",
        ]
    )


def mesh_line(mesh: Mesh, axes: Mapping[str, str]) -> str:
    """The mesh the program runs on: the same devices, pieces of an axis being axes of their own."""
    if all(not parent.size for parent in mesh.parents):
        return "    mesh = Mesh(mesh.devices, mesh.axis_names)"
    names = tuple_text(quoted(axes[n]) for n in mesh.names)
    cut = [user for user in user_axes(mesh) if any(p.name == user and p.size for p in mesh.parents)]
    return f"    mesh = Mesh(mesh.devices.reshape({tuple_text(mesh.sizes)}), {names})  # {', '.join(cut)} in pieces"


__all__ = ["TABLES", "bytes_text", "emit", "mesh_line"]
