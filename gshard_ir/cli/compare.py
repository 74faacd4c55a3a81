"""``gshard compare``: ours against XLA's own partitioner, measured in one process."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from gshard_ir.cli import inputs
from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output
from gshard_ir.cli.progress import Progress
from gshard_ir.cli.run import add_inputs, enough, set_up
from gshard_ir.cli.usage import usage
from gshard_ir.dump.table import Column, Line, Segment, line, table
from gshard_ir.dump.traffic import bytes_text
from gshard_ir.program import Program

if TYPE_CHECKING:
    from gshard_ir.compare import Comparison

DETAILS = """
Ours is the shard_map program (--target jax), jax-auto the same program under plain jax.jit with the annotations as
constraints (--target jax-auto). Both are compiled and run on the same devices, fake ones without enough accelerators.

Bytes and collectives are read from XLA's compiled text on both sides, by ring accounting; a step ratio is the median
over pairs of steps that run in turn, ours / jax-auto. Values must agree as in gshard verify. The exit code is 1 when
they do not."""

EXAMPLES = (
    "gshard compare moe.gshard",
    "gshard compare moe.gshard --mesh expert=8 --mesh data=2,expert=4 --runs 31",
    "gshard compare moe.gshard --format json",
)

MOST_RUNS = 100_000
COLUMNS = (
    Column("one device", "name"),
    Column("ours", right=True),
    Column("jax-auto", right=True),
    Column("ratio", "bytes", right=True),
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = command(commands, "compare", "measure ours against jax.jit", DETAILS, EXAMPLES, many_meshes=True)
    add_inputs(made)
    made.add_argument("--runs", metavar="N", default="15", help="pairs of timed steps (default 15)")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Compare on every mesh that is asked for."""
    from gshard_ir.compare import compare

    runs = parse_runs(options.runs)
    programs = [open_program(options, mesh) for mesh in options.mesh or [None]]
    devices = max(enough(program) for program in programs)
    for program in programs:
        _ = program.source
    set_up(devices)
    documents: list[dict[str, object]] = []
    good = True
    for i, program in enumerate(programs):
        args = inputs.collect(program.lowered.main, options.inputs, options.seed, out if i == 0 else None)
        with Progress(f"compare {program.title}, mesh {program.lowered.mesh}") as tell:
            found = compare(program, args, runs=runs, tell=tell)
        good &= found.agrees
        head: dict[str, object] = {"file": program.file.name, "entry": program.entry, "mesh": program.mesh_sizes}
        documents.append(head | found.as_json())
        if not out.json:
            out.lines([*([line()] if i else []), *lines_of(program, found)])
    if out.json:
        data: dict[str, object] = {"format": "gshard-compare-1", "agrees": good, "seed": int(options.seed)}
        out.data(data | {"runs": runs, "meshes": documents})
    return 0 if good else 1


def parse_runs(text: str) -> int:
    """Read ``--runs``."""
    if not re.fullmatch(r"\d{1,6}", text) or not 1 <= int(text) <= MOST_RUNS:
        raise usage(f"--runs {text}: not an integer in [1, {MOST_RUNS:,}]", suggestion="--runs 15")
    return int(text)


def lines_of(program: Program, found: Comparison) -> list[Line]:
    """Lay out one comparison."""
    ours, auto = found.ours, found.auto
    rows = [
        (kind, _count(ours.counts, ours.by_kind, kind), _count(auto.counts, auto.by_kind, kind), "")
        for kind in dict.fromkeys([*ours.counts, *auto.counts])
    ]
    rows += [
        ("sent", bytes_text(ours.sent), bytes_text(auto.sent), _ratio(ours.sent, auto.sent)),
        (
            "temporary memory",
            bytes_text(ours.temp_bytes),
            bytes_text(auto.temp_bytes),
            _ratio(ours.temp_bytes, auto.temp_bytes),
        ),
        (
            "compile time",
            f"{ours.compile_seconds:.2f} s",
            f"{auto.compile_seconds:.2f} s",
            _ratio(ours.compile_seconds, auto.compile_seconds),
        ),
        ("step time", _time(ours.step_seconds), _time(auto.step_seconds), f"{found.step_ratio:.3f}"),
    ]
    head = (Segment(program.title, "head"), Segment(f"    mesh {program.lowered.mesh}"))
    lines = [head, line(), *table(COLUMNS, rows), line()]
    least, most = min(found.ratios), max(found.ratios)
    pairs = f"{len(found.ratios)} pairs of steps" if len(found.ratios) > 1 else "1 pair of steps"
    lines.append(line(f"  step ratio: median of {pairs}, {least:.3f} to {most:.3f}"))
    return [*lines, *_planned(found), *_agreement(found)]


def _planned(found: Comparison) -> list[Line]:
    """Say where XLA sends other than was planned, and why if that is known."""
    lines: list[Line] = []
    for p in found.promoted:
        planned = f"{bytes_text(p.bytes)} of {p.dtype}, of {bytes_text(found.planned)} planned"
        told = f"  promoted: {planned}, go as a wider type on this backend"
        lines += [line(told), *(line(f"    {c}", "faint") for c in p.collectives)]
    if found.ours.sent != found.planned and not found.promoted:
        lines.append(line(f"  planned: {bytes_text(found.planned)}; XLA sends other than that", "bad"))
    return lines


def _agreement(found: Comparison) -> list[Line]:
    wrong = [d for d in found.differences if not d.agrees]
    if not wrong:
        most = max((d.ulps for d in found.differences), default=0.0)
        told = "ours and jax-auto agree"
        return [(Segment("  "), Segment(told, "good"), Segment(f", to {most:.3g} ulps of the largest value"))]
    return [
        (Segment("  "), Segment(f"{d.output}: {d.type} differs", "bad"), Segment(f", largest error {d.error:.3g}"))
        for d in wrong
    ]


def _count(counts: dict[str, int], by_kind: dict[str, float], kind: str) -> str:
    return f"{counts[kind]} x  {bytes_text(by_kind[kind])}" if counts.get(kind) else "-"


def _ratio(ours: float, auto: float) -> str:
    if not auto:
        return "" if ours else "1.000"
    return f"{ours / auto:.3f}"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
