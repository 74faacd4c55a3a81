"""Defs: one function per instance (types of tensors, values of everything else), and the calls between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend import ast
from gshard_ir.frontend.lower_arguments import bind_arguments
from gshard_ir.frontend.lower_arith import Term
from gshard_ir.frontend.lower_body import Body
from gshard_ir.frontend.lower_emit import Budget, Emitter
from gshard_ir.frontend.lower_exprs import Evaluator
from gshard_ir.frontend.lower_types import (
    Resolver,
    Sizes,
    Spec,
    StaticSpec,
    StructType,
    bind_sizes,
    conform,
    parameter,
    spec_leaves,
    spreads,
    tensors,
)
from gshard_ir.frontend.lower_units import Unit, std_program
from gshard_ir.frontend.lower_values import DefRef, Item, Poisoned, is_static, key_of, leaves, map_leaves, text_of
from gshard_ir.ir import Function, Op, Region, Value
from gshard_ir.mesh import Mesh
from gshard_ir.sharding import Sharding
from gshard_ir.source import Span

MAX_CALLS = 64
"""Most calls inside one another."""
MAX_ERRORS = 100


@dataclass
class Instance:
    """A def for one set of argument types: its function, and what it returns in terms of its own values.

    ``function`` is None when its body is in error.
    """

    name: str
    function: Function | None = None
    result: Item = None


@dataclass(frozen=True)
class Frame:
    """A def being lowered and the call that asked for it."""

    ref: DefRef
    name: str
    site: Span | None


class Lowering:
    """Everything that one program's defs share: mesh, units, instances, diagnostics."""

    def __init__(self) -> None:
        self.mesh = Mesh((), ())
        self.budget = Budget()
        self.diagnostics: list[Diagnostic] = []
        self.frames: list[Frame] = []
        self.instances: dict[object, Instance] = {}
        self.names: dict[str, int] = {}
        self._places: set[tuple[object, ...]] = set()
        self._std: dict[str, Unit] = {}

    # ---- diagnostics

    def report(self, error: GShardError) -> None:
        """Keep the first diagnostic of each place, seen from where the program reaches it."""
        for found in error.diagnostics:
            diagnostic = self._seen_from_program(found)
            span = diagnostic.span
            place = (span.file.name, span.line, span.column) if span else (diagnostic.message,)
            if place not in self._places and len(self.diagnostics) < MAX_ERRORS:
                self._places.add(place)
                self.diagnostics.append(diagnostic)

    def _seen_from_program(self, found: Diagnostic) -> Diagnostic:
        """Add the call stack; an error inside ``std`` is shown at the program's own call."""
        span, also = found.span, found.also
        if span is None:
            return found
        message, suggestion = found.message, found.suggestion
        for frame in reversed(self.frames):
            if frame.site is None:
                break
            if frame.ref.unit.is_std and frame.site.file.name == span.file.name:
                span = frame.site
            elif frame.ref.unit.is_std:
                also, suggestion = ((span, f"inside {frame.ref.node.name}"), *also), None
                message, span = f"{frame.ref.node.name}: {message}", frame.site
            else:
                span = span.called_from(frame.site, frame.name)
        return replace(found, message=message, span=span, also=also, suggestion=suggestion)

    # ---- units

    def std(self, module: str) -> Unit:
        """Return the unit of a module of the standard library."""
        if module not in self._std:
            unit = Unit(std_program(module), is_std=True, report=self.report)
            self._std[module] = unit
            unit.declare(self.std)
        return self._std[module]

    def evaluator(self, unit: Unit, owner: str = "") -> Evaluator:
        """Return an evaluator of top-level expressions; ops that they emit are thrown away."""
        return Evaluator(self, unit, Emitter(owner, self.budget))

    def struct(self, unit: Unit, name: str, span: Span) -> StructType:
        return unit.struct(name, span, self.resolver(self.evaluator(unit)).resolve)

    def resolver(self, ev: Evaluator) -> Resolver:
        return Resolver(self.mesh, ev.eval, lambda name, span: self.struct(ev.unit, name, span))

    # ---- calls

    def call(
        self,
        ev: Evaluator,
        ref: DefRef,
        positional: Sequence[Term],
        keywords: Mapping[str, tuple[Term, Span]],
        node: ast.Call,
    ) -> Item:
        """Lower a call: check arguments, find or make the instance, emit a ``call`` op for its tensors."""
        names = [p.name for p in ref.node.params]
        found = bind_arguments(ref.node.name, names, [(t, t.span) for t in positional], keywords)
        given = {name: term for name, (term, _) in found.items()}
        callee = self.evaluator(ref.unit, ref.node.name)
        items = self.arguments(ev.emit, callee, ref, given, node.span)
        instance = self.instance(ref, items, ev.emit.at(node.span), node.func.span)
        if instance.function is None:
            raise Poisoned
        return self._emit_call(ev.emit, instance, items, node.span)

    def _emit_call(self, emit: Emitter, instance: Instance, items: Mapping[str, Item], span: Span) -> Item:
        results = [v for _, v in leaves(instance.result)]
        if not results:
            return instance.result
        operands = tuple(v for item in items.values() for _, v in leaves(item))
        values = [Value(v.type, "", emit.at(span)) for v in results]
        emit.budget.spend(span)
        emit.builder.ops.append(Op("call", operands, tuple(values), {"callee": instance.name}, (), emit.at(span)))
        fresh = iter(values)
        return map_leaves(instance.result, lambda _: next(fresh))

    def arguments(
        self, emit: Emitter, callee: Evaluator, ref: DefRef, given: Mapping[str, Term], span: Span
    ) -> dict[str, Item]:
        """Bind generic sizes (into the callee's names), check arguments and fill in defaults."""
        node = ref.node
        sizes: Sizes = {}
        wanted = [n.id for n in node.sizes]
        for param in node.params:
            if param.name in given:
                term = given[param.name]
                bind_sizes(param.type, term.item, wanted, sizes, param.name, term.span)
        if unbound := [n for n in wanted if n not in sizes]:
            where = " or ".join(p.name for p in node.params if p.type is not None) or "an argument"
            raise fail(f"{node.name}: no argument determines {', '.join(unbound)}", span, f"the dims of {where} would")
        callee.locals.update({name: n for name, (n, _) in sizes.items()})
        items: dict[str, Item] = {}
        # Compile-time arguments may stand in the types and defaults that follow.
        for param in node.params:
            if param.name in given:
                term = given[param.name]
                items[param.name] = self._checked(emit, callee, param, term.item, node.name, term.span)
            elif param.default is None:
                raise fail(
                    f"{node.name} needs {param.name}", span, f"{node.name}({', '.join(p.name for p in node.params)})"
                )
            else:
                item = callee.eval(param.default)
                items[param.name] = self._checked(emit, callee, param, item, node.name, param.default.span)
            if is_static(items[param.name]):
                callee.locals[param.name] = items[param.name]
        return items

    def _checked(self, emit: Emitter, callee: Evaluator, param: ast.Param, item: Item, owner: str, span: Span) -> Item:
        if param.type is None or (item is None and isinstance(param.default, ast.NoneLit)):
            return item
        least = len(param.type.dims) - 1 if isinstance(param.type, ast.TensorTypeExpr) and spreads(param.type) else 0
        if isinstance(item, Value) and item.type.rank < least:
            note = f"its type is {text_of(param.type.span)}"
            raise fail(f"{owner}: {param.name} is {item.type}, expected {least} dims or more", span, note)
        spec = self.resolver(callee).resolve(param.type, item)
        return conform(emit, item, spec, f"{owner}: {param.name}", span)

    # ---- instances

    def instance(self, ref: DefRef, items: Mapping[str, Item], site: Span | None, at: Span) -> Instance:
        """Return the function of a def for these arguments, lowering its body the first time."""
        active = [f.ref for f in self.frames]
        if ref in active:
            cycle = [r.node.name for r in (*active[active.index(ref) :], ref)]
            raise fail(
                f"{ref.node.name} calls itself",
                at,
                f"the cycle is {' -> '.join(cycle)}",
                "defs are expanded at compile time, so they cannot recur",
                suggestion="for i in unroll(n)",
            )
        key = (id(ref.node), *(key_of(i) for i in items.values()))
        if key in self.instances:
            return self.instances[key]
        if len(self.frames) >= MAX_CALLS:
            raise fail(f"calls are nested more than {MAX_CALLS} deep", at, suggestion="put defs together")
        made = Instance(self._fresh(ref.node.name))
        self.instances[key] = made
        self.frames.append(Frame(ref, made.name, site))
        try:
            self._lower(ref, items, made)
        except GShardError as error:
            self.report(error)
        except Poisoned:
            pass
        finally:
            self.frames.pop()
        return made

    def lowered(self, ref: DefRef) -> bool:
        """Tell whether any instance of a def was lowered."""
        return any(isinstance(key, tuple) and key[0] == id(ref.node) for key in self.instances)

    def _fresh(self, base: str) -> str:
        """Return a function name that is not taken: the def's own, then with _2, _3, .."""
        name, n = base, self.names.get(base, 0)
        while name in self.names:
            n += 1
            name = f"{base}_{n}"
        self.names[base] = max(n, 1)
        self.names.setdefault(name, 1)
        return name

    def _lower(self, ref: DefRef, items: Mapping[str, Item], made: Instance) -> None:
        node = ref.node
        if node.decorators:
            decorator = node.decorators[0]
            raise fail(f"@{decorator.name} is not supported yet", decorator.span, suggestion="leave it out")
        emit = Emitter(made.name, self.budget)
        body = Body(Evaluator(self, ref.unit, emit))
        signature = self._signature(ref, items)
        emit.locals.update(signature.locals)
        names: list[str] = []
        shardings: list[Sharding | None] = []
        for param in node.params:
            item = items[param.name]
            paths = [path for path, _ in leaves(item, param.name)]
            hints = iter(paths)
            span = emit.at(param.span)
            emit.locals[param.name] = map_leaves(
                item,
                lambda v, hints=hints, span=span: emit.builder.param(v.type, next(hints), span),  # type: ignore[misc]
            )
            names += paths
            shardings += self._layouts(signature, param.type, item, len(paths))
        result = body.run(node)
        result, layouts, result_names = self._result(body, node, result, signature)
        region = emit.close([v for _, v in leaves(result)])
        self._refuse_idle(region)
        made.result = _replaced(result, region.results)
        made.function = Function(
            made.name, region, tuple(names), result_names, tuple(shardings), layouts, emit.at(node.name_span)
        )

    def _signature(self, ref: DefRef, items: Mapping[str, Item]) -> Evaluator:
        """Return the scope of a def's types: generic sizes and compile-time arguments, whatever its body rebinds."""
        ev, sizes = self.evaluator(ref.unit, ref.node.name), dict[str, tuple[int, str]]()
        for param in ref.node.params:
            item = items[param.name]
            bind_sizes(param.type, item, [n.id for n in ref.node.sizes], sizes, param.name, param.span)
            if is_static(item):
                ev.locals[param.name] = item
        ev.locals.update({name: n for name, (n, _) in sizes.items()})
        return ev

    def _refuse_idle(self, region: Region) -> None:
        """Refuse annotations whose result nobody reads: they would be dropped in silence."""
        used = {v for op in region.ops for v in op.operands} | set(region.results)
        for op in region.ops:
            if op.name in ("annotate", "like", "barrier") and op.result not in used:
                how = text_of(op.span) if op.span else op.name
                raise fail(
                    "this annotation has no effect: its result is not used",
                    op.span,
                    "an annotation holds for the value that it returns",
                    suggestion=f"x = {how}, and use x from there on",
                )

    def _layouts(self, ev: Evaluator, type_: ast.TypeExpr | None, item: Item, n: int) -> list[Sharding | None]:
        if type_ is None or n == 0:
            return [None] * n
        return [leaf.sharding for leaf in spec_leaves(self.resolver(ev).resolve(type_, item))]

    def _result(
        self, body: Body, node: ast.Def, item: Item, signature: Evaluator
    ) -> tuple[Item, tuple[Sharding | None, ...], tuple[str, ...]]:
        """Check the returned value against the declared type; name its tensors."""
        returned = body.returned
        assert returned is not None and returned.value is not None
        layouts: list[Sharding | None] = [None] * len(list(leaves(item)))
        if node.result is not None:
            spec = self.resolver(signature).resolve(node.result, item)
            item = conform_result(body.ev.emit, item, spec, node, returned)
            layouts = [leaf.sharding for leaf in spec_leaves(spec)]
        return item, tuple(layouts), result_names(item, returned.value)

    # ---- entries

    def entry_arguments(self, ref: DefRef) -> dict[str, Item]:
        """Return stand-ins for the arguments of an entry: tensors of its parameter types, defaults for the rest."""
        node = ref.node
        if node.sizes:
            raise fail(
                f"{node.name} is generic over {', '.join(n.id for n in node.sizes)}, so it cannot be the entry",
                node.name_span,
                suggestion="write sizes in its types, or call it from a def that does",
            )
        ev = self.evaluator(ref.unit, node.name)
        items: dict[str, Item] = {}
        for param in node.params:
            spec = None if param.type is None else self.resolver(ev).resolve(param.type)
            if spec is not None and not isinstance(spec, StaticSpec):
                self.budget.spend(param.span, tensors(spec))
                types = iter([leaf.type for leaf in spec_leaves(spec)])
                items[param.name] = parameter(spec, lambda types=types: Value(next(types)))  # type: ignore[misc]
            elif param.default is not None:
                item = ev.eval(param.default)
                items[param.name] = self._checked(ev.emit, ev, param, item, node.name, param.default.span)
            else:
                what = "has no type" if spec is None else f"is a {spec}"
                raise fail(
                    f"{node.name} cannot be the entry: {param.name} {what} and no default",
                    param.span,
                    suggestion=f"{param.name}: f32[8]" if spec is None else f"{param.name}: {spec} = ..",
                )
        return items


