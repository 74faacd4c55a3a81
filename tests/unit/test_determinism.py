"""The same command prints the same bytes, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """\
mesh(data=2, expert=4, model=2)

def main(x: f32[8@data, 16, 32], wg: f32[32, 8], wi: f32[8@expert, 32, 64], i: i32[6]) -> (f32[8, 16], f32[6, 32]):
    gates = softmax(einsum("GSM,ME->GSE", x, wg), axis=-1)
    sent = split(einsum("GSE,GSM->EGSM", gates, x), 0, expert)
    h = split(relu(einsum("EGSM,EMH->EGSH", sent, wi)), 3, model)
    rows = take(reshape(x, [128, 32]), i, axis=0)
    return sum(einsum("EGSH,GSE->GSH", h, gates), axis=-1), split(rows, 0, model, expert)
"""
BROKEN = """\
mesh(data=2, expert=4)

def main(x: f32[8@data, 16@dat], y: f32[4, 16]) -> f32[8, 16]:
    a = einsum("ij,jk->ik", x, zz)
    b = x + y
    return b + unknown(a)
"""
STAGES = ("source", "ir", "propagated", "partitioned", "emitted")
SCRIPT = """
import sys
from gshard_ir.cli import main
good, bad, *stages = sys.argv[1:]
for format in ("text", "json"):
    codes = [main(["dump", good, "--stage", stage, "--all", "--format", format]) for stage in stages]
    assert codes == [0] * len(codes), codes
    assert main(["check", bad, "--format", format]) == 1
"""


def printed(seed: str, folder: Path) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", SCRIPT, "good.gshard", "bad.gshard", *STAGES]
    run = subprocess.run(command, capture_output=True, env=environment, cwd=folder, check=False)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout + run.stderr


def test_output_does_not_depend_on_hashing(tmp_path: Path) -> None:
    (tmp_path / "good.gshard").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "bad.gshard").write_text(BROKEN, encoding="utf-8")
    first, second = (printed(seed, tmp_path) for seed in ("0", "4711"))
    assert len(first) > 20_000
    assert first == second
