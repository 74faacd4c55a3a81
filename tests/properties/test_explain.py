"""Every layout is explained to its end, and walking an explanation with the factor rules gives the layout again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from properties.checks import Seeded
from properties.programs import generate

import gshard_ir as gs
from gshard_ir.explain import Explainer, ValueExplanation
from gshard_ir.explain.model import Chain, Dim, Explanation, Link
from gshard_ir.factors import Dims
from gshard_ir.ir import Op, Value
from gshard_ir.passes.traffic import of_module
from gshard_ir.pipeline import Compiled, compile_module

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "examples").rglob("*.gshard"))
SWEEP = int(os.environ.get("GSHARD_SWEEP", "1"))
BATCHES, BATCH = 10, 50


class Replay:
    """Walks explanations backwards, from their ends, with nothing but the rules, the pins and the plan's strategies."""

    def __init__(self, compiled: Compiled) -> None:
        self.plan, self.propagation = compiled.refined.plan, compiled.propagation
        function = self.plan.function
        self.values = [*function.params, *(v for op in function.body.ops for v in op.results)]
        self.ops = list(function.body.ops)

    def value(self, found: ValueExplanation) -> None:
        """The explanation of one value must give its layout."""
        value = self.values[found.value_id]
        home = self.plan.home[value]
        assert [d.dim for d in found.dims] == list(range(value.type.rank))
        dims = tuple(tuple(a for c in d.chains for a in self.chain(c, value, d.dim)) for d in found.dims)
        pending = [(o.kind, a) for o in found.pending for a in self.chain(o.chain, value, None)]
        assert dims == home.dims
        assert pending == [(kind, a) for kind, axes in home.pending for a in axes]
        for dim in found.dims:
            self.unsplit(value, dim)

    def unsplit(self, value: Value, dim: Dim) -> None:
        """What an explanation says of a dim that is not split must be so."""
        proposed = self.propagation.layouts[value].dims[dim.dim]
        assert tuple(a for c in dim.lost for a in c.names) == tuple(
            a for a in proposed if a not in self.plan.home[value].dims[dim.dim]
        )
        for chain in dim.lost:
            assert self.start(chain) == "annotation"
            self.walk(chain, chain.names)
        pin = self.propagation.pins.get(value)
        closed = pin is not None and not pin.open[dim.dim] and not pin.dims[dim.dim]
        clashes = [c for c in self.propagation.clashes if c.value is value and c.dim == dim.dim]
        assert len(dim.proposals) == len(clashes)
        if dim.axes:
            assert dim.status == "split" and dim.chains
        elif dim.lost:
            assert dim.status == "cost"
        else:
            assert dim.status == ("asked" if closed else "rejected" if clashes else "whole" if dim.by else "nothing")

    def chain(self, chain: Chain, value: Value, dim: int | None) -> tuple[str, ...]:
        """Walk one chain; return the axes that it explains, which its head must be about."""
        head = chain.links[0]
        assert self.values[head.value_id] is value and head.dim == dim
        assert self.start(chain) == chain.end
        self.walk(chain, chain.names)
        return chain.names

    def start(self, chain: Chain) -> str:
        """The last link stands on an annotation that asks for the axes, or on an op that the plan splits over them."""
        last = chain.links[-1]
        value = self.values[last.value_id]
        if last.rule == "annotation":
            pin = self.propagation.pins[value]
            assert last.dim is not None and last.op == pin.how
            assert set(chain.names) <= set(pin.dims[last.dim])
            return "annotation"
        assert last.rule in ("search", "reduce", "linear") and last.op_id is not None
        op = self.ops[last.op_id]
        assert value in op.results
        return "cost"

    def walk(self, chain: Chain, axes: tuple[str, ...]) -> None:
        """Each link's op must carry the axes from the next link's (value, dim) to its own."""
        for link, source in zip(chain.links, (*chain.links[1:], None), strict=True):
            if link.rule == "annotation":
                assert source is None
                continue
            assert link.op_id is not None
            op = self.ops[link.op_id]
            if link.rule == "linear":
                self.linear(op, link, source, axes)
                continue
            if link.rule == "copy" and link.dim is None:
                assert source is not None and op.operands == (self.values[source.value_id],)
                continue
            self.carried(op, link, source, axes)

    def carried(self, op: Op, link: Link, source: Link | None, axes: tuple[str, ...]) -> None:
        rule, strategy = self.plan.rules[op], self.plan.strategies[op]
        factor = next(f for f, found in enumerate(rule.factors) if found.name == link.factor)
        if link.dim is not None:
            assert self.holds(op, link, factor), f"{link.value} dim {link.dim} has no factor {link.factor} in {op.name}"
        if source is not None:
            assert self.holds(op, source, factor)
        if link.rule == "search" or link.rule == "reduce":
            assert set(axes) <= set(strategy.split[factor])
        if link.rule == "reduce":
            assert rule.factors[factor].mark in ("reduce", "lookup")
        if link.rule == "factor":
            assert rule.factors[factor].splittable
        if link.rule == "copy":
            assert op.name == "barrier" and source is not None

    def linear(self, op: Op, link: Link, source: Link | None, axes: tuple[str, ...]) -> None:
        rule, strategy = self.plan.rules[op], dict(self.plan.strategies[op].linear)
        assert self.values[link.value_id] in op.results and link.dim is None
        for axis in axes:
            group = rule.linear[strategy[axis]]
            assert source is None or any(op.operands[i] is self.values[source.value_id] for i in group)

    def holds(self, op: Op, link: Link, factor: int) -> bool:
        """Has a dim of one of the op's tensors that factor?"""
        return any(
            v is self.values[link.value_id] and link.dim is not None and factor in dims[link.dim]
            for v, dims in self.tensors(op)
        )

    def tensors(self, op: Op) -> Iterator[tuple[Value, Dims]]:
        rule = self.plan.rules[op]
        yield from zip(op.operands, rule.operands, strict=True)
        yield from zip(op.results, rule.results, strict=True)


