"""``gshard dump``: a stage of the compiler, without jax and without devices."""

from __future__ import annotations

import argparse

from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import FORMATS as TEXT_AND_JSON
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output
from gshard_ir.cli.usage import UsageError
from gshard_ir.errors import GShardError
from gshard_ir.program import STAGES, TARGETS

DETAILS = """

stages:
  source       the text, with the type of every name that a line defines
  ir           the typed program before layouts
  propagated   the layout that propagation alone gives every value, its cause, and the clashes
  partitioned  what one device runs: layouts, shards, and each collective with bytes and reason (default)
  emitted      the Python file"""

FORMATS = TEXT_AND_JSON | {
    "html": "a page: the source with layouts and costs beside each line",
    "dot": "a graph for Graphviz (of stage partitioned)",
}

EXAMPLES = (
    "gshard dump moe.gshard",
    "gshard dump moe.gshard --stage propagated --mesh data=2,expert=4",
    "gshard dump moe.gshard --stage emitted --target jax-auto",
    "gshard dump moe.gshard --mesh expert=2048 --format json",
    "gshard dump moe.gshard --format html > moe.html",
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = command(commands, "dump", "show a stage of the compiler", DETAILS, EXAMPLES, formats=FORMATS)
    made.add_argument("--stage", choices=STAGES, default="partitioned", help="which stage (default partitioned)")
    made.add_argument("--target", choices=TARGETS, default="jax", help="for --stage emitted (default jax)")
    made.add_argument("--all", action="store_true", help="values inside called defs too")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Print the stage."""
    from gshard_ir.dump.stages import report

    program = open_program(options, options.mesh)
    found = report(program, options.stage, target=options.target, everything=options.all)
    if options.format == "text":
        out.lines(found.lines)
        return 0
    try:
        out.text(found.render(options.format))
    except GShardError as error:
        raise UsageError(error.diagnostics) from None
    return 0
