"""docs/dump-format.md holds: the dumps of every example fit its schema, and text, JSON and HTML say the same."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import gshard_ir as gs
from gshard_ir.dump import partitioned, propagated
from gshard_ir.dump.traffic import bytes_text
from gshard_ir.program import STAGES

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.relative_to(ROOT / "examples").as_posix() for p in (ROOT / "examples").rglob("*.gshard"))
DOCUMENT = (ROOT / "docs" / "dump-format.md").read_text(encoding="utf-8")
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def schema() -> dict[str, Any]:
    (block,) = re.findall(r"^```json\n(.*?)^```", DOCUMENT, re.M | re.S)
    found: dict[str, Any] = json.loads(block)
    return found


SCHEMA = schema()


KEYWORDS = {"$defs", "type", "properties", "additionalProperties", "items"}
KEYWORDS |= {"enum", "const", "pattern", "minimum", "anyOf", "$ref"}


def faults(found: Any, rule: dict[str, Any], at: str = "") -> list[str]:
    """Say where a document breaks the schema; objects have all their properties, in order, and no others."""
    assert set(rule) <= KEYWORDS, f"the checker does not know {set(rule) - KEYWORDS}"
    if "$ref" in rule:
        return faults(found, SCHEMA["$defs"][rule["$ref"].removeprefix("#/$defs/")], at)
    if "anyOf" in rule:
        return min((faults(found, option, at) for option in rule["anyOf"]), key=len)
    if not fits(found, rule):
        return [f"{at} is {found!r:.80}"]
    if isinstance(found, list):
        return [f for i, item in enumerate(found) for f in faults(item, rule["items"], f"{at}[{i}]")]
    if not isinstance(found, dict):
        return []
    rules = rule.get("properties") or dict.fromkeys(found, rule.get("additionalProperties"))
    if list(found) != list(rules):
        return [f"{at} has {list(found)}, expected {list(rules)}"]
    return [f for k, v in found.items() for f in faults(v, rules[k], f"{at}.{k}")]


def fits(found: Any, rule: dict[str, Any]) -> bool:
    """Is the value itself, apart from what is inside it, as the rule says?"""
    if "const" in rule or "enum" in rule:
        return found in rule.get("enum", [rule.get("const")])
    if not isinstance(found, TYPES[rule["type"]]) or (isinstance(found, bool) and rule["type"] != "boolean"):
        return False
    if "minimum" in rule and found < rule["minimum"]:
        return False
    return "pattern" not in rule or re.fullmatch(rule["pattern"], found) is not None


@cache
def program(name: str) -> gs.Program:
    return gs.compile(ROOT / "examples" / name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_dumps_fit_the_schema(name: str) -> None:
    for stage in STAGES:
        text = program(name).dump(stage, format="json")
        found = json.loads(text)
        assert faults(found, SCHEMA["$defs"][stage]) == []
        assert faults(found, SCHEMA) == []
        assert json.dumps(found, indent=1, ensure_ascii=False) + "\n" == text, "the layout of the text is as documented"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_second_compilation_dumps_the_same_bytes(name: str) -> None:
    again = gs.compile(ROOT / "examples" / name)
    assert again.dump("partitioned", format="json") == program(name).dump("partitioned", format="json")


def test_the_checker_finds_what_is_wrong() -> None:
    good = json.loads(program("mlp.gshard").dump(format="json"))
    changes: list[Any] = [
        lambda d: d.update(format="gshard-dump-2"),
        lambda d: d.update(more=1),
        lambda d: d.pop("local"),
        lambda d: d["mesh"].update(data=0),
        lambda d: d["traffic"].update(bytes="12"),
        lambda d: d["values"][0].update(line=True),
        lambda d: d["values"][0].update(role="other"),
        lambda d: d["values"][0].update(local="[1,]"),
        lambda d: d["values"][0].update(line=d["values"][0].pop("line")),
        lambda d: d["traffic"]["collectives"][0].update(kind="broadcast"),
    ]
    assert faults(good, SCHEMA) == []
    for change in changes:
        wrong = json.loads(json.dumps(good))
        change(wrong)
        assert faults(wrong, SCHEMA["$defs"]["partitioned"]) != []


class Page(HTMLParser):
    """Rows of the annotated source: per row its line and the text of its pieces; every text of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[dict[str, str]] = []
        self.code: list[str] = []
        self.sums: list[tuple[str, ...]] = []
        self.text = ""
        self._line, self._open = "", ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        self._open = kind if tag in ("td", "span") else self._open
        if tag == "tr" and kind.startswith("line"):
            self._line = ""
            self.code.append("")
        elif tag == "tr":
            self.sums.append(())
        elif tag == "div" and kind.startswith("row"):
            self.rows.append({"line": self._line})

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag in ("td", "span") else self._open

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.sums and self._open in ("comm", "number", "sum", ""):
            self.sums[-1] += (data.strip(),) if data.strip() else ()
        elif self._open == "number":
            self._line = data
        elif self._open == "code":
            self.code[-1] += data
        elif self.rows and self._open in ("role", "name", "global", "local", "comm", "bytes", "why", "where"):
            self.rows[-1][self._open] = data


