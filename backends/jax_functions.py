"""Write one Python function: which values get a name, which are nested, and what each line is for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gshard_ir.backends.jax_idioms import IDIOMS, keep_dims
from gshard_ir.backends.jax_ops import Context, Renderer, full, ints
from gshard_ir.backends.jax_scopes import Call, Graph, Item, ops_of
from gshard_ir.backends.py_code import Code, comment_text, fresh, identifier
from gshard_ir.ir import Op, Value
from gshard_ir.source import Span

WIDTH = 88
"""Columns of code that a nested expression may fill; named operands can make a line longer."""
MOST_NESTED = 40
"""More operands than could stand nested on one line."""

NOUNS = {
    "einsum": "y", "reduce_sum": "total", "reduce_prod": "product", "reduce_max": "top", "reduce_min": "low",
    "argmax": "index", "argmin": "index", "take": "rows", "uniform": "draws", "exp": "weights",
    "select": "chosen", "fold_in": "key", "reduce_and": "mask", "reduce_or": "mask",
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), "running"),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not", "is_nan", "is_finite"), "mask"),
}  # fmt: skip


@dataclass(frozen=True)
class Dialect:
    """What differs between targets: the op table, which ops are lines of their own, and their comments."""

    table: Mapping[str, Renderer]
    own_line: frozenset[str]
    notes: Mapping[Op, str]


@dataclass(frozen=True)
class Line:
    """One statement: the comment above it, the code, and the source place at its end."""

    code: str
    place: str = ""
    above: str = ""


@dataclass(frozen=True, eq=False)
class Function:
    """A function to be written: parameters with the names they should have, items, results."""

    name: str
    params: Sequence[tuple[Value, str]]
    items: Sequence[Item]
    results: Sequence[Value]
    extra: tuple[str, ...] = ()
    hints: Mapping[Value, str] = field(default_factory=dict)

    def anonymous(self) -> Function:
        """The same function with no names of its own: equal texts mean equal functions."""
        params = [(value, "x") for value, _ in self.params]
        return replace(self, name=identifier("f"), params=params, hints=dict.fromkeys(self.results, ""))

    def hint(self, value: Value) -> str:
        """The name that a value should have."""
        return self.hints.get(value, value.hint)


@dataclass
class Writer:
    """Writes functions of one file. ``names`` are the module's own; ``calls`` names the outlined functions."""

    graph: Graph
    context: Context
    dialect: Dialect
    names: set[str]
    calls: Mapping[Call, Function]

    def write(self, function: Function) -> str:
        """The text of ``def name(...): ...``."""
        body = _Body(self, function)
        lines = body.lines()
        head = _signature(function.name, [*function.extra, *body.param_names])
        return "\n".join([head, *_laid_out(lines)])


def place_of(item: Item) -> str:
    """Where an item stands in the source: file without its folder, and line."""
    span = item.site if isinstance(item, Call) else item.span
    return show_place(span)


def show_place(span: Span | None) -> str:
    """``moe.gshard:19``; modules of the standard library keep their ``std/``."""
    if span is None:
        return ""
    name = span.file.name.replace("\\", "/")
    short = name if name.startswith("std/") else name.rsplit("/", 1)[-1]
    return comment_text(f"{short}:{span.line}")


