"""Options that all commands share, and the program that they name."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping, Sequence

from gshard_ir.cli.arguments import Commands, Parser
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.errors import GShardError
from gshard_ir.mesh import LAUNCH_BYTES
from gshard_ir.program import Program

LARGEST = 2**31 - 1
FORMATS = {"text": "for people (default)", "json": "for programs"}


def command(
    commands: Commands,
    name: str,
    summary: str,
    details: str,
    examples: Sequence[str],
    *,
    many_meshes: bool = False,
    formats: Mapping[str, str] = FORMATS,
) -> Parser:
    """Add a subcommand with the options that all have."""
    made = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {details}",
        epilog="examples:\n" + "\n".join(f"  {e}" for e in examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("file", metavar="FILE[:DEF]", help="a .gshard file, and which def of it (main, else the last)")
    made.add_argument(
        "--mesh",
        metavar="A=N,B=M",
        action="append" if many_meshes else "store",
        help="sizes of the mesh axes; axes that are left out have size 1 (default: as the file declares them)"
        + ("; repeat it for several meshes" if many_meshes else ""),
    )
    made.add_argument("-D", metavar="NAME=N", dest="defines", action="append", default=[], help="override a const")
    shown = ", ".join(f"{name}: {what}" for name, what in formats.items())
    made.add_argument("--format", choices=tuple(formats), default="text", help=shown)
    made.add_argument(
        "--launch-bytes",
        metavar="N",
        default=str(LAUNCH_BYTES),
        help=f"what the launch of a collective costs the search, in bytes (default {LAUNCH_BYTES})",
    )
    made.add_argument("--no-refine", action="store_true", help="keep propagation's own plan, without the search")
    return made


def parse_mesh(text: str) -> dict[str, int]:
    """Read ``data=2,expert=4``."""
    found: dict[str, int] = {}
    for word in text.split(","):
        matched = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d{1,12})\s*", word)
        if matched is None:
            named = re.match(r"\s*([A-Za-z_]\w*)", word)
            raise usage(
                f"--mesh {text}: cannot read {word!r}",
                "axes are written name=size, with commas between them",
                suggestion=f"{named[1] if named else 'data'}=2",
            )
        name, size = matched[1], int(matched[2])
        if name in found:
            raise usage(f"--mesh {text}: axis {name} is given twice")
        if not 1 <= size <= LARGEST:
            raise usage(f"--mesh {text}: size {size} of {name} is not in [1, {LARGEST:,}]")
        found[name] = size
    if (devices := math.prod(found.values())) > LARGEST:
        raise usage(f"--mesh {text}: a mesh of {devices:,} devices", f"at most {LARGEST:,} are accepted")
    return found


def parse_defines(words: Sequence[str]) -> dict[str, int]:
    """Read ``-D E=16`` options."""
    found: dict[str, int] = {}
    for word in words:
        matched = re.fullmatch(r"([A-Za-z_]\w*)=([+-]?\d{1,18})", word)
        if matched is None:
            named = re.match(r"[A-Za-z_]\w*", word)
            edit = f"-D {named[0] if named else 'E'}=16"
            raise usage(f"-D {word}: cannot read it", "a const is written NAME=INTEGER", suggestion=edit)
        if matched[1] in found:
            raise usage(f"-D {word}: {matched[1]} is given twice")
        found[matched[1]] = int(matched[2])
    return found


def parse_launch_bytes(text: str) -> float:
    """Read a non-negative number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        edit = f"--launch-bytes {LAUNCH_BYTES}"
        raise usage(f"--launch-bytes {text}: not a number of bytes, 0 or more", suggestion=edit)
    return value


def open_program(options: argparse.Namespace, mesh: str | None = None) -> Program:
    """Read and type-check the program that the options name.

    A mistake with no place in the source is one of the command: an unknown axis, const or def.
    """
    from gshard_ir import api

    sizes = parse_mesh(mesh) if mesh is not None else None
    defines = parse_defines(options.defines)
    launch_bytes = parse_launch_bytes(options.launch_bytes)
    try:
        path, entry = api.split_entry(options.file)
        return api.check(
            api.read(path),
            mesh=sizes,
            entry=entry,
            defines=defines,
            launch_bytes=launch_bytes,
            search=not options.no_refine,
        )
    except GShardError as error:
        if all(d.span is None for d in error.diagnostics):
            raise UsageError(error.diagnostics) from None
        raise
