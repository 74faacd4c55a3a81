"""Names of territories, languages and currencies in 100 languages, from CLDR (the ``babel`` package), as byte tokens.

Usage:

    python names.py                 # what there is
    python names.py tokens.npz      # save x [batches, G, S, M] for --input of demo.py
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LANGUAGES = 100
END = "\n"


@dataclass(frozen=True)
class Name:
    """One name: in which language, of which kind of thing, and its CLDR code."""

    language: str
    kind: str
    code: str
    text: str


def read_names(languages: int = LANGUAGES) -> list[Name]:
    """Return all names in those languages that have the most of them, in the order of language and code."""
    from babel import Locale, localedata

    found: dict[str, list[Name]] = {}
    for identifier in sorted(localedata.locale_identifiers()):
        if "_" in identifier:  # a territory's or a script's variant of a language
            continue
        locale = Locale.parse(identifier)
        kinds = {"territory": locale.territories, "language": locale.languages, "currency": locale.currencies}
        found[identifier] = [
            Name(identifier, kind, code, text) for kind, names in kinds.items() for code, text in sorted(names.items())
        ]
    richest = sorted(found, key=lambda language: (-len(found[language]), language))[:languages]
    return [name for language in sorted(richest) for name in found[language]]


def sample(names: Sequence[Name], tokens: int, seed: int = 0) -> list[Name]:
    """Draw names, one per language in turn, until they hold that many bytes."""
    rng = random.Random(seed)
    piles: dict[str, list[Name]] = {}
    for name in names:
        piles.setdefault(name.language, []).append(name)
    for pile in piles.values():
        rng.shuffle(pile)
    chosen: list[Name] = []
    size = 0
    while size < tokens and any(piles.values()):
        for pile in piles.values():
            if pile and size < tokens:
                chosen.append(pile.pop())
                size += len((chosen[-1].text + END).encode())
    return chosen


def embed(names: Sequence[Name], dim: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Return one vector per UTF-8 byte, [tokens, dim]: that of the byte, and half that of the one before it."""
    data = np.frombuffer("".join(name.text + END for name in names).encode(), np.uint8)
    table = np.random.default_rng(seed).standard_normal((256, dim), np.float32)
    before = np.concatenate([np.frombuffer(END.encode(), np.uint8), data[:-1]])
    vectors: npt.NDArray[np.float32] = table[data] + np.float32(0.5) * table[before]
    return vectors


def batches(names: Sequence[Name], shape: tuple[int, int, int, int], seed: int = 0) -> npt.NDArray[np.float32]:
    """Cut the first byte tokens into x of ``shape`` [batches, G, S, M]; there must be enough of them."""
    count, groups, size, dim = shape
    return embed(names, dim, seed)[: count * groups * size].reshape(shape)


def main(arguments: Sequence[str]) -> None:
    names = read_names()
    print(f"{len(names):,} names in {len({n.language for n in names})} languages")
    if arguments:
        chosen = sample(names, 32 * 8 * 64)
        np.savez(arguments[0], x=batches(chosen, (32, 8, 64, 256)))
        print(f"{len(chosen):,} of them saved to {arguments[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