def conform_result(emit: Emitter, item: Item, spec: Spec, node: ast.Def, returned: ast.Return) -> Item:
    """Check a returned value against the declared type."""
    assert returned.value is not None
    what = f"the result of {node.name}"
    try:
        return conform(emit, item, spec, what, returned.value.span)
    except GShardError as error:
        assert node.result is not None
        first = error.diagnostics[0]
        raise GShardError(replace(first, also=(*first.also, (node.result.span, "declared here")))) from None


def result_names(item: Item, node: ast.Expr) -> tuple[str, ...]:
    """Name returned tensors after the variables in the return statement, else r0, r1, .."""
    parts = node.items if isinstance(node, ast.Tuple) else (node,)
    items = item if isinstance(node, ast.Tuple) and isinstance(item, tuple) else (item,)
    names: list[str] = []
    for i, (part, value) in enumerate(zip(parts, items, strict=True)):
        base = part.id if isinstance(part, ast.Name) else f"r{i}"
        found = [path for path, _ in leaves(value, base)]
        names += found if not set(found) & set(names) else [path for path, _ in leaves(value, f"r{i}")]
    return tuple(names)


def _replaced(item: Item, values: Sequence[Value]) -> Item:
    fresh = iter(values)
    return map_leaves(item, lambda _: next(fresh))
