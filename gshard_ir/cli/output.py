"""Where a command writes: text or JSON on standard output, diagnostics on standard error, files whole or not at all."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from gshard_ir.cli.usage import usage
from gshard_ir.dump.table import Line, plain
from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.source import Span

STYLES = {
    "head": "bold",
    "name": "cyan",
    "comm": "yellow",
    "bytes": "magenta",
    "faint": "dim",
    "good": "green",
    "bad": "bold red",
}


class Output:
    """Standard output and error of one command. ``json`` is set once the options are known."""

    def __init__(self) -> None:
        self.json = False
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    def lines(self, lines: Iterable[Line], stream: TextIO | None = None) -> None:
        """Write styled lines: in colour on a terminal, else plain. Long lines are never cut."""
        stream = stream or sys.stdout
        if not coloured(stream):
            self._put(plain(lines), stream)
            return
        from rich.console import Console
        from rich.text import Text

        console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        for segments in lines:
            text = Text()
            for segment in segments:
                text.append(segment.text, STYLES.get(segment.style, ""))
            text.rstrip()
            console.print(text, soft_wrap=True)

    def text(self, text: str) -> None:
        """Write text as it stands."""
        self._put(text, sys.stdout)

    def _put(self, text: str, stream: TextIO) -> None:
        try:
            stream.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            self.give_up()
            raise usage(f"cannot write the output: {reason(error)}") from None

    def data(self, data: dict[str, object]) -> None:
        """Write a JSON document."""
        self._put(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n", sys.stdout)

    def note(self, text: str) -> None:
        """Write a remark to standard error."""
        sys.stderr.write(f"note: {text}\n")

    def errors(self, error: GShardError) -> None:
        """Write diagnostics: to standard error, or as a JSON document to standard output."""
        found = error.diagnostics
        if self.json:
            self.data({"format": "gshard-errors-1", "ok": False, "errors": [diagnostic_json(d) for d in found]})
            return
        for diagnostic in found:
            sys.stderr.write(diagnostic.render() + "\n")
        if len(found) > 1:
            sys.stderr.write(f"{len(found)} errors\n")

    def bug(self, error: Exception) -> None:
        """Own up to a bug, in one diagnostic."""
        text = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        note = "this is a bug in gshard; GSHARD_TRACEBACK=1 shows where"
        self.errors(GShardError(Diagnostic(f"internal error: {text}", None, (note,))))

    def flush(self) -> None:
        """Write out what is buffered; the place where a closed pipe or a full disk shows."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            self.give_up()
            raise usage(f"cannot write the output: {reason(error)}") from None

    def give_up(self) -> None:
        """Nobody reads standard output any more: let what is buffered go nowhere, in silence."""
        self.json = False
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())


def coloured(stream: TextIO) -> bool:
    """Does the stream want colour? ``NO_COLOR`` and ``TERM=dumb`` say no."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, object]:
    """Return a diagnostic as plain data; the place is null when the source is not to blame."""
    fields: dict[str, object] = {"message": diagnostic.message, "at": span_json(diagnostic.span)}
    fields |= {"notes": list(diagnostic.notes), "suggestion": diagnostic.suggestion}
    return fields | {"also": [{"label": label, "at": span_json(span)} for span, label in diagnostic.also]}


def span_json(span: Span | None) -> dict[str, object] | None:
    """Return a place, its call sites after it, as plain data."""
    if span is None:
        return None
    at: dict[str, object] = {"file": span.file.name, "line": span.line, "column": span.column}
    at |= {"end_line": span.end_line, "end_column": span.end_column}
    return at | {"called_from": span_json(span.caller)}


def claim(path: str, *, force: bool) -> None:
    """Refuse an output path that cannot be written, or that exists and must not be replaced."""
    target = Path(path)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise usage(f"cannot write {path}: {target.parent} is no directory") from None
        return
    except (OSError, ValueError) as error:
        raise usage(f"cannot write {path}: {reason(error)}") from None
    if stat.S_ISDIR(mode):
        raise usage(f"cannot write {path}: it is a directory", suggestion=str(target / "out"))
    if stat.S_ISREG(mode) and not force:
        raise usage(f"{path} exists", suggestion="--force to replace it")


def claim_folder(path: str) -> None:
    """Refuse an output folder that is none and cannot be made."""
    at = Path(path)
    try:
        while not at.exists() and at != at.parent:
            at = at.parent
        usable = at.is_dir() and os.access(at, os.W_OK)
    except (OSError, ValueError) as error:
        raise usage(f"cannot write to {path}: {reason(error)}") from None
    if not usable:
        why = "may not be written to" if at.is_dir() else "is no directory"
        raise usage(f"cannot write to {path}: {at} {why}")


def write(path: str, content: bytes, *, force: bool) -> None:
    """Write a file whole or not at all; raises a usage error naming the reason."""
    claim(path, force=force)
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():  # a pipe or a device: nothing to replace
            target.write_bytes(content)
            return
        scratch = target.with_name(f".{target.name[:80]}.{os.getpid()}.tmp")
        try:
            with scratch.open("xb") as file:
                file.write(content)
            scratch.replace(target)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        raise usage(f"cannot write {path}: {reason(error)}") from None


def reason(error: Exception) -> str:
    """Return the operating system's own words, without the path that is already in the message."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
