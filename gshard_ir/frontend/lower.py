"""From a syntax tree to a module of the IR."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gshard_ir.errors import Diagnostic, GShardError, InternalError, fail
from gshard_ir.frontend import ast
from gshard_ir.frontend.lower_builtins import PRELUDE
from gshard_ir.frontend.lower_consts import whole
from gshard_ir.frontend.lower_defs import Instance, Lowering
from gshard_ir.frontend.lower_types import STATIC_KINDS
from gshard_ir.frontend.lower_units import STD, Unit
from gshard_ir.frontend.lower_values import POISON, DefRef, Item, Poisoned, Stopped, describe, is_static, nearest
from gshard_ir.frontend.recover import BrokenProgramError, Missing
from gshard_ir.ir import Function, Module
from gshard_ir.mesh import Mesh
from gshard_ir.source import SourceFile, Span

MAX_DEVICES = 2**31 - 1


def load(path: str | Path, name: str | None = None) -> SourceFile:
    """Read a program; ``name`` is what diagnostics call it. Raises a diagnostic when it cannot be read."""
    from gshard_ir.frontend.parser import decode

    shown = name or str(path)
    try:
        return decode(shown, Path(path).read_bytes())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise fail(f"cannot read {shown}: {reason}") from None


def lower(
    program: ast.Program,
    *,
    mesh: Mapping[str, int] | None = None,
    defines: Mapping[str, int | float | bool | str] | None = None,
    entry: str | None = None,
) -> Module:
    """Check a program and return its IR, one function per def instance.

    ``mesh`` overrides the sizes of the declared axes (an axis left out gets size 1), ``defines`` the values
    of consts; ``entry`` names a def: by default ``main``, else the only def, else the last one. Raises
    :class:`~gshard_ir.errors.GShardError` with all errors found, one per statement.
    """
    lowering = Lowering()
    instance = _lowered(lowering, program, mesh, defines or {}, entry, None)
    if lowering.diagnostics:
        raise GShardError(sorted(lowering.diagnostics, key=lambda d: _order(d.span)))
    if instance is None or instance.function is None:
        raise InternalError("a program without diagnostics has no entry")
    return _module(lowering, instance)


def check_readable(
    broken: BrokenProgramError,
    *,
    mesh: Mapping[str, int] | None = None,
    defines: Mapping[str, int | float | bool | str] | None = None,
    entry: str | None = None,
) -> tuple[Diagnostic, ...]:
    """Return what is wrong in the readable blocks of a program, as far as it does not hang on the others."""
    lowering = Lowering()
    _lowered(lowering, broken.program, mesh, defines or {}, entry, broken.missing)
    return tuple(lowering.diagnostics)


def _lowered(
    lowering: Lowering,
    program: ast.Program,
    mesh: Mapping[str, int] | None,
    defines: Mapping[str, int | float | bool | str],
    entry: str | None,
    missing: Missing | None,
) -> Instance | None:
    with _deep_stack():
        unit = Unit(program, is_std=False, report=lowering.report)
        unit.declare(lowering.std)
        if missing:
            std = (lowering.std(m).names() for m in STD if missing.imports)
            names = missing.names.union(*std).difference(PRELUDE)
            for name in names - unit.structs.keys():
                unit.items.setdefault(name, POISON)
        _consts(lowering, unit, defines, missing)
        _mesh(lowering, unit, mesh, missing)
        for name in unit.structs:
            with _reported(lowering):
                lowering.struct(unit, name, unit.structs[name].name_span)
        return _defs(lowering, program, unit, entry, missing)


def _order(span: Span | None) -> tuple[int, int]:
    """Sort diagnostics by position; those without one come first."""
    return (span.line, span.column) if span else (0, 0)


@contextmanager
def _deep_stack() -> Iterator[None]:
    """Allow the recursion that nested calls of deep expressions need; both depths are bounded elsewhere."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 100_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def _reported(lowering: Lowering) -> Iterator[None]:
    """Report an error instead of raising it."""
    try:
        yield
    except GShardError as error:
        lowering.report(error)
    except (Poisoned, Stopped):
        pass


# ---- top level


def _consts(
    lowering: Lowering, unit: Unit, defines: Mapping[str, int | float | bool | str], missing: Missing | None
) -> None:
    """Evaluate consts in order; a define replaces the value of one."""
    ev = lowering.evaluator(unit)
    declared = [n.id for item in unit.program.items if isinstance(item, ast.ConstDecl) for n in item.names]
    for name in defines:
        if name not in declared and not (missing and name in missing.names):
            edit, note = nearest(name, declared), f"it has {', '.join(declared[:20]) or 'none'}"
            lowering.report(
                fail(f"the program has no const {name} to define", None, note, suggestion=edit and f"-D {edit}=..")
            )
    for item in unit.program.items:
        if not isinstance(item, ast.ConstDecl):
            continue
        for const, value in zip(item.names, item.values, strict=True):
            with _reported(lowering):
                unit.enter(const.id, const.span)
                found: Item = POISON
                try:
                    found = _define(defines[const.id]) if const.id in defines else _const(ev.eval(value), value)
                finally:
                    unit.items[const.id] = found
    # Instances made for consts saw no mesh yet.
    lowering.instances.clear()
    lowering.names.clear()


