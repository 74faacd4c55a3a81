"""``gshard run``: compile, run on real or fake devices, show and save the outputs."""

from __future__ import annotations

import argparse
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gshard_ir.cli import inputs
from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output, claim, claim_folder, reason, write
from gshard_ir.cli.progress import Progress
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.dump.table import Column, Segment, line, table
from gshard_ir.errors import GShardError
from gshard_ir.opdef import Array
from gshard_ir.program import Program
from gshard_ir.types import TensorType

DETAILS = """Without enough accelerators the devices are fake ones on the CPU.
Random floats are standard normal; fields of structs with two dims or more are scaled by 1/sqrt(fan-in)."""

EXAMPLES = (
    "gshard run moe.gshard --devices 8",
    "gshard run moe.gshard --input x=x.npy --input p=weights.npz --input key=7 --output results.npz",
    "gshard run moe.gshard --mesh expert=4 --input p.wg=wg.npy --seed 1 --output results/ --force",
)

MOST_DEVICES = 65_536
COLUMNS = (
    Column("output", "name"),
    Column("type"),
    Column("local"),
    Column("mean", right=True),
    Column("least", right=True),
    Column("most", right=True),
    Column("not finite", "bad", right=True),
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = command(commands, "run", "run a program on devices", DETAILS, EXAMPLES)
    made.add_argument("--devices", metavar="N", help="devices to have (default: as many as the mesh needs)")
    add_inputs(made)
    made.add_argument("--output", metavar="DIR|FILE.npz", help="save the outputs: NAME.npy each, or one .npz")
    made.add_argument("-f", "--force", action="store_true", help="replace existing files")
    made.set_defaults(run=run)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add ``--input`` and ``--seed``."""
    parser.add_argument("--input", metavar="NAME=FILE", action="append", default=[], dest="inputs", help=inputs.HELP)
    parser.add_argument("--seed", metavar="N", default="0", help="seed of the missing inputs and keys (default 0)")


def run(options: argparse.Namespace, out: Output) -> int:
    """Run, show a table of outputs, save them."""
    devices = parse_devices(options.devices)
    if options.output is not None:
        _claim(options.output, force=options.force)
    program = open_program(options, options.mesh)
    names = result_names(program)
    for path in _files(options.output, names):
        claim(path, force=options.force)
    devices = enough(program, devices)
    args = inputs.collect(program.lowered.main, options.inputs, options.seed, out)
    _ = program.source
    set_up(devices)
    with Progress(f"run {program.title}, mesh {program.lowered.mesh}"):
        results = program.executable(*args)
    _show(program, names, results, out, options)
    if options.output:
        _save(options.output, names, results, force=options.force)
        if not out.json:
            out.text(f"saved to {options.output}\n")
    return 0


def parse_devices(text: str | None) -> int | None:
    """Read ``--devices``."""
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,6}", text) or not 1 <= int(text) <= MOST_DEVICES:
        raise usage(f"--devices {text}: not an integer in [1, {MOST_DEVICES:,}]")
    return int(text)


def enough(program: Program, devices: int | None = None) -> int:
    """Return how many devices to have; raises a usage error when that is too few for the mesh, or too many."""
    needed, mesh = program.lowered.mesh.devices, program.lowered.mesh
    if devices is not None and devices < needed:
        raise usage(f"mesh {mesh} needs {needed} devices, --devices is {devices}", suggestion=f"--devices {needed}")
    if needed > MOST_DEVICES:
        raise usage(
            f"mesh {mesh} needs {needed:,} devices; at most {MOST_DEVICES:,} are made", suggestion="gshard dump"
        )
    return devices or needed


def set_up(devices: int) -> None:
    """Have so many devices, fake ones if need be, before jax starts."""
    from gshard_ir.backends.jax_run import ensure_devices

    try:
        ensure_devices(devices)
    except GShardError as error:
        raise UsageError(error.diagnostics) from None


def result_names(program: Program) -> list[str]:
    """Return a name per result, ``result`` for a nameless one."""
    return [name or "result" for name in program.lowered.main.result_names]


def _show(
    program: Program, names: Sequence[str], results: Sequence[Array], out: Output, options: argparse.Namespace
) -> None:
    types = [v.type for v in program.lowered.main.results]
    local = [str(list(v.type.shape)).replace(" ", "") for v in program.local.main.results]
    traffic = program.traffic()
    facts = [_facts(a, t) for a, t in zip(results, types, strict=True)]
    if out.json:
        data: dict[str, object] = {"format": "gshard-run-1", "file": program.file.name, "entry": program.entry}
        data |= {"mesh": program.mesh_sizes, "seed": int(options.seed), "traffic": traffic.as_json()}
        outputs = [
            {"name": n, "type": str(t), "local": where, **f}
            for n, t, where, f in zip(names, types, local, facts, strict=True)
        ]
        out.data(data | {"outputs": outputs, "saved": options.output})
        return
    head = (Segment(program.title, "head"), Segment(f"    mesh {program.lowered.mesh}    {traffic.summary()}"))
    rows = [
        (n, str(t), where, *(_text(f[k]) for k in ("mean", "least", "most")), str(f["not_finite"] or ""))
        for n, t, where, f in zip(names, types, local, facts, strict=True)
    ]
    out.lines([head, line(), *table(COLUMNS, rows)])


def _facts(array: Array, type_: TensorType) -> dict[str, float | int | None]:
    """Mean and extremes of the finite values, and how many are not."""
    none: dict[str, float | int | None] = {"mean": None, "least": None, "most": None, "not_finite": 0}
    if type_.dtype.kind == "k" or not array.size:
        return none
    wide = array.astype(np.float64) if type_.dtype.kind in "fb" else array
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return none | {"not_finite": int(wide.size)}
    exact = type_.dtype.is_integer
    least, most = (int(finite.min()), int(finite.max())) if exact else (float(finite.min()), float(finite.max()))
    lost = int(wide.size - finite.size)
    with np.errstate(over="ignore"):
        mean = float(finite.mean(dtype=np.float64))
    return {"mean": mean if np.isfinite(mean) else None, "least": least, "most": most, "not_finite": lost}


def _text(value: float | int | None) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _claim(output: str, *, force: bool) -> None:
    """Find out before the run whether its results can be saved."""
    if not output:
        raise usage("--output is empty", suggestion="--output results.npz")
    if output.endswith(".npz"):
        claim(output, force=force)
    else:
        claim_folder(output)


def _files(output: str | None, names: Sequence[str]) -> list[str]:
    if not output:
        return []
    return (
        [output]
        if output.endswith(".npz")
        else [str(Path(output) / f"{n}.npy") for n in names if Path(output).is_dir()]
    )


def _save(output: str, names: Sequence[str], results: Sequence[Array], *, force: bool) -> None:
    """Save to one ``.npz`` or to a directory; bf16 is saved as two-byte words, which ``--input`` reads back."""
    if output.endswith(".npz"):
        buffer = io.BytesIO()
        np.savez(buffer, **dict(zip(names, results, strict=True)))  # type: ignore[arg-type]
        write(output, buffer.getvalue(), force=force)
        return
    try:
        os.makedirs(output, exist_ok=True)
    except (OSError, ValueError) as error:
        raise usage(f"cannot write to {output}: {reason(error)}") from None
    for name, array in zip(names, results, strict=True):
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        write(str(Path(output) / f"{name}.npy"), buffer.getvalue(), force=force)
