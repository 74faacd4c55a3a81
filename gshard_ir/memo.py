"""Hashes that are computed once: the compiler's memo tables are keyed by nested frozen values."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def hash_once(cls: type[T]) -> type[T]:
    """Class decorator for a frozen dataclass: keep its hash with the instance."""
    plain = cls.__hash__

    def hashed(self: T) -> int:
        kept: int | None = self.__dict__.get("_hash")
        if kept is None:
            kept = self.__dict__["_hash"] = plain(self)
        return kept

    cls.__hash__ = hashed  # type: ignore[method-assign,assignment]
    return cls
