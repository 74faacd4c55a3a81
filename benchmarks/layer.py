"""The MoE layer, ours against ``jax.jit`` with the same annotations and boundary, on fake CPU devices.

Bytes are read from XLA's compiled text on both sides; the step ratio is the median over pairs of steps
run in turn, so that a drift of the machine's speed cancels.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import gshard_ir as gs
from gshard_ir.backends import hlo_traffic, jax_run

LAYER = Path(__file__).parent.parent / "examples" / "moe_layer" / "moe.gshard"
MESHES = ({"expert": 8}, {"expert": 4}, {"expert": 2}, {"data": 2, "expert": 4})


def run(runs: int) -> list[dict[str, Any]]:
    """Print a row per mesh and return the figures."""
    jax_run.ensure_devices(8)
    print(f"{'mesh':18s} {'ours B':>10s} {'jit B':>10s} {'ours/jit step':>14s} {'temp MB':>14s} {'compile s':>12s}")
    rows = []
    for mesh in MESHES:
        row = measure(mesh, runs)
        rows.append(row)
        temp = f"{row['ours_temp'] / 1e6:.1f} / {row['jit_temp'] / 1e6:.1f}"
        compiled = f"{row['ours_compile']:.2f} / {row['jit_compile']:.2f}"
        print(
            f"{row['mesh']:18s} {row['ours_sent']:10,.0f} {row['jit_sent']:10,.0f} {row['step_ratio']:14.3f} "
            f"{temp:>14s} {compiled:>12s}"
        )
    return rows


def measure(mesh: dict[str, int], runs: int) -> dict[str, Any]:
    """Compile both, run them in turn, and compare."""
    import jax
    import numpy as np

    program = gs.compile(LAYER, mesh=mesh)
    row: dict[str, Any] = {"mesh": ",".join(f"{k}={v}" for k, v in mesh.items())}
    steps, given = {}, {}
    rng = np.random.default_rng(0)
    for name, target in (("ours", "jax"), ("jit", "jax-auto")):
        executable = jax_run.Executable(program.emit(target), program.local)
        lowered = executable.lower()
        start = time.perf_counter()
        compiled = lowered.compile()
        row[f"{name}_compile"] = time.perf_counter() - start
        moved = hlo_traffic.measure(compiled.as_text())
        row[f"{name}_sent"], row[f"{name}_collectives"] = moved.sent, dict(moved.counts)
        row[f"{name}_temp"] = compiled.memory_analysis().temp_size_in_bytes
        inputs = [
            rng.integers(0, 2**31, s).astype(d) if d == "uint32" else rng.normal(0, 0.1, s).astype(d)
            for s, d, _ in executable.module.INPUTS.values()
        ]
        placed = [jax.device_put(x, s) for x, s in zip(inputs, compiled.input_shardings[0], strict=True)]
        steps[name], given[name] = compiled, placed
        jax.block_until_ready(compiled(*placed))
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(runs):
        for name, step in steps.items():
            start = time.perf_counter()
            jax.block_until_ready(step(*given[name]))
            times[name].append(time.perf_counter() - start)
    pairs = zip(times["ours"], times["jit"], strict=True)
    row["step_ratio"] = statistics.median(a / b for a, b in pairs)
    return row
