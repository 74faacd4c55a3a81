"""``gshard explain``: why a value lies as it does, and why a collective is there."""

from __future__ import annotations

import argparse

from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import command, open_program
from gshard_ir.cli.output import Output
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.errors import GShardError

DETAILS = """
For each dim: the chain of rules back to an annotation; what was proposed, what stood in its way and what it would
have sent; what the search decided. For each collective: who makes the value and who wants it otherwise, the lines
behind both, and an edit that was compiled and found to send less, if there is one.

names:
  NAME         the last binding of a name in the def
  NAME@LINE    the one on that line
  callee.NAME  inside a def that is called"""

EXAMPLES = (
    "gshard explain moe.gshard sent",
    "gshard explain moe.gshard sent@20 --mesh expert=4",
    "gshard explain moe.gshard top2_gating.g1",
    "gshard explain moe.gshard --collectives",
    "gshard explain moe.gshard --all --format json",
)


def add(commands: Commands) -> None:
    """Add the subcommand."""
    summary = "say why a value is split as it is, or what a collective is for"
    made = command(commands, "explain", summary, DETAILS, EXAMPLES)
    made.add_argument("name", metavar="NAME", nargs="?", help="a value: NAME, NAME@LINE or callee.NAME")
    made.add_argument("--all", action="store_true", help="every value, those inside called defs too")
    made.add_argument("--collectives", action="store_true", help="every collective")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Explain what is named."""
    from gshard_ir.explain.text import lines_of

    asked = [w for w in (options.name, options.all and "--all", options.collectives and "--collectives") if w]
    if len(asked) > 1:
        raise usage(f"{' and '.join(asked)} exclude each other", suggestion=f"gshard explain {options.file} {asked[0]}")
    program = open_program(options, options.mesh)
    _ = program.compiled
    if not asked:
        names = program.explainer.names.known
        told = f"it has {', '.join(names)}"
        edit = f"gshard explain {options.file} {names[-1] if names else '--all'}"
        raise usage(f"which value of {program.title}, --all or --collectives?", told, suggestion=edit)
    try:
        found = program.explain(options.name, collectives=options.collectives)
    except GShardError as error:
        raise UsageError(error.diagnostics) from None
    if out.json:
        out.text(found.json())
    else:
        out.lines(lines_of(found))
    return 0
