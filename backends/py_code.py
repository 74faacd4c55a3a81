"""Python source as data: expressions that know how tightly they bind, literals, safe names, comments.

Everything that reaches an emitted file passes through here, so that nothing a user wrote can become code.
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gshard_ir.types import BOOL, DType

COMPARE, OR, XOR, AND, SUM, PRODUCT, UNARY, POWER, ATOM = range(9)
"""How tightly a Python expression binds, loosest first."""


@dataclass(frozen=True)
class Code:
    """An expression: text, binding strength, and the shape it has before numpy broadcasting.

    ``literal`` is set for a bare Python number, which takes the dtype of the array it meets.
    """

    text: str
    shape: tuple[int, ...]
    dtype: DType
    bind: int = ATOM
    literal: int | float | bool | None = None

    def at(self, level: int) -> str:
        """The text, in parentheses unless it binds at least as tightly as ``level``."""
        return self.text if self.bind >= level else f"({self.text})"

    @property
    def atom(self) -> str:
        """The text as the target of a method call or a subscript."""
        return self.at(ATOM)

    @property
    def is_literal(self) -> bool:
        return self.literal is not None

    def reshaped(self, text: str, shape: tuple[int, ...]) -> Code:
        """The same elements under another expression that binds as an atom."""
        return replace(self, text=text, shape=shape, bind=ATOM)


def literal(value: int | float | bool, dtype: DType) -> Code:
    """A Python number for a tensor filled with ``value`` (of Python type fitting ``dtype``).

    An integer outside i32 is wrapped in its dtype: jax refuses it as a bare number. A 16-bit float is
    written as the number it rounds to when jax, which goes through f32, would round twice.
    """
    if dtype == BOOL:
        return Code(str(bool(value)), (), dtype, literal=bool(value))
    if dtype.is_integer:
        number = int(value)
        if -(2**31) <= number < 2**31:
            return Code(str(number), (), dtype, UNARY if number < 0 else ATOM, number)
        return Code(f"{jnp_dtype(dtype)}({number})", (), dtype)
    real = _rounded_once(float(value), dtype)
    text = _float_text(real)
    return Code(text, (), dtype, UNARY if text.startswith("-") else ATOM, real)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "jnp.nan"
    if math.isinf(value):
        return "jnp.inf" if value > 0 else "-jnp.inf"
    return repr(value)


def _rounded_once(value: float, dtype: DType) -> float:
    if dtype.itemsize != 2 or not math.isfinite(value):
        return value
    with np.errstate(over="ignore"):
        exact = np.asarray(value, np.float64).astype(dtype.numpy())
        twice = np.asarray(value, np.float32).astype(dtype.numpy())
    return value if exact == twice else float(exact)


def strong(code: Code) -> Code:
    """Give a bare number its dtype, so that it cannot be widened by where it stands."""
    if not code.is_literal:
        return code
    return Code(f"{jnp_dtype(code.dtype)}({code.text})", code.shape, code.dtype)


def jnp_dtype(dtype: DType) -> str:
    """How jax.numpy spells a dtype."""
    return "jnp." + {"bf16": "bfloat16", "bool": "bool_"}.get(dtype.name, dtype.numpy().name)


def tuple_text(items: Iterable[object]) -> str:
    """``(8, 64)``, ``(8,)``, ``()``."""
    texts = [str(i) for i in items]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def quoted(word: str) -> str:
    """A string literal in double quotes, for an axis name or an einsum spec."""
    body = "".join(ch if 32 <= ord(ch) < 127 and ch not in '"\\' else f"\\U{ord(ch):08x}" for ch in word)
    return f'"{body}"'


def axes_text(axes: Sequence[str]) -> str:
    """Mesh axes as a collective takes them: one name, or a tuple from major to minor."""
    return quoted(axes[0]) if len(axes) == 1 else tuple_text(quoted(a) for a in axes)


def comment_text(text: str) -> str:
    """``text`` made fit for one comment line: printable ASCII, quotes and backslashes included."""
    return "".join(ch if 32 <= ord(ch) < 127 else "?" for ch in text)


def docstring_text(text: str) -> str:
    """``text`` made fit for the inside of a docstring."""
    return comment_text(text).replace("\\", "/").replace('"', "'")


MODULE_NAMES = frozenset(
    word
    for row in (
        "jax jnp lax np partial Mesh P NamedSharding MESH INPUTS OUTPUTS",
        "build pad trim mesh devices rng inputs results",
    )
    for word in row.split()
)
"""Names with a meaning of their own in an emitted file."""

_TAKEN = frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins)) | MODULE_NAMES


def identifier(hint: str) -> str:
    """A safe Python identifier that resembles ``hint``: ASCII, no keyword, builtin, dunder or name of ours."""
    word = re.sub(r"[^0-9A-Za-z_]", "_", hint).strip("_")[:40]
    if not word:
        return "value"
    if word[0].isdigit():
        word = f"v{word}"
    return f"{word}_" if word in _TAKEN else word


def fresh(hint: str, taken: Collection[str]) -> str:
    """``identifier(hint)``, numbered when it is taken."""
    word = identifier(hint)
    found, n = word, 1
    while found in taken:
        n += 1
        found = f"{word.rstrip('_')}_{n}"
    return found