@dataclass
class _Body:
    writer: Writer
    function: Function
    param_names: list[str] = field(default_factory=list)
    nested: set[Value] = field(default_factory=set)
    bound: dict[Value, Code] = field(default_factory=dict)
    producer: dict[Value, Item] = field(default_factory=dict)
    uses: Counter[Value] = field(default_factory=Counter)

    def lines(self) -> list[Line]:
        for item in self.function.items:
            self.producer.update(dict.fromkeys(_results(item), item))
        for item in self.function.items:
            self.uses.update(self.writer.graph.reads(item))
        for value in self.function.results:
            self.uses.update(self.writer.graph.leaves(value))
        self._decide_nesting()
        return self._statements()

    # Which values are written inside their only user.

    def _decide_nesting(self) -> None:
        for value, hint in self.function.params:
            self.bound[value] = _named(hint or "x", value)
        for item in self.function.items:
            for value in _results(item):
                self.bound[value] = _named(self._wish(value, item), value)
            self._nest_into(item)
        self._nest_into(None)

    def _nest_into(self, consumer: Item | None) -> None:
        candidates = [v for v in self._reads(consumer) if self._may_nest(v, consumer)]
        if len(candidates) > MOST_NESTED and len(self._draft(consumer)) > WIDTH:
            return  # too long as it is, and dropping them one by one takes a draft each
        self.nested |= set(candidates)
        while candidates and len(self._draft(consumer)) > WIDTH:
            longest = max(candidates, key=lambda v: len(self._code(v).text))
            candidates.remove(longest)
            self.nested.discard(longest)

    def _draft(self, consumer: Item | None) -> str:
        if consumer is None:
            return self._return()
        left = ", ".join(self.bound[v].text for v in _results(consumer))
        return f"{left} = {self._item(consumer).text}"

    def _reads(self, consumer: Item | None) -> list[Value]:
        graph = self.writer.graph
        if consumer is not None:
            return list(graph.reads(consumer))
        return [leaf for value in self.function.results for leaf in graph.leaves(value)]

    def _may_nest(self, value: Value, consumer: Item | None) -> bool:
        made = self.producer.get(value)
        if made is None or self.uses[value] != 1 or self._own_line(made):
            return False
        if consumer is not None and self._own_line(consumer):
            return False
        if isinstance(made, Call):
            return len(made.outputs) == 1 and not self.function.hint(value)
        returned_alone = consumer is None and len(self.function.results) == 1
        return not self.function.hint(value) or returned_alone or _same_step(value, made, consumer)

    def _own_line(self, item: Item) -> bool:
        return isinstance(item, Op) and item.name in self.writer.dialect.own_line

    def _wish(self, value: Value, item: Item) -> str:
        """The name a reader would expect: the user's, else that of what it feeds, else a noun for the op."""
        if self.function.hint(value):
            return self.function.hint(value)
        if isinstance(item, Call):
            return item.callee if len(item.outputs) == 1 else self._wish(value, self._maker(value, item))
        if item.name in NOUNS:
            return NOUNS[item.name]
        for operand in self.writer.graph.reads(item):
            hint, made = self.function.hint(operand), self.producer.get(operand)
            if hint or (self._own_line(item) and made is not None):
                return hint or self._wish(operand, made or item)
        return "y"

    def _maker(self, value: Value, call: Call) -> Item:
        return next(op for op in ops_of(call.items) if value in op.results)

    # Expressions.

    def _code(self, value: Value) -> Code:
        op = self.writer.graph.lazy(value)
        if op is not None:
            return self._lazy(op)
        if value in self.nested:
            return self._item(self.producer[value])
        return self.bound[value]

    def _shown(self, value: Value) -> Op | None:
        """The op whose code stands where ``value`` is used: a lazy one, or one nested there."""
        made = self.producer.get(value) if value in self.nested else self.writer.graph.lazy(value)
        return made if isinstance(made, Op) else None

    def _lazy(self, op: Op) -> Code:
        if op.name == "broadcast" and op.operands[0] in self.nested:
            made = self.producer[op.operands[0]]
            if isinstance(made, Op):
                kept = keep_dims(made, self._item(made), op.result.type, ints(op.attrs["dims"]))
                if kept is not None:
                    return kept
        shown = op.operands[:1] if op.name in ("like", "barrier") else op.operands
        return self.writer.dialect.table[op.name](self.writer.context, op, [self._code(v) for v in shown])

    def _item(self, item: Item) -> Code:
        if isinstance(item, Op):
            codes = [self._code(v) for v in item.operands]
            idiom = IDIOMS[item.name](item, codes, self._shown) if item.name in IDIOMS else None
            return idiom or self.writer.dialect.table[item.name](self.writer.context, item, codes)
        made = self.writer.calls[item]
        args = [*made.extra, *(self._full(v) for v in item.inputs)]
        first = item.outputs[0]
        return Code(f"{made.name}({', '.join(args)})", first.shape, first.dtype)

    def _full(self, value: Value) -> str:
        return full(self._code(value), value.type).text

    # Statements, in order, with names that live as long as their values.

    def _statements(self) -> list[Line]:
        roots = [i for i in self.function.items if not (set(_results(i)) & self.nested)]
        last = self._last_uses(roots)
        taken = {*self.writer.names, *self.function.extra}
        free: dict[int, list[str]] = {}  # names to give up, by the statement that does not need them any more
        for value, hint in self.function.params:
            self._bind(value, hint or "x", taken)
            self.param_names.append(self.bound[value].text)
            free.setdefault(max(last.get(value, 0), 0), []).append(self.bound[value].text)
        lines = []
        for at, item in enumerate(roots):
            code = self._item(item)
            taken.difference_update(free.get(at, ()))
            for value in _results(item):
                self._bind(value, self._wish(value, item), taken, code.shape if isinstance(item, Op) else None)
                free.setdefault(max(last.get(value, 0), at + 1), []).append(self.bound[value].text)
            left = ", ".join(self.bound[v].text for v in _results(item))
            lines.append(self._line(f"{left} = {code.text}", item))
        return [*lines, Line(self._return())]

    def _bind(self, value: Value, wish: str, taken: set[str], shape: tuple[int, ...] | None = None) -> None:
        name = fresh(wish, taken)
        taken.add(name)
        self.bound[value] = Code(name, value.shape if shape is None else shape, value.dtype)

    def _line(self, code: str, item: Item) -> Line:
        note = self.writer.dialect.notes.get(item) if isinstance(item, Op) else None
        if note is None:
            return Line(code, place_of(item))
        return Line(code, above=note)

    def _return(self) -> str:
        return f"return {', '.join(self._full(v) for v in self.function.results)}"

    def _last_uses(self, roots: Sequence[Item]) -> dict[Value, int]:
        last: dict[Value, int] = {}
        for at, item in enumerate(roots):
            last.update(dict.fromkeys(self._named_reads(item), at))
        for value in self.function.results:
            for leaf in self.writer.graph.leaves(value):
                last.update(dict.fromkeys(self._through(leaf), len(roots)))
        return last

    def _named_reads(self, item: Item) -> Iterator[Value]:
        for value in self.writer.graph.reads(item):
            yield from self._through(value)

    def _through(self, value: Value) -> Iterator[Value]:
        if value in self.nested:
            yield from self._named_reads(self.producer[value])
        else:
            yield value


