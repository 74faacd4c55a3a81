"""``gshard diff``: what changed between two programs, meshes or saved dumps."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gshard_ir.cli.arguments import Commands
from gshard_ir.cli.options import FORMATS, open_program
from gshard_ir.cli.output import Output, reason
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.dump.table import line
from gshard_ir.dump.traffic import bytes_text, number
from gshard_ir.errors import GShardError
from gshard_ir.mesh import LAUNCH_BYTES

if TYPE_CHECKING:
    from gshard_ir.dump.diff import Diff
    from gshard_ir.dump.snapshot import Snapshot
    from gshard_ir.program import Program

DETAILS = """Show what changed between two programs, two meshes, or saved dumps: layouts, then collectives, then bytes.

A and B are programs, FILE[:DEF], or what gshard dump --format json wrote. Without B it is A again, for another mesh
or other consts. Values are matched by def and name, repeated names by place. The exit code is 0 when nothing differs,
1 when something does, 2 when either side cannot be read or compiled; with --max-bytes-increase it is 1 only when B
sends so much more than A."""

EXAMPLES = (
    "gshard diff old.gshard new.gshard",
    "gshard diff moe.gshard --mesh-a expert=8 --mesh-b data=2,expert=4",
    "gshard diff saved.json moe.gshard --mesh expert=8 --max-bytes-increase 5%",
    "gshard diff moe.gshard --no-refine-a",
)

MOST_BYTES = 256 * 1024 * 1024
SIDES = ("a", "b")


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = commands.add_parser(
        "diff",
        help="what changed between two programs, meshes or dumps",
        description=DETAILS,
        epilog="examples:\n" + "\n".join(f"  {e}" for e in EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("a", metavar="A", help="a .gshard file and which def of it, or a saved dump")
    made.add_argument("b", metavar="B", nargs="?", help="the same (default: A)")
    for side in ("", *SIDES):
        dash, whose = (f"-{side}", f" of {side.upper()}") if side else ("", "")
        made.add_argument(f"--mesh{dash}", metavar="A=N,B=M", help=f"sizes of the mesh axes{whose}")
        flags = (f"--define{dash}",) if side else ("-D", "--define")
        key = f"defines{dash.replace('-', '_')}"
        made.add_argument(
            *flags, metavar="NAME=N", dest=key, action="append", default=[], help=f"override a const{whose}"
        )
        made.add_argument(f"--no-refine{dash}", action="store_true", help=f"keep propagation's own plan{whose}")
    made.add_argument("--launch-bytes", metavar="N", default=str(LAUNCH_BYTES), help="as for gshard dump")
    made.add_argument("--all", action="store_true", help="values too that only have another local shape")
    made.add_argument("--max-bytes-increase", metavar="N|P%", help="bytes, or percent, that B may send more than A")
    shown = ", ".join(f"{name}: {what}" for name, what in FORMATS.items())
    made.add_argument("--format", choices=tuple(FORMATS), default="text", help=shown)
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Compare and say what differs."""
    from gshard_ir.dump.diff import diff, lines_of

    limit = parse_limit(options.max_bytes_increase)
    try:
        found = diff(*_snapshots(options))
    except GShardError as error:
        raise UsageError(error.diagnostics) from None
    if limit is not None and found.increase is None:
        raise usage("--max-bytes-increase: dumps of stage propagated have no bytes", suggestion="--stage partitioned")
    allowed = limit.bytes(found) if limit is not None else None
    within = allowed is None or (found.increase or 0.0) <= allowed
    if out.json:
        head: dict[str, object] = {"format": "gshard-diff-1", **found.as_json()}
        out.data(head | {"allowed_increase": None if allowed is None else number(allowed), "within": within})
    else:
        out.lines(lines_of(found, everything=options.all))
        if allowed is not None:
            told = "within" if within else "above"
            out.lines([line(f"  {told} the allowed increase of {bytes_text(allowed)}", "good" if within else "bad")])
    return int(not within) if limit is not None else int(not found.same)


class Limit:
    """What B may send more: bytes, or a share of what A sends."""

    def __init__(self, amount: float, *, percent: bool) -> None:
        self.amount, self.percent = amount, percent

    def bytes(self, found: Diff) -> float:
        """Return the limit in bytes per device."""
        return (found.a.bytes or 0.0) * self.amount / 100 if self.percent else self.amount


def parse_limit(text: str | None) -> Limit | None:
    """Read ``--max-bytes-increase``."""
    if text is None:
        return None
    matched = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)(%?)", text)
    if matched is None:
        note = "it is a number of bytes, or a percentage"
        raise usage(f"--max-bytes-increase {text}: cannot read it", note, suggestion="--max-bytes-increase 5%")
    return Limit(float(matched[1]), percent=bool(matched[2]))


def _snapshots(options: argparse.Namespace) -> tuple[Snapshot, Snapshot]:
    """Return both sides; a program beside a saved dump is compared at the stage of the dump."""
    from gshard_ir.dump import snapshot

    words = (options.a, options.a if options.b is None else options.b)
    sides = [_saved(word) or _program(options, word, side) for word, side in zip(words, SIDES, strict=True)]
    stage = next((s.stage for s in sides if isinstance(s, snapshot.Snapshot)), "partitioned")
    a, b = (s if isinstance(s, snapshot.Snapshot) else snapshot.of_program(s, stage) for s in sides)
    return a, b


def _saved(word: str) -> Snapshot | None:
    """Read a saved dump; None for a file that does not look like JSON."""
    from gshard_ir.dump.snapshot import read

    path = Path(word)
    try:
        with path.open("rb") as file:
            start = file.read(64)
            if not start.lstrip().startswith(b"{"):
                return None
            content = start + file.read(MOST_BYTES)
    except (OSError, ValueError) as error:
        if word.endswith(".json"):
            raise usage(f"cannot read {word}: {reason(error)}") from None
        return None  # it may name a def; a program says best what is wrong with it
    if len(content) > MOST_BYTES:
        raise usage(f"{word} is too large: at most {MOST_BYTES:,} bytes of a dump are read")
    try:
        return read(content.decode("utf-8"), word)
    except UnicodeDecodeError:
        raise usage(f"{word} is no text in UTF-8") from None


def _program(options: argparse.Namespace, word: str, side: str) -> Program:
    own = argparse.Namespace(
        file=word,
        defines=[*options.defines, *getattr(options, f"defines_{side}")],
        launch_bytes=options.launch_bytes,
        no_refine=options.no_refine or getattr(options, f"no_refine_{side}"),
    )
    mesh = getattr(options, f"mesh_{side}")
    return open_program(own, options.mesh if mesh is None else mesh)