def _define(value: int | float | bool | str) -> Item:
    if isinstance(value, int) and not isinstance(value, bool):
        return whole(value, "a defined const", None, low=-(2**63) + 1, high=2**63 - 1)  # type: ignore[arg-type]
    return value


def _const(item: Item, node: ast.Expr) -> Item:
    if not is_static(item):
        raise fail(f"a const is known at compile time, found {describe(item)}", node.span)
    return item


def _mesh(lowering: Lowering, unit: Unit, override: Mapping[str, int] | None, missing: Missing | None) -> None:
    """Set the mesh: declared axes, with the sizes of the override if there is one."""
    found = [item for item in unit.program.items if isinstance(item, ast.MeshDecl)]
    for extra in found[1:]:
        lowering.report(fail("the mesh is declared twice", extra.span, suggestion="one mesh(..) with all axes"))
    ev, sizes = lowering.evaluator(unit), dict[str, int]()
    if missing and not found:
        sizes.update(missing.axes)
    for axis in found[0].axes if found else ():
        try:
            value = ev.eval(axis.size)
            sizes[axis.name] = whole(value, f"the size of axis {axis.name}", axis.size.span, low=1, high=MAX_DEVICES)
        except GShardError as error:
            lowering.report(error)
            sizes[axis.name] = 1
        except Poisoned:
            sizes[axis.name] = 1
    if override is not None:
        sizes = _overridden(lowering, sizes, override, bool(found or sizes))
    if "_" in sizes:
        at = next((axis.span for item in found for axis in item.axes if axis.name == "_"), None)
        lowering.report(fail("an axis cannot be called _", at, suggestion=f"data={sizes['_']}"))
    mesh = Mesh(tuple(sizes), tuple(sizes.values()))
    if mesh.devices > MAX_DEVICES:
        lowering.report(
            fail(f"a mesh of {mesh.devices:,} devices", found[0].span if found else None, f"at most {MAX_DEVICES:,}")
        )
        return
    lowering.mesh = mesh


def _overridden(
    lowering: Lowering, sizes: Mapping[str, int], override: Mapping[str, int], declared: bool
) -> dict[str, int]:
    for name, size in override.items():
        if declared and name not in sizes:
            names = ", ".join(f"{n}={s}" for n, s in sizes.items())
            edit = nearest(name, list(sizes)) or (f"{next(iter(sizes))}={size}" if sizes else None)
            lowering.report(
                fail(f"the program declares no mesh axis {name}", None, f"it declares {names}", suggestion=edit)
            )
        if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_DEVICES:
            lowering.report(fail(f"the size of mesh axis {name} must be a positive integer, found {size!r}"))
            return dict(sizes)
    return {name: override.get(name, 1) for name in sizes} if declared else dict(override)


def _entry(program: ast.Program, unit: Unit, name: str | None) -> DefRef:
    """Choose the entry def."""
    if not unit.defs:
        raise fail("the program has no def", program.span, suggestion="def main(x: f32[8]) -> f32[8]: ..")
    if name is not None and name not in unit.defs:
        edit = nearest(name, list(unit.defs)) or " or ".join(list(unit.defs)[:8])
        raise fail(f"{program.span.file.name} has no def {name}", suggestion=edit)
    return unit.defs[name or ("main" if "main" in unit.defs else list(unit.defs)[-1])]


def _defs(
    lowering: Lowering, program: ast.Program, unit: Unit, entry: str | None, missing: Missing | None
) -> Instance | None:
    """Lower the entry, and check the other defs whose own types say everything."""
    instance = None
    # The def that would be the entry may be one that could not be read.
    known = missing is None or (entry or "main") in unit.defs
    with _reported(lowering):
        if not known:
            raise Stopped
        chosen = _entry(program, unit, entry)
        instance = _as_entry(lowering, chosen)
        if instance.function is not None and not instance.function.results:
            edit = "return a tensor that it computes"
            raise fail(f"{chosen.node.name} returns no tensor", chosen.node.name_span, suggestion=edit)
    for ref in unit.defs.values() if lowering.budget.left >= 0 else ():
        if _complete(ref.node) and not lowering.lowered(ref):
            with _reported(lowering):
                _as_entry(lowering, ref)
    return instance


def _as_entry(lowering: Lowering, ref: DefRef) -> Instance:
    return lowering.instance(ref, lowering.entry_arguments(ref), None, ref.node.name_span)


def _complete(node: ast.Def) -> bool:
    """Tell whether the types of a def say everything: it is not generic, each parameter a tensor or optional."""
    for param in node.params:
        type_ = param.type
        static = type_ is None or (isinstance(type_, ast.NamedType) and type_.name in STATIC_KINDS)
        spread = isinstance(type_, ast.TensorTypeExpr) and any(d.size is None for d in type_.dims)
        if (static and param.default is None) or spread:
            return False
    return not node.sizes


# ---- the module


def _module(lowering: Lowering, entry: Instance) -> Module:
    """Collect the functions that the entry reaches, the entry first, then in order of their first call."""
    made = {i.name: i.function for i in lowering.instances.values() if i.function is not None}
    functions: dict[str, Function] = {}
    waiting = [entry.name]
    while waiting:
        name = waiting.pop(0)
        if name not in functions:
            functions[name] = made[name]
            waiting += [str(op.attrs["callee"]) for op in made[name].body.walk() if op.name == "call"]
    return Module(lowering.mesh, functions, entry.name)
