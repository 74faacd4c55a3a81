"""``gshard verify``: the unsharded program, the simulator and jax must agree."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING

from gshard_ir.cli import inputs
from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output
from gshard_ir.cli.progress import Progress
from gshard_ir.cli.run import add_inputs, enough, set_up
from gshard_ir.dump.table import Column, Line, Segment, line, table
from gshard_ir.program import Program

if TYPE_CHECKING:
    from gshard_ir.agreement import Verdict

DETAILS = """
The unsharded program runs in numpy, every device's program in a lock-step simulator, the emitted file in jax.
Integers and booleans must be equal; floats may differ by 256 units in the last place (f16: 16, bf16: 8) of the
largest value of an output. On a mismatch the first op is named whose sharded result differs although it was fed
with the unsharded operands."""

EXAMPLES = (
    "gshard verify moe.gshard",
    "gshard verify moe.gshard --mesh expert=3 --mesh data=2,expert=4 -D E=6",
    "gshard verify moe.gshard --input x=x.npy --no-jax",
)

COLUMNS = (
    Column("output", "name"),
    Column("type"),
    Column("against"),
    Column("largest error", right=True),
    Column("ulps", right=True),
    Column("allowed", "faint", right=True),
    Column(""),
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = command(commands, "verify", "compare sharded with unsharded", DETAILS, EXAMPLES, many_meshes=True)
    add_inputs(made)
    made.add_argument("--no-jax", action="store_true", help="compare with the simulator alone")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Verify on every mesh that is asked for."""
    from gshard_ir.agreement import verify

    programs = [open_program(options, mesh) for mesh in options.mesh or [None]]
    devices = max(enough(program) for program in programs)
    for program in programs:
        _ = program.source
    if not options.no_jax:
        set_up(devices)
    documents: list[dict[str, object]] = []
    good = True
    for i, program in enumerate(programs):
        args = inputs.collect(program.lowered.main, options.inputs, options.seed, out if i == 0 else None)
        with Progress(f"verify {program.title}, mesh {program.lowered.mesh}"):
            verdict = verify(program, args, jax=not options.no_jax)
        good &= verdict.agrees
        documents.append(_data(program, verdict))
        if not out.json:
            out.lines([*([line()] if i else []), *_lines(program, verdict)])
    if out.json:
        data: dict[str, object] = {"format": "gshard-verify-1", "agrees": good, "seed": int(options.seed)}
        out.data(data | {"meshes": documents})
    return 0 if good else 1


def _data(program: Program, verdict: Verdict) -> dict[str, object]:
    data: dict[str, object] = {"file": program.file.name, "entry": program.entry, "mesh": program.mesh_sizes}
    data |= {"agrees": verdict.agrees, "outputs": [d.as_json() for d in verdict.differences]}
    return data | {"parts_at": [p.as_json() for p in verdict.partings]}


def _lines(program: Program, verdict: Verdict) -> list[Line]:
    tail = f"    mesh {program.lowered.mesh}    {program.traffic().summary()}"
    rows = [
        (
            d.output,
            d.type,
            d.against,
            _number(d.error),
            _number(d.ulps),
            f"{d.tolerance:g}",
            "" if d.agrees else "differs",
        )
        for d in verdict.differences
    ]
    ways = ", ".join(dict.fromkeys(["reference", *(d.against for d in verdict.differences)]))
    lines = [(Segment(program.title, "head"), Segment(tail)), line(), *table(COLUMNS, rows), line()]
    if verdict.agrees:
        return [*lines, (Segment("  "), Segment(f"{ways} agree", "good"))]
    wrong = list(dict.fromkeys(d.against for d in verdict.differences if not d.agrees))
    told = f"{' and '.join(wrong)} {'differs' if len(wrong) == 1 else 'differ'} from the reference"
    lines.append((Segment("  "), Segment(told, "bad")))
    lines += [line(f"  {parting}") for parting in verdict.partings]
    if not verdict.partings:
        lines.append(line("  no single op parts when it is fed with the unsharded operands: rounding, carried on"))
    return lines


def _number(value: float) -> str:
    return "-" if math.isinf(value) else f"{value:.3g}"
