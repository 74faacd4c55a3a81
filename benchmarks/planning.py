"""How long planning takes, per op and as the mesh grows."""

from __future__ import annotations

import time
from typing import Any

import gshard_ir as gs
from benchmarks.layer import LAYER
from gshard_ir.pipeline import compile_module

MESHES = ({"expert": 8}, {"expert": 2048}, {"expert": 16384}, {"data": 2, "expert": 4}, {"data": 128, "expert": 128})


def run() -> list[dict[str, Any]]:
    """Print seconds per compilation of the layer on meshes of 8 to 16,384 devices."""
    print(f"\n{'mesh':24s} {'ops':>5s} {'first s':>9s} {'best s':>9s} {'ms / op':>9s}")
    rows = []
    for mesh in MESHES:
        lowered = gs.compile(LAYER, mesh=mesh, defines={"G": 16384, "E": 16384, "S": 8, "M": 8}).lowered
        seconds = []
        for _ in range(3):
            start = time.perf_counter()
            compiled = compile_module(lowered)
            seconds.append(time.perf_counter() - start)
        ops = len(compiled.prepared.main.body.ops)
        name = ",".join(f"{k}={v}" for k, v in mesh.items())
        rows.append({"mesh": name, "ops": ops, "first": seconds[0], "best": min(seconds)})
        print(f"{name:24s} {ops:5d} {seconds[0]:9.3f} {min(seconds):9.3f} {1000 * min(seconds) / ops:9.2f}")
    return rows
