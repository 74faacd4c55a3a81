"""What every emitted file has in common: functions in order, tensors at the boundary, running it as a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gshard_ir.backends.jax_functions import NOUNS, Dialect, Function, Writer
from gshard_ir.backends.jax_ops import Context
from gshard_ir.backends.jax_prelude import HELPERS, prelude
from gshard_ir.backends.jax_scopes import Call, Graph, Item, arrange, ops_of
from gshard_ir.backends.py_code import docstring_text, fresh, identifier, quoted, tuple_text
from gshard_ir.ir import Module, Value
from gshard_ir.mesh import Mesh, user_axes
from gshard_ir.types import KEY, ShardedType


@dataclass(frozen=True)
class Port:
    """An argument or a result of the emitted program.

    ``shape`` is the array that crosses the boundary, padding included; ``whole`` the tensor's own shape.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    whole: tuple[int, ...]
    spec: tuple[tuple[str, ...], ...]

    @property
    def padded(self) -> bool:
        return self.shape != self.whole


def safe_axes(mesh: Mesh) -> dict[str, str]:
    """Names for the axes of a refined mesh: a user's axis keeps its own, pieces are numbered ``model_0``."""
    taken = set(user_axes(mesh))
    names: dict[str, str] = {}
    for name, parent in zip(mesh.names, mesh.parents, strict=True):
        if not parent.size:
            names[name] = parent.name
            continue
        number = sum(mesh.parents[mesh.names.index(n)].name == parent.name for n in names)
        wish = f"{parent.name}_{number}"
        while wish in taken:
            wish += "_"
        taken.add(wish)
        names[name] = wish
    return names


def ports(names: Sequence[str], values: Sequence[Value], mesh: Mesh, axes: Mapping[str, str]) -> list[Port]:
    """Describe the values at the boundary of a local program."""
    found: list[Port] = []
    words = argument_names(names)
    for word, value in zip(words, values, strict=True):
        type_ = value.type
        assert isinstance(type_, ShardedType)
        spec = tuple(tuple(axes[a] for a in dim) for dim in type_.layout.dims)
        shape = tuple(n * mesh.size(dim) if dim else n for n, dim in zip(type_.shape, type_.layout.dims, strict=True))
        tail = (2,) if type_.dtype == KEY else ()
        dtype = type_.dtype.numpy().name
        found.append(Port(word, dtype, shape + tail, type_.whole + tail, spec))
    return found


def argument_names(names: Sequence[str]) -> list[str]:
    """Safe, distinct Python names for dotted paths: the last word where that is enough."""
    lasts = [identifier(n.rsplit(".", 1)[-1]) for n in names]
    count = Counter(lasts)
    found: dict[str, None] = {}
    for name, last in zip(names, lasts, strict=True):
        found[fresh(last if count[last] == 1 else name.replace(".", "_"), found)] = None
    return list(found)


def spec_text(spec: Sequence[Sequence[str] | None]) -> str:
    """``P("expert")``, trailing unsplit dims left out."""
    words = [_entry(dim) for dim in spec]
    while words and words[-1] == "None":
        words.pop()
    return f"P({', '.join(words)})"


def _entry(axes: Sequence[str] | None) -> str:
    if axes is None:
        return "P.UNCONSTRAINED"
    if not axes:
        return "None"
    return quoted(axes[0]) if len(axes) == 1 else tuple_text(quoted(a) for a in axes)


def write_functions(
    module: Module, context: Context, dialect: Dialect, params: Sequence[str], extra: tuple[str, ...] = ()
) -> tuple[str, list[str]]:
    """Write the entry and every function it calls; return the entry's name and the texts, callees first.

    ``extra`` are leading arguments that every function with an own-line op inside takes and passes on.
    """
    graph = Graph.of(module.main.body)
    items = arrange(graph)
    calls: dict[Call, Function] = {}
    writer = Writer(graph, context, dialect, set(HELPERS), calls)
    texts: list[str] = []
    seen: dict[str, Function] = {}
    for call in _calls(items):
        words = argument_names([v.hint or _noun(graph, v) for v in call.inputs])
        hints = list(zip(call.inputs, words, strict=True))
        needs = extra if any(op.name in dialect.own_line for op in ops_of(call.items)) else ()
        made = Function(fresh(call.callee, writer.names), hints, call.items, call.outputs, needs)
        found = seen.setdefault(writer.write(made.anonymous()), made)
        calls[call] = found
        if found is made:
            writer.names.add(made.name)
            texts.append(writer.write(made))
    main = module.main
    entry = Function(
        fresh(main.name, writer.names), list(zip(main.params, params, strict=True)), items, main.results, extra
    )
    writer.names.add(entry.name)
    return entry.name, [*texts, writer.write(entry)]


