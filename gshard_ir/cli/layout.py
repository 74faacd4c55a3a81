"""``gshard layout``: how one value lies on the devices."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from typing import TextIO

from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.dump.picture import ASCII
from gshard_ir.dump.table import Line, line
from gshard_ir.errors import GShardError

DETAILS = """
A row per dim: its size, the mesh axes that split it, how many rows one device holds, how many rows of padding there
are in all, and the index range of each shard. The picture has a box per shard and in it the devices that hold it.

NAME is the name of a value as gshard dump shows it; NAME@LINE means the one on that line."""

EXAMPLES = (
    "gshard layout moe.gshard sent",
    "gshard layout moe.gshard sent@21 --device 3",
    "gshard layout moe.gshard x --mesh data=2,expert=4 --format json",
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = command(commands, "layout", "show how a value is split", DETAILS, EXAMPLES)
    made.add_argument("name", metavar="NAME[@LINE]", help="the value")
    made.add_argument("--device", metavar="K", help="show what this device holds")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Show every value of the name."""
    device = _device(options.device)
    program = open_program(options, options.mesh)
    try:
        found = program.layout(options.name)
        if device is not None:
            found[0].place(device)
    except GShardError as error:
        raise UsageError(error.diagnostics) if all(d.span is None for d in error.diagnostics) else error from None
    if out.json:
        data: dict[str, object] = {"format": "gshard-layout-1", "file": program.file.name, "entry": program.entry}
        out.data(data | {"mesh": program.mesh_sizes, "values": [v.as_json(device) for v in found]})
        return 0
    lines: list[Line] = []
    for value in found:
        lines += [*([line()] if lines else []), *value.lines(device)]
    out.lines(
        lines if _draws(sys.stdout) else [tuple(replace(s, text=s.text.translate(ASCII)) for s in x) for x in lines]
    )
    return 0


def _draws(stream: TextIO) -> bool:
    """Can the stream show the lines of a picture?"""
    try:
        "┌─┐".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _device(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,10}", text):
        raise usage(f"--device {text}: not the number of a device", suggestion="--device 0")
    return int(text)
