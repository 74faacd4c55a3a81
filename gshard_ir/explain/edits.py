"""Changed annotations, tried out: what is suggested has been compiled, and its bytes counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gshard_ir.errors import GShardError
from gshard_ir.explain.model import Trial
from gshard_ir.explain.words import Words
from gshard_ir.ir import Function, Module, Op, Region, Value
from gshard_ir.mesh import merged_axes
from gshard_ir.opdef import opdef
from gshard_ir.passes.plan import local_space
from gshard_ir.passes.refine import EXEMPT, MEMORY_SLACK, WORK_SLACK
from gshard_ir.passes.traffic import of_module
from gshard_ir.pipeline import Compiled, compile_module
from gshard_ir.sharding import DimSharding, Layout, Sharding
from gshard_ir.source import Span

BUDGET = 40_000
"""Ops compiled for suggestions in all; a large program gets fewer trials."""


@dataclass(frozen=True)
class Edit:
    """One changed annotation: its text before and after, its place, and the changed program."""

    old: str
    new: str
    span: Span | None
    apply: Callable[[Module], Module]


Moved = tuple[str, Span | None]
"""A value that is moved, by what it keeps when annotations change: its name and place."""


def moved_key(value: Value) -> Moved:
    """Return the key of a value in :attr:`Measure.moved`."""
    return value.hint, value.span


@dataclass(frozen=True)
class Measure:
    """What a compiled program sends, computes and holds on one device; ``moved`` is what it sends of single values."""

    bytes: float
    collectives: int
    contractions: int
    work: int
    peak: int
    moved: Mapping[Moved, float]

    @staticmethod
    def of(compiled: Compiled) -> Measure:
        plan = compiled.refined.plan
        spaces = [
            (opdef(op.name).family, local_space(r, plan.strategies[op].split, plan.mesh))
            for op, r in plan.rules.items()
        ]
        sent = [t.sent for _, t in of_module(compiled.partitioned.module)]
        moved: dict[Moved, float] = {}
        for comm in compiled.partitioned.comms.values():
            key = moved_key(comm.value)
            moved[key] = moved.get(key, 0.0) + comm.transfer.sent
        heavy = sum(n for family, n in spaces if family == "contraction")
        light = sum(n for family, n in spaces if family != "contraction" and family not in EXEMPT)
        return Measure(sum(sent), len(sent), heavy, light, compiled.refined.peak(), moved)

    def beats(self, other: Measure, value: Moved) -> bool:
        """Fewer bytes, of ``value`` too, in no more collectives, within the search's own limits on work and memory."""
        cheaper = self.bytes < other.bytes and self.collectives <= other.collectives
        cheaper &= self.moved.get(value, 0.0) < other.moved.get(value, 0.0)
        fits = self.work <= WORK_SLACK * other.work and self.peak <= MEMORY_SLACK * other.peak
        return cheaper and fits and self.contractions <= other.contractions


