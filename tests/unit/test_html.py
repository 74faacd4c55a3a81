"""HTML and dot: self-contained, and nothing that a user wrote gets out of its place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gshard_ir as gs
from gshard_ir.api import check
from gshard_ir.cli import main
from gshard_ir.dump import dot, html
from gshard_ir.dump.dot import quoted
from gshard_ir.dump.table import Segment
from gshard_ir.errors import GShardError
from gshard_ir.program import STAGES
from gshard_ir.source import SourceFile

SOURCE = """\
mesh(x=4)  # </td></table><script>alert(1)</script> & "quotes" 'and' \\ more
def main(a: f32[8@x, 16], w: f32[16, 8]) -> f32[8, 8]:
    h = a @ w  # <img src=x onerror=alert(1)>
    return replicate(h)
"""
NAME = '"><script>alert(2)</script>\\"\n]; evil [label="x.gshard'


@pytest.fixture(scope="module")
def program() -> gs.Program:
    return check(SourceFile(NAME, SOURCE))


class Tags(HTMLParser):
    """Tags with their attributes, in order; checks that they nest."""

    VOID = ("meta",)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("stage", STAGES)
def test_pages_hold_only_our_own_markup(program: gs.Program, stage: str) -> None:
    page = Tags(program.dump(stage, format="html", all=True))
    known = {
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "div",
        "pre",
        "span",
        "table",
        "tr",
        "td",
        "details",
        "summary",
    }
    assert {tag for tag, _ in page.found} <= known
    for tag, attributes in page.found:
        assert set(attributes) <= {"class", "style", "charset", "http-equiv", "content"}, tag
        if "style" in attributes:
            assert re.fullmatch(r"width:\d+\.\d\dem", attributes["style"] or "")
    assert "url(" not in page.text and "@import" not in page.text


def test_the_source_stands_in_the_page_as_it_is(program: gs.Program) -> None:
    page = Tags(program.dump(format="html"))
    for line in SOURCE.rstrip("\n").split("\n"):
        assert line in page.text


def test_a_collective_marks_its_line_and_costs(program: gs.Program) -> None:
    page = program.dump(format="html")
    (marked,) = re.findall(r'<tr class="line moves">.*', page)
    assert '<td class="number">4</td>' in marked
    assert "192 B" in marked and "all_gather x, dim 0" in marked


def test_a_notebook_shows_the_mistake_of_a_program_that_cannot_be_compiled() -> None:
    wrong = check(
        SourceFile("<b>.gshard", "mesh(m=12)\ndef f(a: f32[24@m:(1)2], b: f32[24@m:(1)3]) -> f32[24]:\n    return a\n")
    )
    with pytest.raises(GShardError):
        _ = wrong.compiled
    shown = wrong._repr_html_()
    assert "error:" in shown and "<b>" not in shown
    Tags(shown)


def test_text_is_escaped_everywhere() -> None:
    wild = "<a href='x'>&\"\x1b[31m\x00"
    assert html.text(wild) == "&lt;a href=&#x27;x&#x27;&gt;&amp;&quot; [31m "
    shown = html.preformatted([(Segment(wild), Segment(wild, "name"))])
    assert "<a" not in shown and Tags(shown).text.count("<a href='x'>") == 2


def tokens(text: str) -> list[str]:
    """Split dot text into quoted strings, identifiers and signs; anything else is no dot."""
    found = []
    at = 0
    pattern = re.compile(r'\s*("(?:[^"\\]|\\.)*"|->|[A-Za-z_]\w*|-?\d+(?:\.\d+)?|[{}\[\];=,])', re.S)
    text = text.rstrip()
    while at < len(text):
        matched = pattern.match(text, at)
        assert matched, f"no token at {text[at : at + 40]!r}"
        found.append(matched[1])
        at = matched.end()
    return found


def test_the_graph_is_well_formed_and_nothing_gets_out_of_its_label(program: gs.Program) -> None:
    found = tokens(program.dump(format="dot"))
    assert found[0] == "digraph" and found[2] == "{" and found[-1] == "}"
    assert found.count("{") == found.count("}") == 1
    assert "evil" not in found, "a name in the graph would be a token of its own"
    words = {t for t in found if re.fullmatch(r"[A-Za-z_]\w*", t)}
    ours = {"digraph", "rankdir", "TB", "node", "edge", "shape", "box", "fontname", "monospace", "fontsize", "label"}
    ours |= {"style", "bold", "color", "darkorange3", "fontcolor", "penwidth", "tooltip"}
    assert {w for w in words if not re.fullmatch(r"n\d+", w)} <= ours


@pytest.mark.parametrize("text", ['a"b', "a\\", 'a\\"b', "a\\N\nb", "\x00\x1b", "", '"; evil ["'])
def test_quoted_strings_are_one_token(text: str) -> None:
    assert len(tokens(quoted(text))) == 1
    assert "\n" not in quoted(text)


def test_the_graph_follows_the_data() -> None:
    p = gs.compile(
        "mesh(x=2)\ndef f(a: f32[4@x], b: f32[4@x]) -> f32[4]:\n    c = a + exp(b * 2.0)\n    return replicate(c)\n"
    )
    from gshard_ir.dump.partitioned import rows_of

    rows = rows_of(p.compiled, p.traffic())
    feeds = dot.feeds(p.local.main, rows)
    named = {(r.role, r.view.name): [rows[i].view.name for i in f] for r, f in zip(rows, feeds, strict=True)}
    assert named[("value", "c")] == ["a", "b"], "values without a name are passed over"
    assert [f for (role, _), f in named.items() if role == "copy"] == [["c"]]
    assert p.dump(format="dot").count("penwidth") == len(p.traffic().collectives) == 1


def test_only_the_partitioned_stage_is_a_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.gshard").write_text(SOURCE, encoding="utf-8")
    assert main(["dump", "a.gshard", "--format", "dot"]) == 0
    assert capsys.readouterr().out == gs.compile("a.gshard").dump(format="dot")
    assert main(["dump", "a.gshard", "--format", "dot", "--stage", "source"]) == 2
    assert "has no graph" in capsys.readouterr().err
    with pytest.raises(GShardError, match=r"unknown format htm[\s\S]*try: html"):
        gs.compile("a.gshard").dump(format="htm")
