"""gshard: a small tensor language and compiler that shards programs over device meshes, after GShard.

``import gshard_ir as gs; p = gs.compile("moe.gshard", mesh={"expert": 8}); y, aux = p(x=..., p=..., key=...)``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gshard_ir.api import compile  # noqa: A004  (named after what it does, like jax's and torch's)
    from gshard_ir.errors import GShardError
    from gshard_ir.program import Program

__all__ = ["GShardError", "Program", "compile"]

_HOMES = {"GShardError": "gshard_ir.errors", "Program": "gshard_ir.program", "compile": "gshard_ir.api"}


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that ``import gshard_ir`` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
