"""The table of operations: names, argument order and defaults agree with jax; nothing is listed twice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from gshard_ir.frontend.lower_annotations import SPECIAL
from gshard_ir.frontend.lower_builtins import NOT_YET, NUMBERS, PRELUDE, table
from gshard_ir.frontend.lower_units import std_program
from gshard_ir.types import DTYPES

OURS = {"cast", "int", "float", "len", "require"}
# jax takes these through other names: lax.cumsum has reverse, numpy.pad has constant_values among its options.
EXTRA = {("cumsum", "reverse"), ("cumprod", "reverse"), ("pad", "constant_values")}
EXTRA |= {(name, "exclusive") for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")}
MODULES = (jnp, jax.nn, jax.lax, jax.random)


def jax_function(name: str) -> Callable[..., Any] | None:
    return next((f for f in (getattr(m, name, None) for m in MODULES) if callable(f)), None)


@pytest.mark.parametrize("name", sorted(set(table()) - OURS))
def test_signature_is_that_of_jax(name: str) -> None:
    function, ours = jax_function(name), table()[name]
    assert function is not None, f"{name} is no function of jax"
    theirs = inspect.signature(function).parameters
    if any(p.kind == p.VAR_POSITIONAL for p in theirs.values()) and not ours.rest:
        assert len(ours.params) == function.nin, "a ufunc takes its operands by position"
        return
    order = [n for n, p in theirs.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for at, param in enumerate(ours.params):
        if (name, param) in EXTRA:
            continue
        assert param in theirs or theirs[order[at]].kind == inspect.Parameter.POSITIONAL_ONLY, param
        if at < ours.positional and name != "concat":
            assert param in (order[at], "x1", "x2"), f"argument {at + 1} of {name} is {order[at]} in jax"


def test_names_have_one_meaning() -> None:
    names = [*table(), *SPECIAL, *PRELUDE, *NOT_YET, *NUMBERS, *DTYPES]
    assert len(names) == len(set(names))


def test_prelude_names_are_defs_of_std_nn() -> None:
    defined = {getattr(item, "name", None) for item in std_program("nn").items}
    assert set(PRELUDE) <= defined
