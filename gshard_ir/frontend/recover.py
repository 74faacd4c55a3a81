"""What a top-level block that cannot be read would have declared, so that the others are still checked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.frontend import ast
from gshard_ir.source import SourceFile

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)[ ]*=(?!=)[ ]*([0-9]{1,9})?", re.ASCII)
_COMMENT: Final = re.compile("#.*")
_COLUMN_0: Final = re.compile(r"[^\s)\]}]")


@dataclass
class Missing:
    """Names that broken blocks would have declared, the mesh axes among them with a likely size."""

    names: set[str] = field(default_factory=set)
    axes: dict[str, int] = field(default_factory=dict)
    imports: bool = False
    """Whether an import is among them: any name of ``std`` may be meant."""

    def add(self, source: SourceFile, line: int) -> None:
        """Note what the block that starts on ``line`` (from 1) would declare."""
        while source.line(line).startswith("@"):
            line += 1  # to what is decorated
        text = _text(source, line)
        first = text.split("\n", 1)[0]
        head = _NAME.findall(re.split("[(:=@]", first, maxsplit=1)[0])
        word = head[0] if head else ""
        sizes = {name: max(int(size or 1), 1) for name, size in _ASSIGNED.findall(text)}
        if word == "mesh":
            self.axes.update(dict.fromkeys(_NAME.findall(text[4:]), 1) | sizes)
        elif word in ("from", "import"):
            self.imports = True
            self.names.update(_NAME.findall(first))
        elif word in ("def", "struct"):
            self.names.update(head[1:2])
        else:
            self.names.update((*head, *sizes))
            # It may be a mesh whose keyword is misspelled.
            self.axes = sizes | self.axes


class BrokenProgramError(GShardError):
    """Syntax errors, with the blocks that could be read and the names that those do not declare."""

    def __init__(self, diagnostics: Iterable[Diagnostic], program: ast.Program, missing: Missing) -> None:
        super().__init__(diagnostics)
        self.program = program
        self.missing = missing

    def joined(self, others: Iterable[Diagnostic]) -> GShardError:
        """Return one error with the diagnostics of the readable blocks too, in source order."""
        found = (*self.diagnostics, *others)
        placed = [d for d in found if d.span is not None]
        placed.sort(key=lambda d: (d.span.line, d.span.column) if d.span else (0, 0))
        return GShardError((*placed, *(d for d in found if d.span is None)))


def goes_on(items: list[ast.Item]) -> bool:
    """Tell whether a statement in column 1 would rather end the def above it than start something."""
    last = items[-1] if items else None
    return isinstance(last, ast.Def) and not isinstance(last.body[-1], ast.Return)


def _text(source: SourceFile, line: int) -> str:
    """Return the lines of a block without comments: those up to the next one that starts in column 1."""
    lines = source.text.split("\n")[line - 1 :] or [""]
    found = [_COMMENT.sub("", lines[0])]
    for text in lines[1:]:
        if _COLUMN_0.match(text):
            break
        found.append(_COMMENT.sub("", text))
    return "\n".join(found)
