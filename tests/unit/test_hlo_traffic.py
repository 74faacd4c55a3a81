"""The byte meter: every form in which XLA prints a collective, and real programs with loops and branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gshard_ir.backends.hlo_traffic import measure
from gshard_ir.backends.jax_run import ensure_devices

HEAD = "HloModule jit_f, is_scheduled=true, num_partitions=8\n\n"


def entry(*lines: str, before: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"{HEAD}{before}ENTRY %main (p: f32[16]) -> f32[16] {{\n  %p = f32[16]{{0}} parameter(0)\n{body}\n}}\n"


GROUPS = "replica_groups={{0,1,2,3},{4,5,6,7}}"


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (f"ROOT %r = f32[16]{{0}} all-reduce(%p), channel_id=1, {GROUPS}, to_apply=%add", 2 * 3 / 4 * 64),
        (f"ROOT %r = f32[64]{{0}} all-gather(%p), {GROUPS}, dimensions={{0}}", 3 / 4 * 256),
        (f"ROOT %r = f32[4]{{0}} reduce-scatter(%p), {GROUPS}, dimensions={{0}}, to_apply=%add", 3 / 4 * 64),
        (f"ROOT %r = f32[16]{{0}} all-to-all(%p), {GROUPS}, dimensions={{0}}", 3 / 4 * 64),
        ("ROOT %r = f32[16]{0} all-reduce(%p), replica_groups=[2,4]<=[8], to_apply=%add", 2 * 3 / 4 * 64),
        ("ROOT %r = f32[16]{0} all-reduce(%p), replica_groups=[4,2]<=[2,4]T(1,0), to_apply=%add", 64),
        ("ROOT %r = f32[16]{0} all-reduce(%p), replica_groups={}, to_apply=%add", 2 * 7 / 8 * 64),
        ("ROOT %r = f32[16]{0} all-reduce(%p), replica_groups=mesh['a'=2,'b'=4] {'b'}, to_apply=%add", 96),
        ("ROOT %r = f32[16]{0} all-reduce(%p), replica_groups=mesh['a'=2,'b'=4] {'a','b'}, to_apply=%add", 112),
        (
            "ROOT %r = f32[16]{0} all-reduce(%p), replica_groups=mesh['a'=4], device_ids=([2]T(0)) {'a':(2)2}",
            64,
        ),
        ("ROOT %r = f32[16]{0} collective-permute(%p), source_target_pairs={{0,1},{1,0},{2,2}}", 2 / 8 * 64),
        ("ROOT %r = f32[16]{0} collective-permute(f32[16]{0:T(128)} %p), source_target_pairs={{0,1}}", 1 / 8 * 64),
        ("ROOT %r = f32[16]{0} add(%p, %p)", 0),
    ],
)
def test_one_collective(line: str, sent: float) -> None:
    assert measure(entry(line)).sent == sent


@pytest.mark.parametrize(
    ("dtype", "size"), [("pred", 1), ("s8", 1), ("u8", 1), ("bf16", 2), ("f16", 2), ("s32", 4), ("f64", 8), ("s64", 8)]
)
def test_element_sizes(dtype: str, size: int) -> None:
    lines = (f"%q = {dtype}[2,3]{{1,0}} convert(%p)", f"ROOT %r = {dtype}[8,3]{{1,0}} all-gather(%q), {GROUPS}")
    assert measure(entry(*lines)).sent == 3 * 6 * size


def test_scalars_count_one_element() -> None:
    lines = ("%q = f32[] constant(1)", "ROOT %r = f32[] all-reduce(%q), replica_groups=[1,8]<=[8], to_apply=%add")
    assert measure(entry(*lines)).sent == 7


def test_combined_collectives_sum_their_operands() -> None:
    found = measure(
        entry(
            "%q = f32[4]{0} slice(%p), slice={[0:4]}",
            f"%r = (f32[16]{{0}}, /*index=1*/f32[4]{{0}}) all-reduce(%p, %q), {GROUPS}, to_apply=%add",
            "ROOT %s = f32[16]{0} get-tuple-element(%r), index=0",
        )
    )
    assert found.sent == 2 * 3 / 4 * 80
    assert dict(found.counts) == {"all-reduce": 1}


def test_asynchronous_pairs_count_once() -> None:
    found = measure(
        entry(
            f"%s = (f32[16]{{0}}, f32[64]{{0}}) all-gather-start(%p), {GROUPS}, dimensions={{0}}",
            "%d = f32[64]{0} all-gather-done(%s)",
            f"%t = f32[16]{{0}} all-reduce-start(%p), {GROUPS}, to_apply=%add",
            "%e = f32[16]{0} all-reduce-done(%t)",
            "%u = (f32[16]{0}, f32[16]{0}, u32[], u32[]) collective-permute-start(%p), source_target_pairs={{0,1}}",
            "ROOT %f = f32[16]{0} collective-permute-done(%u)",
        )
    )
    assert dict(found.by_kind) == {"all-gather": 192, "all-reduce": 96, "collective-permute": 8}


def test_wrapped_asynchronous_pairs_count_once() -> None:
    wrapped = (
        "%async (q: f32[16]) -> f32[16] {\n  %q = f32[16]{0} parameter(0)\n"
        f"  ROOT %x = f32[16]{{0}} all-to-all(%q), {GROUPS}, dimensions={{0}}\n}}\n\n"
    )
    found = measure(
        entry(
            "%s = ((f32[16]{0}), f32[16]{0}, u32[]) async-start(%p), calls=%async",
            "%t = ((f32[16]{0}), f32[16]{0}, u32[]) async-update(%s), calls=%async",
            "ROOT %d = f32[16]{0} async-done(%t), calls=%async",
            before=wrapped,
        )
    )
    assert found.sent == 48


def test_text_without_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="no ENTRY computation"):
        measure("not a program")


def compiled(function: Callable[[Any], Any], spec: Any = None) -> str:
    import jax
    from jax.sharding import Mesh
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(ensure_devices(8)), ("x",))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=P("x"), out_specs=spec or P("x"), check_vma=False)
    return str(jax.jit(mapped).lower(jax.ShapeDtypeStruct((16,), np.float32)).compile().as_text())


def test_a_loop_counts_as_often_as_it_runs() -> None:
    from jax import lax

    def step(_: Any, c: Any) -> Any:
        return lax.psum(c, "x") * 0.5

    once = measure(compiled(lambda x: lax.psum(x, "x")))
    loop = measure(compiled(lambda x: lax.fori_loop(0, 5, step, x)))
    nested = measure(
        compiled(
            lambda x: lax.fori_loop(0, 3, lambda _, c: lax.fori_loop(0, 5, lambda _, d: lax.psum(d, "x") * 0.5, c), x)
        )
    )
    assert once.sent == 2 * 7 / 8 * 8
    assert loop.sent == 5 * once.sent
    assert loop.counts["all-reduce"] == 5
    assert nested.sent == 15 * once.sent


def test_a_branch_counts_its_costliest_side() -> None:
    from jax import lax

    def function(x: Any) -> Any:
        turn = [(i, (i + 1) % 8) for i in range(8)]
        return lax.cond(x[0] > 0, lambda x: lax.psum(x, "x"), lambda x: lax.ppermute(x, "x", turn), x)

    found = measure(compiled(function))
    assert found.sent == 2 * 7 / 8 * 8
    assert dict(found.counts) == {"all-reduce": 1}


def test_every_collective_of_jax() -> None:
    from jax import lax

    turn = [(i, (i + 2) % 8) for i in range(6)]
    cases: list[tuple[Callable[[Any], Any], float]] = [
        (lambda x: lax.all_gather(x, "x", tiled=True)[:2], 7 / 8 * 64),
        (lambda x: lax.psum_scatter(lax.pad(x, 0.0, [(0, 6, 0)]), "x", tiled=True), 7 / 8 * 32),
        (lambda x: lax.all_to_all(lax.pad(x, 0.0, [(0, 6, 0)]), "x", 0, 0, tiled=True), 7 / 8 * 32),
        (lambda x: lax.ppermute(x, "x", turn), 6 / 8 * 8),
    ]
    for function, sent in cases:
        assert measure(compiled(function)).sent == sent
