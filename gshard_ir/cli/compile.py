"""``gshard compile``: write the emitted Python file."""

from __future__ import annotations

import argparse

from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output, claim, write
from gshard_ir.program import TARGETS

EXAMPLES = (
    "gshard compile moe.gshard -o moe.py",
    "gshard compile moe.gshard:moe --mesh expert=4 -o moe.py --force",
    "gshard compile moe.gshard --target jax-auto -o -",
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    details = "The file imports jax and numpy alone; build(mesh) in it returns the jitted program."
    made = command(commands, "compile", "write the program as a Python file", details, EXAMPLES)
    made.add_argument("-o", "--output", metavar="OUT.py", required=True, help="where to; - is standard output")
    made.add_argument("--target", choices=TARGETS, default="jax", help="jax: shard_map; jax-auto: jit and constraints")
    made.add_argument("-f", "--force", action="store_true", help="replace an existing file")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Emit and write."""
    if options.output != "-":
        claim(options.output, force=options.force)
    program = open_program(options, options.mesh)
    text = program.emit(options.target)
    traffic = program.traffic()
    if options.output == "-":
        out.text(text)
        return 0
    write(options.output, text.encode(), force=options.force)
    if out.json:
        data: dict[str, object] = {"format": "gshard-compile-1", "file": program.file.name, "entry": program.entry}
        data |= {"mesh": program.mesh_sizes, "target": options.target, "output": options.output}
        out.data(data | {"traffic": traffic.as_json()} if options.target == "jax" else data)
    else:
        tail = f"    {traffic.summary()}" if options.target == "jax" else ""
        out.text(f"{options.output}: {program.title} for {options.target}    mesh {program.lowered.mesh}{tail}\n")
    return 0