class Edits:
    """Makes edits of the annotations of one program and tries them."""

    def __init__(self, compiled: Compiled, words: Words, *, search: bool = True, budget: int = BUDGET) -> None:
        self.compiled, self.words, self.search, self.budget = compiled, words, search, budget
        self.plan, self.lowered = compiled.refined.plan, compiled.lowered
        self.before = Measure.of(compiled)
        self.tried: dict[tuple[str, str, Span | None], Measure | None] = {}

    def measure(self, edit: Edit) -> Measure | None:
        """Compile with an edit; None when it is refused, or when enough has been compiled."""
        key = (edit.old, edit.new, edit.span)
        if key not in self.tried:
            self.tried[key] = self._measure(edit) if self.budget > 0 else None
        return self.tried[key]

    def _measure(self, edit: Edit) -> Measure | None:
        self.budget -= len(self.plan.function.body.ops)
        try:
            module = edit.apply(self.lowered)
            return Measure.of(compile_module(module, launch_bytes=self.plan.launch_bytes, search=self.search))
        except GShardError:
            return None

    def trial(self, edit: Edit) -> Trial | None:
        """What an edit does to the bytes of the whole program."""
        after = self.measure(edit)
        if after is None:
            return None
        place, before = self.words.place(edit.span), self.before
        return Trial(edit.old, edit.new, place, after.bytes, before.bytes, after.collectives, before.collectives)

    def best(self, value: Value, edits: Iterable[Edit]) -> Trial | None:
        """The edit that saves most, of what ``value`` sends too, without more work or memory; the first of equals."""
        key = moved_key(value)
        found = [(m, e) for e in edits if (m := self.measure(e)) is not None and m.beats(self.before, key)]
        return self.trial(min(found, key=lambda pair: (pair[0].bytes, pair[0].collectives))[1]) if found else None

    def param(self, value: Value, layout: Layout) -> Trial | None:
        """What the program would send if an argument were laid out so."""
        return self.trial(self.of_param(value, layout))

    def of_param(self, value: Value, layout: Layout) -> Edit:
        """Ask for a layout in the type of an argument."""
        function = self.plan.function
        at = function.params.index(value)
        name, old = function.param_names[at], function.param_shardings[at]
        new = self.sharding(layout, old)

        def apply(module: Module) -> Module:
            return module.with_main(replace(module.main, param_shardings=_with(module.main.param_shardings, at, new)))

        return Edit(_typed(name, value, old), _typed(name, value, new), value.span, apply)

    def of_result(self, at: int, value: Value, layout: Layout) -> Edit:
        """Ask for a layout in the type of a result."""
        name, old = f"result {self.lowered.main.result_names[at]}", self.lowered.main.result_shardings[at]
        new = self.sharding(layout, old)

        def apply(module: Module) -> Module:
            pins = _with(module.main.result_shardings, at, new)
            return module.with_main(replace(module.main, result_shardings=pins))

        return Edit(_typed(name, value, old), _typed(name, value, new), value.span, apply)

    def of_annotation(self, op: Op, layout: Layout) -> Edit | None:
        """Change what an ``annotate`` op asks for, wherever the def that holds it is called."""
        old, how = op.attrs["sharding"], str(op.attrs["how"])
        assert isinstance(old, Sharding)
        if how.startswith("result "):
            at = next((i for i, s in enumerate(self.lowered.main.result_shardings) if s is old), None)
            return None if at is None else self.of_result(at, op.result, layout)
        new = self.sharding(layout, old)
        typed = ":" in how.partition("(")[0]
        text = _typed(how.partition(":")[0], op.result, new) if typed else _call(how, new)

        def change(function: Function) -> Function:
            body = replace(function.body, ops=tuple(_annotated(o, op, new) for o in function.body.ops))
            params = tuple(new if s is old else s for s in function.param_shardings)
            results = tuple(new if s is old else s for s in function.result_shardings)
            return replace(function, body=body, param_shardings=params, result_shardings=results)

        return Edit(how, text, op.span, lambda m: replace(m, functions={n: change(f) for n, f in m.functions.items()}))

    def of_value(self, value: Value, layout: Layout) -> Edit | None:
        """Annotate a value where the entry names it; None for what only an inlined def knows."""
        inside = {v for op in self.lowered.main.body.ops for v in op.results}
        if value not in inside or not value.hint:
            return None
        new = self.sharding(layout, None)
        text = f"{value.hint} = shard({value.hint}, {_list(new)})"

        def apply(module: Module) -> Module:
            return module.with_main(module.main.with_body(_inserted(module.main.body, value, new, text)))

        return Edit("", text, value.span, apply)

    def sharding(self, layout: Layout, old: Sharding | None) -> Sharding:
        """A layout as an annotation asks for it: split dims closed, others as the old one has them, or open."""
        mesh = self.plan.mesh
        dims = [DimSharding(tuple(merged_axes(mesh, axes)), open=not axes) for axes in layout.dims]
        if old is None:
            return Sharding(tuple(dims))
        for i, (now, axes) in enumerate(zip(old.dims, layout.dims, strict=True)):
            if tuple(a for ref in now.axes for a in mesh.expand(ref)) == axes:
                dims[i] = now
        return Sharding(tuple(dims), old.forbidden)


def _typed(name: str, value: Value, sharding: Sharding | None) -> str:
    """``x: f32[8@expert,64]``; empty for an annotation that says nothing."""
    silent = sharding is None or sharding.says_nothing
    return "" if silent or sharding is None else f"{name}: {value.dtype}{sharding.show(value.shape)}"


def _annotated(op: Op, target: Op, new: Sharding) -> Op:
    """The op with the new sharding, if it stands for the same text as ``target``."""
    if op.name != "annotate" or op.attrs["how"] != target.attrs["how"]:
        return op
    same = op.attrs["sharding"] is target.attrs["sharding"] or _same_text(op.span, target.span)
    return replace(op, attrs={**op.attrs, "sharding": new}) if same else op


def _with(found: tuple[Sharding | None, ...], at: int, new: Sharding) -> tuple[Sharding | None, ...]:
    return (*found[:at], new, *found[at + 1 :])


def _same_text(a: Span | None, b: Span | None) -> bool:
    def here(s: Span) -> tuple[object, ...]:
        return (s.file, s.line, s.column, s.end_line, s.end_column)

    return a is not None and b is not None and here(a) == here(b)


def _list(sharding: Sharding) -> str:
    return f"[{', '.join(map(_entry, sharding.dims))}]"


def _entry(dim: DimSharding) -> str:
    """A dim in the list of ``shard``: an axis, axes in brackets, ``?`` for open, ``_`` for unsplit."""
    axes = ", ".join(map(str, dim.axes))
    return f"({axes})" if len(dim.axes) > 1 else axes or ("?" if dim.open else "_")


def _call(how: str, new: Sharding) -> str:
    """``shard(x, [..])`` for the first argument of an annotation's text."""
    return f"shard({next(_arguments(how), 'x')}, {_list(new)})"


def _arguments(text: str) -> Iterator[str]:
    """The arguments of a call, cut at its own commas."""
    depth, start = 0, text.find("(") + 1
    for i in range(start, len(text)):
        if text[i] in "([{":
            depth += 1
        elif depth == 0 and text[i] in ",)":
            yield text[start:i].strip()
            start = i + 1
        elif text[i] in ")]}":
            depth -= 1


def _inserted(body: Region, value: Value, new: Sharding, how: str) -> Region:
    pinned = replace(value)
    ops: list[Op] = []
    for op in body.ops:
        ops.append(replace(op, operands=tuple(pinned if v is value else v for v in op.operands)))
        if value in op.results:
            ops.append(Op("annotate", (value,), (pinned,), {"sharding": new, "how": how}, (), value.span))
    return Region(body.params, tuple(ops), tuple(pinned if v is value else v for v in body.results))
