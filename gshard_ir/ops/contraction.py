"""einsum: the one contraction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gshard_ir.factors import Rule
from gshard_ir.ir import Attrs
from gshard_ir.opdef import Array, OpDef, OpError, Types, define
from gshard_ir.ops.common import Draft, numeric, plain, require, silent, sums
from gshard_ir.types import TensorType


def parse_spec(attrs: Attrs) -> tuple[tuple[str, ...], str]:
    """Split ``"ab,bc->ac"`` into operand letters and result letters; raise :class:`OpError` when malformed."""
    spec = attrs["spec"]
    if not isinstance(spec, str) or spec.count("->") != 1:
        raise OpError(f"an einsum spec has one ->, found {spec!r}", suggestion='"ab,bc->ac"')
    left, right = spec.replace(" ", "").split("->")
    letters = tuple(left.split(","))
    for k, word in enumerate((*letters, right)):
        where = f"operand {k + 1}" if k < len(letters) else "the result"
        if word and not (word.isascii() and word.isalpha()):
            raise OpError(f"einsum names dims by single letters, {where} has {word!r}", suggestion='"ab,bc->ac"')
        twice = next((c for c in word if word.count(c) > 1), None)
        if twice:
            raise OpError(
                f"letter {twice} stands twice in {where} ({word}) of {spec!r}",
                suggestion="give the dims letters of their own",
                operand=k if k < len(letters) else None,
            )
    for letter in right:
        if letter not in left:
            raise OpError(
                f"letter {letter} of the result is in no operand of {spec!r}",
                suggestion=f'"{left}->{right.replace(letter, "")}"',
            )
    return letters, right


def _sizes(letters: Sequence[str], types: Types) -> dict[str, int]:
    sizes: dict[str, int] = {}
    first: dict[str, int] = {}
    for i, (word, type_) in enumerate(zip(letters, types, strict=True)):
        for d, letter in enumerate(word):
            n = type_.shape[d]
            if sizes.setdefault(letter, n) != n:
                k = first[letter]
                raise OpError(
                    f"einsum dim {letter} is {sizes[letter]} in operand {k + 1} but {n} in operand {i + 1}",
                    f"operand {k + 1} is {letters[k]}: {plain(types[k])}",
                    f"operand {i + 1} is {word}: {plain(type_)}",
                    suggestion=f"make dim {d} of operand {i + 1} {sizes[letter]}",
                    operand=i,
                )
            first.setdefault(letter, i)
    return sizes


def _infer(types: Types, attrs: Attrs) -> Types:
    letters, result = parse_spec(attrs)
    if len(letters) != len(types) or not types:
        raise OpError(f"the einsum spec names {len(letters)} operands, found {len(types)}")
    require("einsum", types, numeric, "float or integer", "f32")
    for i, (word, type_) in enumerate(zip(letters, types, strict=True)):
        if type_.dtype != types[0].dtype:
            raise OpError(
                "einsum takes operands of one element type",
                f"operand 1 is {plain(types[0])}, operand {i + 1} is {plain(type_)}",
                suggestion=f"cast operand {i + 1} to {types[0].dtype}",
                operand=i,
            )
        if len(word) != type_.rank:
            raise OpError(
                f"einsum names {len(word)} dims ({word or 'none'}) of operand {i + 1}, which has {type_.rank}",
                f"operand {i + 1} is {plain(type_)}",
                suggestion=f"give operand {i + 1} {type_.rank} letters",
                operand=i,
            )
    sizes = _sizes(letters, types)
    return (TensorType(types[0].dtype, tuple(sizes[c] for c in result)),)


def _rule(types: Types, attrs: Attrs) -> Rule:
    letters, result = parse_spec(attrs)
    draft, index = Draft(), dict[str, tuple[int, ...]]()
    for letter, size in _sizes(letters, types).items():
        index[letter] = draft.new(letter, size, *(() if letter in result else ("reduce", "sum")))
    operands = [tuple(index[c] for c in word) for word in letters]
    return draft.build(
        operands, [tuple(index[c] for c in result)], sums(types[0].dtype, *((i,) for i in range(len(types))))
    )


def _matmul(x: Array, y: Array, a: str, b: str, result: str) -> Array:
    """Contract two operands as one batched matrix product."""
    x = x.sum(axis=tuple(d for d, c in enumerate(a) if c not in b + result), dtype=x.dtype)
    y = y.sum(axis=tuple(d for d, c in enumerate(b) if c not in a + result), dtype=y.dtype)
    a, b = ("".join(c for c in w if c in other + result) for w, other in ((a, b), (b, a)))
    both = [c for c in a if c in b]
    batch, inner = [c for c in both if c in result], [c for c in both if c not in result]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    size = dict(zip(a + b, (*x.shape, *y.shape), strict=True))

    def arrange(z: Array, word: str, *groups: list[str]) -> Array:
        moved = z.transpose([word.index(c) for group in groups for c in group])
        return moved.reshape([size[c] for c in groups[0]] + [math.prod(size[c] for c in g) for g in groups[1:]])

    product: Array = np.matmul(arrange(x, a, batch, rows, inner), arrange(y, b, batch, inner, columns))
    order = [*batch, *rows, *columns]
    return product.reshape([size[c] for c in order]).transpose([order.index(c) for c in result])


@silent
def _einsum(*arrays: Array, spec: str) -> Any:
    letters, result = parse_spec({"spec": spec})
    dtype = arrays[0].dtype
    if dtype.itemsize == 2:
        arrays = tuple(x.astype(np.float32) for x in arrays)
    if len(arrays) == 2:
        product = _matmul(arrays[0], arrays[1], letters[0], letters[1], result)
    else:
        product = np.einsum(f"{','.join(letters)}->{result}", *arrays, optimize=len(arrays) > 2, dtype=arrays[0].dtype)
    return product.astype(dtype, copy=False)


define(
    OpDef(
        "einsum",
        ("operands*",),
        attrs=("spec",),
        infer=_infer,
        reference=_einsum,
        rule=_rule,
        family="contraction",
        examples=(
            (("f32[4,6]", "f32[6,5]"), {"spec": "MK,KN->MN"}),
            (("f32[2,4,3]", "f32[3,5]"), {"spec": "GSM,ME->GSE"}),
            (("f32[2,4,3,2]", "f32[2,4,5]"), {"spec": "GSEC,GSM->EGCM"}),
            (("i32[4,6]",), {"spec": "AB->A"}),
            (("f32[3,4]", "f32[4]", "f32[3,2]"), {"spec": "AB,B,AC->C"}),
            (("bf16[4,6]", "bf16[6,5]"), {"spec": "MK,KN->MN"}),
        ),
        doc="Multiply and sum by letters. Letters missing from the result are summed. 16-bit floats are "
        "accumulated in f32 and rounded once; integers wrap.",
    )
)
