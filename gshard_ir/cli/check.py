"""``gshard check``: parse, type-check and propagate layouts; every error at once."""

from __future__ import annotations

import argparse

from gshard_ir.cli.options import Commands, command, open_program
from gshard_ir.cli.output import Output

EXAMPLES = (
    "gshard check moe.gshard",
    "gshard check moe.gshard:moe --mesh expert=2048",
    "gshard check moe.gshard --format json",
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    details = "All errors are reported at once, with their places."
    made = command(commands, "check", "parse and type-check a program", details, EXAMPLES)
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Check, and say what was checked."""
    program = open_program(options, options.mesh)
    propagation = program.propagation
    main = program.lowered.main
    if out.json:
        data: dict[str, object] = {"format": "gshard-check-1", "ok": True, "file": program.file.name}
        data |= {"entry": program.entry, "mesh": program.mesh_sizes}
        data |= {"params": dict(zip(main.param_names, (str(v.type) for v in main.params), strict=True))}
        data |= {"results": [str(v.type) for v in main.results], "clashes": len(propagation.clashes)}
        out.data(data)
    else:
        params = ", ".join(f"{n}: {v.type}" for n, v in zip(main.param_names, main.params, strict=True))
        results = ", ".join(str(v.type) for v in main.results)
        out.text(f"{program.title} is well-typed on mesh {program.lowered.mesh}: ({params}) -> ({results})\n")
    return 0