def _noun(graph: Graph, value: Value) -> str:
    op = graph.producer.get(value)
    return NOUNS.get(op.name, "x") if op is not None and op.name != "einsum" else "x"


def _calls(items: Sequence[Item]) -> list[Call]:
    found: list[Call] = []
    for item in items:
        if isinstance(item, Call):
            found += [*_calls(item.items), item]
    return found


def uses_wide_types(module: Module) -> bool:
    """Does the program need jax's 64-bit mode?"""
    values = list(module.main.params)
    for op in module.main.body.walk():
        values += op.results
    return any(v.dtype.itemsize == 8 and v.dtype != KEY for v in values)


def header(title: str, details: Sequence[str], wide: bool, shardings: str) -> str:
    """Docstring and imports."""
    lines = [f'"""{docstring_text(title)}', "", *(docstring_text(d) for d in details), '"""', ""]
    if not details:
        lines = [f'"""{docstring_text(title)}"""', ""]
    lines += ["from functools import partial", ""] if "NamedSharding" in shardings else []
    lines += ["import jax", "import jax.numpy as jnp", "import numpy as np", "from jax import lax"]
    lines.append(f"from jax.sharding import {shardings}")
    if wide:
        lines += ["", 'jax.config.update("jax_enable_x64", True)']
    return "\n".join(lines)


def tables(mesh: Mesh, inputs: Sequence[Port], outputs: Sequence[Port]) -> str:
    """``MESH``, ``INPUTS`` and ``OUTPUTS``: what the program expects and returns."""
    axes = ", ".join(f"{quoted(n)}: {s}" for n, s in user_axes(mesh).items())
    return "\n".join([f"MESH = {{{axes}}}", "", *_table("INPUTS", inputs), *_table("OUTPUTS", outputs)])


def _table(name: str, found: Sequence[Port]) -> list[str]:
    rows = [f"    {quoted(p.name)}: ({tuple_text(p.shape)}, {quoted(p.dtype)}, {spec_text(p.spec)})," for p in found]
    width = max((len(r) for r, p in zip(rows, found, strict=True) if p.padded), default=0)
    shown = [
        f"{r:<{width}}  # {tuple_text(p.whole)}, padded" if p.padded else r for r, p in zip(rows, found, strict=True)
    ]
    return [f"{name} = {{", *shown, "}"]


_PAD = '''def pad(x, shape):
    """x with zero rows added up to ``shape``: dims that do not divide are padded at the boundary."""
    return np.pad(x, [(0, n - m) for m, n in zip(x.shape, shape)])


def trim(x, shape):
    """x without its padding rows: a tensor of ``shape``."""
    return x[tuple(slice(n) for n in shape)]'''

_SCRIPT = """if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", {devices})  # stand-ins, should there be fewer real devices
    devices = jax.devices() if jax.device_count() >= {devices} else jax.devices("cpu")
    mesh = jax.make_mesh(tuple(MESH.values()), tuple(MESH), devices=devices[:{devices}])
    rng = np.random.default_rng(0)
    inputs = []
    for shape, dtype, _ in INPUTS.values():
        drawn = rng.normal(size=shape) if jnp.issubdtype(dtype, jnp.floating) else rng.integers(0, 2, shape)
        inputs.append(np.asarray(drawn).astype(jnp.dtype(dtype)))
    results = build(mesh)(*inputs)
    for name, value in zip(OUTPUTS, results if isinstance(results, tuple) else (results,)):
        print(name, value.dtype, value.shape)"""


def assemble(
    head: str, context: Context, ports_text: str, functions: Sequence[str], build: str, padded: bool, mesh: Mesh
) -> str:
    """Join the parts of a file, two blank lines between definitions."""
    script = _SCRIPT.format(devices=mesh.devices)
    helpers = prelude(context.helpers)
    parts = [f"{head}\n\n{ports_text}", *([_PAD] if padded else []), *helpers, *functions, build, script]
    return "\n\n\n".join(parts) + "\n"


def entry_ports(local: Module, axes: Mapping[str, str]) -> tuple[list[Port], list[Port]]:
    """Arguments and results of a local program."""
    main = local.main
    inputs = ports(main.param_names, main.params, local.mesh, axes)
    return inputs, ports(main.result_names, main.results, local.mesh, axes)