def check_all(compiled: Compiled, explanation: Explanation) -> None:
    replay = Replay(compiled)
    assert [v.value_id for v in explanation.values] == list(range(len(replay.values)))
    for value in explanation.values:
        replay.value(value)
        same_facts(Explanation("t", "m", (value,), ()))


STRUCTURE = {"format", "value_id", "op_id", "names", "rule", "status", "end", "why_not", "taken", "propagated", "kept"}


def leaves(data: object, about: int, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every fact of a document about one value with the names that lead to it, without what only gives structure."""
    if isinstance(data, dict) and set(data) == {"at", "line"}:
        yield path, (data["at"], data["line"])
    elif isinstance(data, dict):
        for name, item in data.items():
            own = name == "value" and data["value_id"] == about
            if name not in STRUCTURE and not own:
                yield from leaves(item, about, (*path, name))
    elif isinstance(data, list):
        for item in data:
            yield from leaves(item, about, path)
    elif data is not None:
        yield path, data


def number_text(number: float) -> str:
    return f"{abs(number):,.1f}".removesuffix(".0")


def same_facts(found: Explanation) -> None:
    """What the document says the text says, and no number of the text is missing from the document."""
    text = str(found)
    document = json.loads(found.json())
    facts = list(leaves(document, found.values[0].value_id))
    for path, fact in facts:
        if isinstance(fact, tuple):
            at, number = fact
            assert not at or at in text or (at.endswith(f":{number}") and f"line {number}" in text)
            assert not at or at.endswith(f":{number}") or f"line {number}" in text
            continue
        if {"decision", "decisions"} & set(path) and path[-1] in ("bytes", "collectives", "work", "more") and fact == 0:
            continue  # where two ways do not differ, and where there are no more, nothing is said
        told = str(fact) if path[-1] in ("size", "dim", "source_dim") or isinstance(fact, str) else number_text(fact)
        assert told.rstrip() in text, f"{'.'.join(path)} {fact!r} is not in\n{text}"
    known = json.dumps(document, ensure_ascii=False) + " ".join(
        number_text(fact) for _, fact in facts if isinstance(fact, int | float)
    )
    quoted = text.replace('"', '\\"')
    for number in re.findall(r"\d[\d,]*\.?\d*(?= B | collective| local step)", quoted):
        assert number in known, f"{number} is not in the document of\n{text}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_value_of_the_examples(name: str) -> None:
    program = gs.compile(ROOT / name)
    explainer = Explainer(program.compiled, program.title, suggest=False)
    check_all(program.compiled, explainer.all(collectives=False))


@pytest.mark.parametrize("batch", range(BATCHES * SWEEP))
def test_every_value_of_random_programs(batch: int) -> None:
    ends, rules = set(), set()
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        found = check_seed(seed)
        chains = [c for v in found.values for d in v.dims for c in d.chains]
        chains += [o.chain for v in found.values for o in v.pending]
        ends |= {c.end for c in chains}
        rules |= {link.rule for c in chains for link in c.links}
    assert "annotation" in ends and {"annotation", "factor"} <= rules, "the programs exercise nothing"


def check_seed(seed: int) -> Explanation:
    """Explain all values and collectives of one random program, check both and return the values."""
    compiled = compile_module(generate(Seeded(seed), most=7).module)
    explainer = Explainer(compiled, suggest=False)
    found = explainer.all(collectives=False)
    check_all(compiled, found)
    check_collectives(compiled, explainer.all(collectives=True))
    return found


def test_a_split_that_like_took_away() -> None:
    """A proposal met a split dim, and like then gave the value its model's layout: the split no longer stands there."""
    source = """mesh(a=4, b=2)
def main(x: f32[5@_]):
    y = like(x, x)
    z = shard(y, [(b, a)!1])
    return shard(y, [a]), z
"""
    program = gs.compile(source)
    check_all(program.compiled, Explainer(program.compiled, suggest=False).all(collectives=False))
    assert "like gives it the layout of its model" in str(program.explain("y"))


def check_collectives(compiled: Compiled, found: Explanation) -> None:
    """Each collective of the local program is there once, with its bytes and at least one line that causes it."""
    sent = [t.sent for _, t in of_module(compiled.partitioned.module)]
    assert [c.bytes for c in found.collectives] == sent
    assert all(c.because for c in found.collectives)


def test_a_replay_notices_a_wrong_link() -> None:
    """A chain with another dim, another factor or without its end does not give the layout."""
    compiled = gs.compile(ROOT / "examples/moe_layer/moe.gshard").compiled
    replay = Replay(compiled)
    (sent,) = Explainer(compiled, suggest=False).name("sent@20").values
    dim = sent.dims[1]
    (chain,) = dim.chains
    head, *rest = chain.links
    replay.value(sent)
    wrong = [
        replace(chain, links=(replace(head, factor="S"), *rest)),
        replace(chain, links=(head, *(replace(link, dim=1) for link in rest))),
        replace(chain, links=(head,), end="cost"),
        replace(chain, names=("data",)),
    ]
    for broken in wrong:
        dims = (sent.dims[0], replace(dim, chains=(broken,)), *sent.dims[2:])
        with pytest.raises((AssertionError, StopIteration)):
            replay.value(replace(sent, dims=dims))
    with pytest.raises(AssertionError):
        replay.value(replace(sent, dims=(sent.dims[0], replace(dim, chains=()), *sent.dims[2:])))
