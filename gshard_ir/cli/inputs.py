"""Arguments of a program from ``.npy`` and ``.npz`` files, numbers, and a seed."""

from __future__ import annotations

import ast
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gshard_ir import data
from gshard_ir.cli.output import Output, reason
from gshard_ir.cli.usage import UsageError, usage
from gshard_ir.errors import GShardError
from gshard_ir.ir import Function
from gshard_ir.opdef import Array

HELP = (
    "an argument or a struct field, by dotted name: a .npy file, a .npz file for all fields of a struct, or a number; "
    "a bare .npz holds any of them. What is missing is random (see --seed)"
)


def collect(function: Function, words: Sequence[str], seed: str, out: Output | None) -> tuple[Array, ...]:
    """Return one array per parameter: given ones checked, missing ones random, with a note of which on ``out``."""
    given: dict[str, object] = {}
    for word in words:
        for name, value in _read(word).items():
            if name in given:
                raise usage(f"--input {word}: {name} is given twice")
            given[name] = value
    made = data.seeded(function, parse_seed(seed))
    missing = [n for n in made if not any(n == g or n.startswith(f"{g}.") for g in given)]
    try:
        bound = data.bind(function, (), {**given, **{n: made[n] for n in missing}})
    except GShardError as error:
        raise UsageError(error.diagnostics) from None
    if missing and out is not None:
        out.note(f"random (seed {seed}): {', '.join(missing)}")
    return bound


def parse_seed(text: str) -> int:
    """Read ``--seed``."""
    if not re.fullmatch(r"\d{1,19}", text) or int(text) >= 2**63:
        raise usage(f"--seed {text}: not an integer in [0, 2**63)")
    return int(text)


def _read(word: str) -> dict[str, object]:
    """Return values by dotted name for one ``--input``."""
    name, equals, path = word.partition("=")
    if not equals:
        name, path = "", word
        if not path.endswith(".npz"):
            raise usage(f"--input {word}: cannot read it", "an input is written NAME=FILE.npy, or FILE.npz")
    elif not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", name):
        raise usage(f"--input {word}: {name!r} is no name")
    number = _number(path) if name else None
    if number is not None and not Path(path).exists():
        return {name: number}
    found = load(path)
    if not isinstance(found, dict):
        if not name:
            raise usage(f"--input {word}: {path} holds a single array; say whose", suggestion=f"NAME={path}")
        return {name: found}
    return {f"{name}.{field}" if name else field: value for field, value in found.items()}


def _number(text: str) -> int | float | bool | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, bool | int | float) else None


def load(path: str) -> Array | dict[str, Array]:
    """Read a ``.npy`` as an array or a ``.npz`` as arrays by name; nothing pickled is ever read."""
    try:
        with Path(path).open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise usage(f"cannot read {path}: no such file") from None
    except MemoryError:
        raise usage(f"cannot read {path}: it does not fit into memory") from None
    except OSError as error:
        raise usage(f"cannot read {path}: {reason(error)}") from None
    # zipfile raises the last two for ways of compression that it does not know and for members under a password.
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise usage(f"cannot read {path}: {_fault(path, error)}") from None


def _fault(path: str, error: Exception) -> str:
    """Say what is wrong with an array file in words of our own; numpy's would advise to load pickles."""
    if "pickle" not in str(error):
        return "it is no whole .npy or .npz"
    with Path(path).open("rb") as file:
        known = file.read(6).startswith((b"\x93NUMPY", b"PK"))
    return "it holds Python objects, which are never loaded" if known else "it is neither .npy nor .npz"
