"""The property tests must be able to fail: each fault planted in the compiler is found by random programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from properties.checks import Seeded, check, check_any_plan
from properties.programs import generate

from gshard_ir import opdef
from gshard_ir.factors import Rule
from gshard_ir.ir import Value
from gshard_ir.passes import expand, partition, plan, relayout

Patch = Callable[[pytest.MonkeyPatch], None]


def no_masks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition, "mask_padding", lambda site: site)


def wrong_identity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(expand, "identity", lambda mark, combine, op, dtype: 1 if dtype.name != "bool" else True)


def local_index(patch: pytest.MonkeyPatch) -> None:
    def zero(self: expand.Site, axes: tuple[str, ...], rows: int, dtype: Any = expand.I32) -> Value:
        return self.emit("constant", value=0, dtype=dtype, shape=())

    patch.setattr(expand.Site, "offset", zero)


def as_marked(name: str, **marks: str) -> Patch:
    """Claim that factors with one mark carry another."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        record = opdef.opdef(name)

        def rule(types: Any, attrs: Any) -> Rule:
            assert record.rule is not None
            found = record.rule(types, attrs)
            factors = tuple(replace(f, mark=marks.get(f.mark, f.mark)) for f in found.factors)
            return replace(found, factors=factors)

        patch.setitem(opdef.REGISTRY, name, replace(record, rule=rule))

    return plant


def as_linear(name: str, *group: int) -> Patch:
    """Claim that an op is linear in a group of operands."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        record = opdef.opdef(name)

        def rule(types: Any, attrs: Any) -> Rule:
            assert record.rule is not None
            return replace(record.rule(types, attrs), linear=(frozenset(group),))

        patch.setitem(opdef.REGISTRY, name, replace(record, rule=rule))

    return plant


def combined_wrongly(patch: pytest.MonkeyPatch) -> None:
    record = opdef.opdef("reduce_max")

    def rule(types: Any, attrs: Any) -> Rule:
        assert record.rule is not None
        found = record.rule(types, attrs)
        return replace(found, factors=tuple(replace(f, combine="sum" if f.combine else "") for f in found.factors))

    patch.setitem(opdef.REGISTRY, "reduce_max", replace(record, rule=rule))


def chunks_always_nest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relayout, "nests", lambda n, outer, inner: True)


FAULTS: dict[str, Patch] = {
    "padding is not masked": no_masks,
    "padding is masked with the wrong identity": wrong_identity,
    "local positions are taken for global ones": local_index,
    "argmax passes through its axis": as_marked("argmax", select="pass"),
    "cumsum passes through its axis": as_marked("cumsum", scan="pass"),
    "concat passes through its axis": as_marked("concat", gather="pass"),
    "a cut passes through its dim": as_marked("slice", gather="pass"),
    "reverse passes through its axis": as_marked("reverse", gather="pass"),
    "a contracted factor owes nothing": as_marked("einsum", reduce="pass"),
    "maxima are added": combined_wrongly,
    "exp is linear": as_linear("exp", 0),
    "add is linear in one operand": as_linear("add", 0),
    "chunks always nest": chunks_always_nest,
}


@pytest.fixture(autouse=True)
def fresh_caches() -> Any:
    """Prices and layouts are memoised: a planted fault must neither use old ones nor leave new ones."""

    def clear() -> None:
        for cached in (relayout._search, relayout._edges, relayout.tree, plan.operand_layout, plan.result_layout):
            cached.cache_clear()

    clear()
    yield
    clear()


@pytest.mark.parametrize("name", FAULTS)
def test_random_programs_find(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[name](monkeypatch)
    for seed in range(1000):
        choose = Seeded(seed)
        program = generate(choose)
        try:
            check(program)
            check_any_plan(program, choose)
        except Exception:
            return
    raise AssertionError(f"1,000 random programs did not notice that {name}")
