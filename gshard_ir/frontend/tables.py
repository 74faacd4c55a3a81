"""The LALR tables of ``grammar/gshard.lark``: shipped saved, rebuilt by ``python -m gshard_ir.frontend.tables``.

The saved file is lark's own ``save`` format after one line that names the lark release and the
grammar's hash. When either differs (an edited grammar, another lark) the tables are computed
afresh, which takes most of a second but is always right.
"""

from __future__ import annotations

import functools
import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lark import Lark

_DIRECTORY = "gshard_ir.grammar"
_GRAMMAR = "gshard.lark"
_TABLES = "gshard.tables"


def _read(name: str) -> bytes:
    from importlib import resources

    return resources.files(_DIRECTORY).joinpath(name).read_bytes()


def _header(grammar: bytes) -> bytes:
    import lark

    return f"lark {lark.__version__} sha256 {hashlib.sha256(grammar).hexdigest()}\n".encode()


def build(*, strict: bool = False) -> Lark:
    """Compute the parser from the grammar. ``strict`` refuses any conflict and needs ``interegular``."""
    import lark

    return lark.Lark(
        _read(_GRAMMAR).decode(), parser="lalr", lexer="basic", start="file", keep_all_tokens=True, strict=strict
    )


@functools.cache
def load() -> Lark:
    """Return the parser, from the saved tables when they belong to this grammar and this lark."""
    import lark

    header = _header(_read(_GRAMMAR))
    try:
        saved = _read(_TABLES)
    except FileNotFoundError:
        return build()
    if not saved.startswith(header):
        return build()
    return lark.Lark.load(io.BytesIO(saved[len(header) :]))


def is_fresh() -> bool:
    """Tell whether the saved tables belong to this grammar and this lark."""
    try:
        return _read(_TABLES).startswith(_header(_read(_GRAMMAR)))
    except FileNotFoundError:
        return False


def save() -> Path:
    """Recompute the tables in strict mode, write them next to the grammar, return where."""
    from importlib import resources

    buffer = io.BytesIO()
    build(strict=True)  # only the check: the saved options must not ask for interegular
    build().save(buffer)
    path = Path(str(resources.files(_DIRECTORY).joinpath(_TABLES)))
    path.write_bytes(_header(_read(_GRAMMAR)) + buffer.getvalue())
    return path


if __name__ == "__main__":
    import sys

    sys.stdout.write("up to date\n" if is_fresh() else f"wrote {save().name}\n")
