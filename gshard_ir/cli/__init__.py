"""The ``gshard`` command: one module per subcommand, one diagnostic per mistake, never a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from gshard_ir.cli import check, compare, compile, completion, diff, dump, explain, layout, run, verify  # noqa: A004  (the subcommand's name)
from gshard_ir.cli.arguments import Parser
from gshard_ir.cli.output import Output
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.errors import GShardError

OK, WRONG, USAGE, BUG, INTERRUPTED, PIPE = 0, 1, 2, 3, 130, 141

EPILOG = """\
exit codes:
  0  all is well
  1  the program is wrong, or results differ
  2  the command is wrong: options, files, input arrays
  3  a bug in gshard

examples:
  gshard check moe.gshard
  gshard dump moe.gshard --stage partitioned --mesh expert=8
  gshard compile moe.gshard:moe -o moe.py
  gshard run moe.gshard --devices 8 --input x=x.npy --output results.npz
  gshard verify moe.gshard --mesh data=2,expert=4 -D E=16
"""


def parser() -> Parser:
    """Return the parser of the whole command."""
    made = Parser(
        prog="gshard",
        description="Check, look at, compile, run and verify sharded tensor programs.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="store_true", help="print the version and stop")
    commands = made.add_commands(title="commands", metavar="COMMAND", dest="command")
    for module in (check, dump, compile, run, verify, explain, compare, diff, layout, completion):
        module.add(commands)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. ``argv`` is without the program's name."""
    out = Output()
    try:
        return _command(sys.argv[1:] if argv is None else list(argv), out)
    except BrokenPipeError:
        out.give_up()
        return PIPE
    except KeyboardInterrupt:
        return INTERRUPTED


def _command(argv: list[str], out: Output) -> int:
    try:
        options = parser().parse_args(argv)
        out.json = getattr(options, "format", "text") == "json"
        if options.version:
            return _version(out)
        if options.command is None:
            raise usage("no command given", suggestion="gshard --help")
        code: int = options.run(options, out)
        out.flush()
    except SystemExit as stop:  # argparse has printed --help
        return stop.code if isinstance(stop.code, int) else USAGE
    except GShardError as error:
        out.errors(error)
        return USAGE if isinstance(error, UsageError) else WRONG
    except BrokenPipeError:
        raise
    except MemoryError:
        out.errors(usage("out of memory"))
        return USAGE
    except Exception as error:
        import os

        if os.environ.get("GSHARD_TRACEBACK"):
            raise
        out.bug(error)
        return BUG
    return code


def _version(out: Output) -> int:
    from importlib.metadata import version

    out.text(f"gshard {version('gshard_ir')}\n")
    return OK


__all__ = ["main", "parser"]
