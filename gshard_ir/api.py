"""From a file or a text to a program."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gshard_ir.errors import GShardError, fail
from gshard_ir.mesh import LAUNCH_BYTES
from gshard_ir.program import Program
from gshard_ir.source import SourceFile

MAX_SOURCE_BYTES = 256 * 1024


def compile(
    path_or_source: str | os.PathLike[str],
    *,
    mesh: Mapping[str, int] | None = None,
    entry: str | None = None,
    defines: Mapping[str, int] | None = None,
    launch_bytes: float = LAUNCH_BYTES,
    search: bool = True,
) -> Program:
    """Compile one def of a program for a mesh, down to what one device runs.

    ``path_or_source`` is a path (``"moe.gshard"``, ``"moe.gshard:moe"`` to name the def) or, when it holds a
    newline, the text itself. ``mesh`` gives sizes of the axes that the program declares (all but those have
    size 1); without it the declared sizes hold. ``defines`` overrides ``const`` integers. ``launch_bytes``
    is what a collective's launch costs the search; ``search=False`` keeps propagation's own plan.

    Raises ``GShardError`` with every mistake that was found.
    """
    if not isinstance(path_or_source, str | os.PathLike) or not os.fspath(path_or_source):
        found = "an empty text" if path_or_source == "" else type(path_or_source).__name__
        raise fail(f"a program is a path or the text itself, found {found}", suggestion='gs.compile("moe.gshard")')
    _check_sizes("mesh", mesh)
    _check_sizes("defines", defines)
    text = os.fspath(path_or_source)
    if "\n" in text:
        file = SourceFile("<string>", text)
    else:
        path, named = split_entry(text)
        file, entry = read(path), entry or named
    program = check(file, mesh=mesh, entry=entry, defines=defines, launch_bytes=launch_bytes, search=search)
    _ = program.compiled
    return program


def check(
    file: SourceFile,
    *,
    mesh: Mapping[str, int] | None = None,
    entry: str | None = None,
    defines: Mapping[str, int] | None = None,
    launch_bytes: float = LAUNCH_BYTES,
    search: bool = True,
) -> Program:
    """Parse and type-check; the later stages are left for when they are asked for."""
    from gshard_ir.frontend.lower import check_readable, lower
    from gshard_ir.frontend.parser import parse
    from gshard_ir.frontend.recover import BrokenProgramError

    _check_sizes("mesh", mesh)
    _check_sizes("defines", defines)
    try:
        program = parse(file)
    except BrokenProgramError as broken:
        raise broken.joined(check_readable(broken, mesh=mesh, defines=defines, entry=entry)) from None
    module = lower(program, mesh=mesh, defines=defines or {}, entry=entry)
    return Program(file, module, launch_bytes, search)


def _check_sizes(what: str, given: object) -> None:
    """Refuse what is no mapping from names."""
    edit = {"mesh": "mesh={'data': 2, 'expert': 4}", "defines": "defines={'E': 16}"}[what]
    if given is not None and not isinstance(given, Mapping):
        raise fail(f"{what} maps names to sizes, found {given!r:.60}", suggestion=edit)
    for key in given or ():
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z_]\w*", key, re.ASCII):
            raise fail(f"{what} maps names to sizes, {key!r:.60} is no name", suggestion=edit)


def split_entry(text: str) -> tuple[str, str | None]:
    """Split ``file.gshard:name``; a path that exists as it stands is one, colons and all."""
    path, colon, name = text.rpartition(":")
    if colon and re.fullmatch(r"[A-Za-z_]\w*", name) and not Path(text).exists():
        return path, name
    return text, None


def read(path: str) -> SourceFile:
    """Read a source file; raises ``GShardError`` for one that is missing, unreadable, too large or no text."""
    from gshard_ir.frontend.parser import decode

    try:
        with Path(path).open("rb") as file:
            found = file.read(MAX_SOURCE_BYTES + 1)
            size = max(os.fstat(file.fileno()).st_size, len(found))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if len(found) > MAX_SOURCE_BYTES:
        raise fail(f"{path} is too large: {size:,} bytes, at most {MAX_SOURCE_BYTES:,} are read")
    return decode(path, found)


def _unreadable(path: str, error: Exception) -> GShardError:
    if not path:
        return fail("the name of the file is empty")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, IsADirectoryError):
        return fail(f"{path} is a directory", suggestion=f"{path.rstrip('/')}/NAME.gshard")
    near = _similar(path) if isinstance(error, FileNotFoundError) else None
    return fail(f"cannot read {path}: {reason}", suggestion=near)


def _similar(path: str) -> str | None:
    from gshard_ir.data import nearest

    folder = Path(path).parent
    try:
        names = {p.stem: p.name for p in sorted(folder.iterdir()) if p.suffix == ".gshard"}
    except (OSError, ValueError):
        return None
    found = nearest(Path(path).stem, list(names))
    return str(folder / names[found]) if found else None