def _results(item: Item) -> tuple[Value, ...]:
    return item.outputs if isinstance(item, Call) else item.results


def _named(wish: str, value: Value) -> Code:
    return Code(wish, value.shape, value.dtype)


def _same_step(value: Value, made: Op, consumer: Item | None) -> bool:
    """Is a named value only a step of the expression whose value carries the same name?"""
    if not isinstance(consumer, Op) or consumer.result.hint != value.hint:
        return False
    return show_place(made.span) == show_place(consumer.span)


def _signature(name: str, params: Sequence[str]) -> str:
    head = f"def {name}({', '.join(params)}):"
    if len(head) <= 110:
        return head
    return "\n".join([f"def {name}(", *_wrapped(params), "):"])


def _wrapped(words: Sequence[str], width: int = 100) -> list[str]:
    rows: list[str] = []
    for word in words:
        if rows and len(rows[-1]) + len(word) + 2 <= width:
            rows[-1] += f" {word},"
        else:
            rows.append(f"    {word},")
    return rows


def _laid_out(lines: Sequence[Line]) -> list[str]:
    """Indent, align the places at the ends of lines, and say each place once."""
    column = max((len(line.code) for line in lines if len(line.code) <= WIDTH and line.place), default=0)
    text: list[str] = []
    said = ""
    for line in lines:
        text += [f"    # {row}" for row in line.above.splitlines()]
        first, *rest = folded(line.code)
        shown = line.place if line.place != said else ""
        said = line.place
        text.append(f"    {first:<{column}}  # {shown}" if shown else f"    {first}")
        text += [f"    {row}" for row in rest]
    return text


def folded(code: str, width: int = 100) -> list[str]:
    """Rows of one statement: the longest call of one that is too long gets its arguments on rows of their own."""
    calls = [c for c in _outer_brackets(code) if code[c[0] - 1 : c[0]].isalnum() or code[c[0] - 1 : c[0]] == "_"]
    if len(code) <= width or not calls:
        return [code]
    opening, commas, closing = max(calls, key=lambda c: c[2] - c[0])
    starts = [opening + 1, *(c + 1 for c in commas)]
    parts = [code[a:b].strip() for a, b in zip(starts, [*commas, closing], strict=True)]
    return [code[: opening + 1], *_wrapped(parts, width), code[closing:]]


def _outer_brackets(code: str) -> list[tuple[int, list[int], int]]:
    """Each outermost round bracket: where it opens, the commas directly inside, where it closes."""
    found: list[tuple[int, list[int], int]] = []
    depth, quoted = 0, False
    opening, commas = 0, list[int]()
    for at, ch in enumerate(code):
        quoted ^= ch == '"'
        if quoted:
            continue
        if ch in "([{":
            if depth == 0:
                opening, commas = at, []
            depth += 1
        elif ch in ")]}":
            depth -= 1
            if depth == 0 and code[opening] == "(":
                found.append((opening, commas, at))
        elif ch == "," and depth == 1:
            commas.append(at)
    return found