def json_row(row: dict[str, Any]) -> dict[str, str]:
    """What the page shows of a row of the document."""
    pieces = {k: row[k] for k in ("role", "name", "global", "local", "where")}
    c = row["collective"]
    if c is not None:
        what = (
            f"{c['kind']} {c['detail']} over {c['axes']}" if c["kind"] == "all_reduce" else f"{c['kind']} {c['axes']}"
        )
        tail = f", {c['detail']}" if c["kind"] != "all_reduce" and c["detail"] else ""
        pieces |= {"comm": what + tail, "bytes": bytes_text(c["bytes"]), "why": c["reason"]}
    return {"line": str(row["line"] or "")} | {k: v for k, v in pieces.items() if v}


def json_words(row: dict[str, Any]) -> list[str]:
    """The words of a row of the partitioned text."""
    shown = json_row(row)
    where = f"({row['where']})" if row["where"] else ""
    reason = shown.get("why", "")
    told = reason if row["where"] and row["where"] in reason else f"{reason} {where}"
    cells = [shown.get(k, "") for k in ("line", "name", "global", "local", "comm", "bytes")]
    return " ".join([*cells, told]).split()


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_json_and_html_agree(name: str) -> None:
    p = program(name)
    document = json.loads(p.dump(format="json"))
    page = Page(p.dump(format="html"))

    # partitioned: the same rows in all three, and the same sums
    in_text = [line.split() for line in p.dump(all=True).splitlines()]
    assert in_text[3 : 3 + len(document["values"])] == [json_words(r) for r in document["values"]]
    by_line = sorted(document["values"], key=lambda r: r["line"] or 10**9)
    folded_last = sorted(by_line, key=lambda r: (r["line"] or 10**9, r["collective"] is None and r["inner"]))
    assert page.rows == [json_row(r) for r in folded_last]
    assert page.code[: len(p.file.text.rstrip("\n").split("\n"))] == p.file.text.rstrip("\n").split("\n")
    traffic = document["traffic"]
    kinds = [(kind, str(traffic["counts"][kind]), bytes_text(sent)) for kind, sent in traffic["by_kind"].items()]
    total = [("sent per device", bytes_text(traffic["bytes"]))] if traffic["collectives"] else []
    assert page.sums == [*kinds, *total]
    assert bytes_text(traffic["bytes"]) in p.dump().splitlines()[0] or not traffic["collectives"]

    # the notebook shows the body of the page
    assert p._repr_html_() in p.dump(format="html")

    # every other stage: the page is the text, and the text holds what the document says
    for stage in STAGES:
        if stage != "partitioned":
            body = Page(p.dump(stage, format="html").partition("</style>")[2])
            assert [x.rstrip() for x in body.text.strip().split("\n")] == [
                x.rstrip() for x in p.dump(stage).strip().split("\n")
            ]
    causes = json.loads(p.dump("propagated", format="json"))
    shown = p.dump("propagated", all=True)
    for row in causes["values"]:
        assert any(
            x.split()[: 3 if row["line"] else 2]
            == [*([str(row["line"])] * bool(row["line"])), row["name"], row["global"]]
            for x in shown.splitlines()
        )
    assert ("no clashes" in shown) == (not causes["clashes"])


def test_columns_of_the_text_are_those_that_are_compared() -> None:
    assert [c.title for c in partitioned.COLUMNS] == [
        "line",
        "value",
        "global",
        "local",
        "communication",
        "sent",
        "why",
    ]
    assert [c.title for c in propagated.COLUMNS][:3] == ["line", "value", "global"]
