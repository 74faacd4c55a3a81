"""Reports as HTML: one self-contained piece, no scripts, nothing fetched, everything that a user wrote escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gshard_ir.dump.partitioned import Row
from gshard_ir.dump.table import Line
from gshard_ir.dump.traffic import Traffic, bytes_text
from gshard_ir.source import SourceFile

STYLE = """
.gshard{color-scheme:light dark;font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-x:auto}
.gshard table{border-collapse:collapse;margin:.6em 0;font:inherit}
.gshard td{padding:.1em .7em;vertical-align:top;text-align:left;white-space:pre;border:0;background:none}
.gshard .number,.gshard .sum{text-align:right}
.gshard .number,.gshard .why,.gshard summary,.gshard .role,.gshard .faint{opacity:.6}
.gshard tr.moves{background:rgba(230,160,0,.16)}
.gshard .head,.gshard .title{font-weight:bold}
.gshard .name{color:#0a7a8c}
.gshard .comm{color:#b35c00;font-weight:bold}
.gshard .bytes,.gshard .sum{color:#a0259b}
.gshard .good{color:#1a7f37}
.gshard .bad{color:#c9252d;font-weight:bold}
.gshard .bar{display:inline-block;height:.6em;margin-right:.5em;background:#b35c00}
.gshard .row>span{margin-right:.9em}
.gshard pre{margin:.6em 0;font:inherit;white-space:pre}
@media(prefers-color-scheme:dark){.gshard .name{color:#5ac8d8}.gshard .comm{color:#f0a64a}
.gshard .bytes,.gshard .sum{color:#e08adb}.gshard .good{color:#56d364}.gshard .bad{color:#ff7b72}}
"""


def page(title: str, body: str) -> str:
    """Return a whole document around a fragment."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    head += f"<title>{text(title)}</title>\n"
    return f"<!doctype html>\n<html>\n<head>\n{head}</head>\n<body>\n{body}</body>\n</html>\n"


def fragment(body: str) -> str:
    """Return a piece that can stand in any page, its style with it."""
    return f'<div class="gshard">\n<style>{STYLE}</style>\n{body}</div>\n'


def text(found: str) -> str:
    """Escape; what cannot be printed becomes a blank."""
    return escape("".join(ch if ch.isprintable() else " " for ch in found), quote=True)


def text_lines(found: str) -> str:
    """Escape text of several lines."""
    return "\n".join(map(text, found.split("\n")))


def preformatted(lines: Iterable[Line]) -> str:
    """Return lines as they stand in a terminal."""
    shown = []
    for segments in lines:
        *rest, last = segments
        told = [(s.text, s.style) for s in rest] + [(last.text.rstrip(), last.style)]
        shown.append("".join(span(style, found) if style else text(found) for found, style in told if found))
    return "<pre>" + "\n".join(s.rstrip() for s in shown) + "\n</pre>\n"


def span(kind: str, found: str) -> str:
    """Return a styled piece of text."""
    return f'<span class="{kind}">{text(found)}</span>'


def annotated(title: str, mesh: str, file: SourceFile, rows: Sequence[Row], traffic: Traffic) -> str:
    """Return the source with, beside each line, its values, their layouts, and what the line sends.

    Rows without a line of this file stand at the end; values inside called defs are folded.
    """
    lines = file.text.rstrip("\n").split("\n")
    by_line: dict[int, list[Row]] = {}
    for row in rows:
        at = row.view.line if 1 <= row.view.line <= len(lines) else 0
        by_line.setdefault(at, []).append(row)
    most = max((_sent(found) for found in by_line.values()), default=0.0)
    body = [f"<pre>{span('title', title)}    {text(f'mesh {mesh}    {traffic.summary()}')}</pre>\n<table>\n"]
    body += [_source_line(str(i), code, by_line.get(i, []), most) for i, code in enumerate(lines, 1)]
    if 0 in by_line:
        body.append(_source_line("", "", by_line[0], most))
    body.append("</table>\n")
    if traffic.collectives:
        sums = [_sum("kind", kind, str(traffic.counts[kind]), sent) for kind, sent in traffic.by_kind.items()]
        total = _sum("total", "sent per device", "", traffic.bytes)
        body.append(f"<table>\n{''.join(sums)}{total}</table>\n")
    return "".join(body)


def _sent(rows: Iterable[Row]) -> float:
    return sum(r.collective.sent for r in rows if r.collective is not None)


def _sum(kind: str, what: str, count: str, sent: float) -> str:
    cells = _cell("comm" if count else "", what) + _cell("number", count) + _cell("sum", bytes_text(sent))
    return f'<tr class="{kind}">{cells}</tr>\n'


def _cell(kind: str, found: str) -> str:
    return f'<td class="{kind}">{text(found)}</td>'


def _source_line(number: str, code: str, rows: Sequence[Row], most: float) -> str:
    sent = _sent(rows)
    moves = any(r.collective is not None for r in rows)
    bar = f'<span class="bar" style="width:{5 * sent / most:.2f}em"></span>' if sent else ""
    cost = f'<td class="sum">{bar}{text(bytes_text(sent)) if moves else ""}</td>'
    shown = [r for r in rows if r.collective is not None or not r.view.inner]
    folded = [r for r in rows if r.collective is None and r.view.inner]
    values = "".join(map(_value, shown))
    if folded:
        told = f"{len(folded)} value{'' if len(folded) == 1 else 's'} inside called defs"
        values += f"<details><summary>{told}</summary>{''.join(map(_value, folded))}</details>"
    head = f'<tr class="line{" moves" if moves else ""}">{_cell("number", number)}{_cell("code", code)}'
    return f'{head}{cost}<td class="values">{values}</td></tr>\n'


def _value(row: Row) -> str:
    view, c = row.view, row.collective
    pieces = [("role", row.role), ("name", view.name), ("global", row.whole), ("local", row.local)]
    if c is not None:
        pieces += [("comm", str(c)), ("bytes", bytes_text(c.sent)), ("why", c.reason)]
    pieces.append(("where", view.where))
    inside = " ".join(span(kind, found) for kind, found in pieces if found)
    return f'<div class="row {row.role}">{inside}</div>'
