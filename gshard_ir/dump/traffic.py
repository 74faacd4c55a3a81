"""The collectives of a compiled program, each with its bytes and its reason, and their sums."""

from __future__ import annotations

from dataclasses import dataclass

from gshard_ir.dump.views import callee_of, line_of, where_of
from gshard_ir.ir import Op
from gshard_ir.mesh import Mesh
from gshard_ir.passes.traffic import of_module
from gshard_ir.pipeline import Compiled
from gshard_ir.reasons import names_of
from gshard_ir.sharding import Layout


@dataclass(frozen=True)
class Collective:
    """One collective as it runs.

    ``sent`` is what leaves each device, in bytes; ``detail`` says which dims or which reduction; ``value``
    is the tensor that it moves, ``line`` the line of the entry file, ``where`` the innermost place and
    ``callee`` the def there; both are empty in the entry itself.
    """

    kind: str
    axes: str
    detail: str
    sent: float
    value: str
    line: int
    where: str
    reason: str
    callee: str = ""

    def __str__(self) -> str:
        words = [self.kind, self.detail, "over", self.axes] if self.kind == "all_reduce" else [self.kind, self.axes]
        what = " ".join(w for w in words if w)
        return what if self.kind == "all_reduce" or not self.detail else f"{what}, {self.detail}"

    def as_json(self) -> dict[str, object]:
        """Return the fields as plain data."""
        fields: dict[str, object] = {"kind": self.kind, "axes": self.axes, "detail": self.detail}
        fields |= {"bytes": number(self.sent), "value": self.value, "line": self.line}
        return fields | {"where": self.where, "def": self.callee, "reason": self.reason}


@dataclass(frozen=True)
class Traffic:
    """Everything that one device sends in one run."""

    mesh: str
    collectives: tuple[Collective, ...]

    @property
    def bytes(self) -> float:
        """Bytes sent per device, ring accounting."""
        return sum(c.sent for c in self.collectives)

    @property
    def by_kind(self) -> dict[str, float]:
        """Bytes by kind of collective, most first."""
        found: dict[str, float] = {}
        for c in self.collectives:
            found[c.kind] = found.get(c.kind, 0.0) + c.sent
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    @property
    def counts(self) -> dict[str, int]:
        """Number of collectives by kind, in the order of :attr:`by_kind`."""
        return {kind: sum(c.kind == kind for c in self.collectives) for kind in self.by_kind}

    def summary(self) -> str:
        """Return ``2 all_to_all, 1 all_reduce    229,383 B sent per device``."""
        if not self.collectives:
            return "no communication"
        counts = ", ".join(f"{n} {kind}" for kind, n in self.counts.items())
        return f"{counts}    {bytes_text(self.bytes)} sent per device"

    def __str__(self) -> str:
        lines = [f"mesh {self.mesh}    {self.summary()}"]
        for c in self.collectives:
            told = f"{c}  {bytes_text(c.sent)}  {c.reason}".rstrip()
            lines += [f"  {c.value} (line {c.line})  {told}"]
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """Return the sums and the collectives as plain data."""
        return {
            "bytes": number(self.bytes),
            "by_kind": {kind: number(sent) for kind, sent in self.by_kind.items()},
            "counts": self.counts,
            "collectives": [c.as_json() for c in self.collectives],
        }


def number(value: float) -> int | float:
    """Return an int where nothing is lost."""
    return int(value) if value == int(value) else value


def bytes_text(count: float) -> str:
    """Return ``114,688 B``; a fraction is rounded to one decimal."""
    return f"{f'{count:,.1f}'.removesuffix('.0')} B"


def traffic_of(compiled: Compiled, reasons: dict[Op, str]) -> Traffic:
    """Read the collectives off the local program, in program order."""
    mesh = compiled.prepared.mesh
    names = names_of(compiled.prepared.main)
    comms = compiled.partitioned.comms
    found = []
    for op, moved in of_module(compiled.partitioned.module):
        span, hint = op.result.span or op.span, op.result.hint
        value = hint or (names[comms[op].value] if op in comms else f"({op.name})")
        place = line_of(span), where_of(span), reasons.get(op, ""), callee_of(span)
        axes = mesh.show_axes(moved.axes) if moved.axes else ""
        found.append(Collective(op.name, axes, detail_of(op, mesh), moved.sent, value, *place))
    return Traffic(str(mesh), tuple(found))


def detail_of(op: Op, mesh: Mesh) -> str:
    """Say which dims a collective works on, or which reduction it does."""
    attrs = op.attrs
    if op.name == "all_to_all":
        return f"dim {attrs['concat_dim']} -> {attrs['split_dim']}"
    if op.name == "permute":
        source, target = attrs["source"], attrs["target"]
        assert isinstance(source, Layout) and isinstance(target, Layout)
        changed = [
            f"dim {d}: {_axes(mesh, a)} -> {_axes(mesh, b)}"
            for d, (a, b) in enumerate(zip(source.dims, target.dims, strict=True))
            if a != b
        ]
        return "; ".join(changed)
    words = [str(attrs["kind"])] if "kind" in attrs else []
    words += [f"dim {attrs['dim']}"] if "dim" in attrs else []
    return " ".join(words)


def _axes(mesh: Mesh, axes: tuple[str, ...]) -> str:
    return mesh.show_axes(axes) if axes else "whole"
