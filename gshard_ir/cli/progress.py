"""A line on a terminal that says what is going on and for how long; nothing where nobody watches."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

AFTER = 1.0
"""Seconds of silence before the line appears."""

EVERY = 0.2
"""Seconds between updates."""


class Progress:
    """Context manager: call it with what is being done. Leaving it erases the line, whatever happened.

    The line goes to standard error, and only where that is a terminal. Nothing else may be written
    while it shows: leave the context first.
    """

    def __init__(self, what: str, stream: TextIO | None = None, *, after: float = AFTER, every: float = EVERY) -> None:
        self.what = what
        self.stream = stream or sys.stderr
        self.after, self.every = after, every
        self.doing = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._start = 0.0

    def __call__(self, doing: str) -> None:
        """Say what comes next."""
        self.doing = doing

    def __enter__(self) -> Progress:
        if self.stream.isatty() and os.environ.get("TERM") != "dumb":
            self._start = time.monotonic()
            self._thread = threading.Thread(target=self._show, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self) -> None:
        wait, shown = self.after, False
        try:
            while not self._stop.wait(wait):
                self.stream.write(f"\r\x1b[K{self.line()}")
                self.stream.flush()
                wait, shown = self.every, True
            if shown:
                self.stream.write("\r\x1b[K")
                self.stream.flush()
        except (OSError, ValueError):  # the terminal went away: nobody watches any more
            return

    def line(self) -> str:
        """``verify moe.gshard: timing, 3 s``, cut to the width of the terminal, control characters blanked."""
        seconds = int(time.monotonic() - self._start)
        text = ", ".join(w for w in (f"{self.what}: {self.doing}" if self.doing else self.what, f"{seconds} s") if w)
        clean = "".join(ch if ch.isprintable() else " " for ch in text)
        return clean[: max(shutil.get_terminal_size().columns - 1, 10)]
