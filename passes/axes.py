"""Cut mesh axes so that every sub-axis that anybody mentions is an axis of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.ir import Attr, Module
from gshard_ir.mesh import AxisRef, Mesh, user_axes
from gshard_ir.sharding import Sharding
from gshard_ir.source import Span


@dataclass(frozen=True)
class Mention:
    """A sub-axis and where the program asks for it."""

    ref: AxisRef
    span: Span | None


@dataclass(frozen=True)
class Axes:
    """``module.mesh.expand(ref)`` is exact for every axis reference in the module.

    Nothing but the mesh changes: annotations keep the user's own axes. Cuts of one axis that do
    not nest (sizes 2 and 3 of an axis of 6) raise :class:`~gshard_ir.errors.GShardError`.
    """

    name: str = "axes"

    def run(self, module: Module) -> Module:
        """Return the module on its refined mesh."""
        sizes = user_axes(module.mesh)
        mesh = Mesh(tuple(sizes), tuple(sizes.values()))
        mentions: list[Mention] = []
        for mention in sub_axes(module):
            seen = [m.ref for m in mentions]
            if mention.ref in seen:
                continue
            try:
                mesh.refine([*seen, mention.ref])
            except ValueError:
                raise _clash(mention, mentions, sizes) from None
            mentions.append(mention)
        return replace(module, mesh=mesh.refine(m.ref for m in mentions))


def sub_axes(module: Module) -> Iterator[Mention]:
    """Yield every piece of an axis in annotations and signatures, in program order."""
    for function in module.functions.values():
        for values, pins in (
            (function.params, function.param_shardings),
            (function.results, function.result_shardings),
        ):
            for value, pin in zip(values, pins, strict=True):
                yield from _mentions(pin, value.span or function.span)
        for op in function.body.walk():
            for attr in op.attrs.values():
                yield from _mentions(attr, op.span)


def _mentions(attr: Attr, span: Span | None) -> Iterator[Mention]:
    if isinstance(attr, Sharding):
        for ref in attr.refs():
            if ref.size:
                yield Mention(ref, span)
    elif isinstance(attr, tuple):
        for item in attr:
            yield from _mentions(item, span)


def _clash(new: Mention, earlier: list[Mention], sizes: dict[str, int]) -> GShardError:
    ref, total = new.ref, sizes[new.ref.name]
    same = [m for m in earlier if m.ref.name == ref.name]
    if total % (ref.pre * ref.size):
        return GShardError(
            Diagnostic(
                f"{ref} is not a piece of axis {ref.name}",
                new.span,
                (f"{ref.pre} * {ref.size} = {ref.pre * ref.size} does not divide {total}, the size of {ref.name}",),
                f"use a piece that divides {total}: {', '.join(_divisors(total))}",
            )
        )
    other = next(m for m in same if not _nest(ref, m.ref))
    return GShardError(
        Diagnostic(
            f"{ref} and {other.ref} cut axis {ref.name} at places that do not nest",
            new.span,
            (
                f"{ref} cuts the {total} devices after factors {_cuts(ref)}, {other.ref} after {_cuts(other.ref)}",
                "each cut must divide the next",
            ),
            f"declare {ref.name} as two axes, or use the same pieces in both places",
            ((other.span, f"{other.ref} is used here"),) if other.span else (),
        )
    )


def _divisors(n: int) -> list[str]:
    return [str(k) for k in range(2, min(n, 64) + 1) if n % k == 0]


def _nest(a: AxisRef, b: AxisRef) -> bool:
    points = sorted({a.pre, a.pre * a.size, b.pre, b.pre * b.size})
    return all(y % x == 0 for x, y in pairwise(points))


def _cuts(ref: AxisRef) -> str:
    return f"{ref.pre} and {ref.pre * ref.size}" if ref.pre > 1 else str(ref.size)
