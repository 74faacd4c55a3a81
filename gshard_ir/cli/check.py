"""``gshard check``: parse, type-check and propagate layouts; every error at once."""

from __future__ import annotations

import argparse

from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output
from gshard_ir.cli.usage import usage
from gshard_ir.program import Program

DETAILS = """All errors are reported at once, with their places.

With --watch the file is checked again whenever it has changed, with one line of what it sends; Ctrl-C ends that."""

EXAMPLES = (
    "gshard check moe.gshard",
    "gshard check moe.gshard:moe --mesh expert=2048",
    "gshard check moe.gshard --format json",
    "gshard check moe.gshard --watch",
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = command(commands, "check", "parse and type-check a program", DETAILS, EXAMPLES)
    made.add_argument("--watch", action="store_true", help="check again whenever the file has changed")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Check, and say what was checked."""
    if options.watch:
        return _watch(options, out)
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
        out.text(f"{_signature(program)}\n")
    return 0


def _signature(program: Program) -> str:
    main = program.lowered.main
    params = ", ".join(f"{n}: {v.type}" for n, v in zip(main.param_names, main.params, strict=True))
    results = ", ".join(str(v.type) for v in main.results)
    return f"{program.title} is well-typed on {_devices(program)}: ({params}) -> ({results})"


def _devices(program: Program) -> str:
    return f"mesh {program.lowered.mesh}" if program.lowered.mesh.names else "one device"


def _watch(options: argparse.Namespace, out: Output) -> int:
    from gshard_ir import api
    from gshard_ir.cli.options import parse_defines, parse_launch_bytes, parse_mesh
    from gshard_ir.cli.watch import Watch, stamp

    if out.json:
        raise usage("--watch is for people: it has no --format json", suggestion="--format text")
    if options.mesh is not None:
        parse_mesh(options.mesh)
    parse_defines(options.defines)
    parse_launch_bytes(options.launch_bytes)
    path, _ = api.split_entry(options.file)
    if stamp(path) is None:
        api.read(path)  # says why there is nothing to watch

    def check() -> None:
        program = open_program(options, options.mesh)
        out.text(f"{program.title} is well-typed on {_devices(program)}    {program.traffic().summary()}\n")

    return Watch(path, check, out).run()
