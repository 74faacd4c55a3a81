"""``gshard check --watch``: check again whenever the file has changed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from gshard_ir.cli.output import Output
from gshard_ir.errors import GShardError

EVERY = 0.2
"""Seconds between looks at the file; a change counts once the file has been still for one of them."""

CLEAR = "\x1b[2J\x1b[H"
Stamp = tuple[int, int, int]


@dataclass
class Watch:
    """Calls ``check`` at the start and after every change of the file, until it is interrupted.

    ``sleep`` and ``stamp`` are what the loop knows of the world.
    """

    path: str
    check: Callable[[], None]
    out: Output
    sleep: Callable[[float], None] = time.sleep

    def run(self) -> int:
        """Loop; an interrupt ends it quietly."""
        last: Stamp | None = None
        missing = False
        try:
            while True:
                now = self.settled()
                if now is None and not missing:
                    self.show(lambda: self.out.text(f"{self.path} is gone, waiting for it\n"))
                elif now is not None and (now != last or missing):
                    self.show(self.check)
                missing, last = now is None, now
                self.wait(now)
        except KeyboardInterrupt:
            self.out.text("\n" if sys.stdout.isatty() else "")
            return 0

    def show(self, what: Callable[[], None]) -> None:
        """Show one round; no mistake of the program ends the watch."""
        if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            self.out.text(CLEAR)
        try:
            what()
        except BrokenPipeError:
            raise
        except GShardError as error:
            self.out.errors(error)
        except Exception as error:
            self.out.bug(error)
        self.out.flush()
        sys.stderr.flush()

    def wait(self, known: Stamp | None) -> None:
        """Return when the file is not as it was."""
        self.sleep(EVERY)
        while stamp(self.path) == known:
            self.sleep(EVERY)

    def settled(self) -> Stamp | None:
        """Return the stamp of the file once an editor has finished with it: twice the same in a row."""
        now = stamp(self.path)
        while True:
            self.sleep(EVERY / 4)
            again = stamp(self.path)
            if again == now:
                return now
            now = again


def stamp(path: str) -> Stamp | None:
    """Return what changes when a file is written or replaced, None when there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
