"""The partitioned program as a graph for Graphviz: a node per named value, a bold edge per collective."""

from __future__ import annotations

from collections.abc import Sequence

from gshard_ir.dump.partitioned import Row
from gshard_ir.dump.traffic import bytes_text
from gshard_ir.ir import Function, Value

STYLES = {"param": ", style=bold", "result": ", style=bold", "copy": ", color=darkorange3"}


def graph(title: str, function: Function, rows: Sequence[Row], *, everything: bool = False) -> str:
    """Return the text of a ``digraph``; ``function`` is the local entry that ``rows`` describe.

    Values without a name are passed over: what they were computed from feeds what is computed from them.
    So are values inside called defs, without ``everything``.
    """
    shown = [i for i, r in enumerate(rows) if everything or r.collective is not None or not r.view.inner]
    lines = [f"digraph {quoted(title)} {{", "  rankdir=TB;"]
    lines += ["  node [shape=box, fontname=monospace, fontsize=10];", "  edge [fontname=monospace, fontsize=9];"]
    lines += [f"  n{i} [{_node(rows[i])}];" for i in shown]
    sources = feeds(function, [rows[i] for i in shown])
    for at, i in enumerate(shown):
        lines += [f"  n{shown[source]} -> n{i}{_edge(rows[i])};" for source in sources[at]]
    return "\n".join([*lines, "}"]) + "\n"


def feeds(function: Function, rows: Sequence[Row]) -> list[tuple[int, ...]]:
    """Return for each row the rows that it is computed from, in order."""
    at: dict[Value, list[int]] = {}
    for i, row in enumerate(rows):
        if row.role != "result":
            at.setdefault(row.held, []).append(i)
    nodes: dict[Value, tuple[int, ...]] = {}
    sources: list[tuple[int, ...]] = [()] * len(rows)

    def define(value: Value, inputs: tuple[int, ...]) -> None:
        for i in at.get(value, ()):  # several names of one value follow each other
            sources[i], inputs = inputs, (i,)
        nodes[value] = inputs

    for value in function.params:
        define(value, ())
    for op in function.body.ops:
        inputs = tuple(dict.fromkeys(i for v in op.operands for i in nodes.get(v, ())))
        for value in op.results:
            define(value, inputs)
    for i, row in enumerate(rows):
        if row.role == "result":
            sources[i] = nodes.get(row.held, ())
    return sources


def _node(row: Row) -> str:
    view = row.view
    where = f"line {view.line}" if view.line else ""
    label = [view.name, f"{row.whole}  {row.local}", ", ".join(w for w in (where, view.where) if w)]
    shown = "\n".join(w for w in label if w)
    return f"label={quoted(shown)}{STYLES.get(row.role, '')}"


def _edge(row: Row) -> str:
    c = row.collective
    if c is None:
        return ""
    label = quoted(f"{c}\n{bytes_text(c.sent)}")
    return f" [label={label}, tooltip={quoted(c.reason)}, color=darkorange3, fontcolor=darkorange3, penwidth=2]"


def quoted(text: str) -> str:
    """Return a quoted string of the dot language, with its line breaks; other control characters become blanks."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join("\\n" if ch == "\n" else ch if ch.isprintable() else " " for ch in escaped) + '"'
