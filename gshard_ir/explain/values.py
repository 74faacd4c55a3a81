"""Explains a value: dim by dim why it lies as it does, what was proposed and rejected, what the search decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gshard_ir.explain.chains import Chains, Hop, Trace
from gshard_ir.explain.edits import Edits
from gshard_ir.explain.model import Chain, Dim, Link, Owed, Proposal, Trial, ValueExplanation
from gshard_ir.explain.ways import Ways
from gshard_ir.explain.words import Words
from gshard_ir.ir import Value
from gshard_ir.passes.plan import TRANSPARENT
from gshard_ir.passes.propagate import Clash
from gshard_ir.pipeline import Compiled
from gshard_ir.sharding import Layout


class Values:
    """Explains values of one compiled program."""

    def __init__(self, compiled: Compiled, words: Words, ways: Ways, edits: Edits) -> None:
        self.propagation, self.plan = compiled.propagation, compiled.refined.plan
        self.words, self.ways, self.edits = words, ways, edits
        self.chains = Chains(self.propagation, self.plan)
        self.clashes: dict[Value, list[Clash]] = {}
        for clash in self.propagation.clashes:
            self.clashes.setdefault(clash.value, []).append(clash)

    def explain(self, value: Value) -> ValueExplanation:
        """Explain one value, without the collectives that move it."""
        words, home, proposed = self.words, self.plan.home[value], self.propagation.layouts[value]
        maker = self.chains.producer.get(value)
        dims = tuple(self.dim(value, d) for d in range(value.type.rank))
        pending = tuple(
            Owed(kind, chain)
            for kind, axes in home.pending
            for chain in self.grouped(axes, lambda a: self.chains.owed(value, a))
        )
        return ValueExplanation(
            words.title(value),
            words.ids[value],
            words.place(value.span),
            words.layout(value, home),
            words.local(value, home),
            words.layout(value, proposed) if proposed.dims != home.dims else "",
            dims,
            pending,
            self.ways.decision(value, maker) if maker is not None else None,
            (),
        )

    def dim(self, value: Value, dim: int) -> Dim:
        """Explain one dim."""
        axes, proposed = self.plan.home[value].dims[dim], self.propagation.layouts[value].dims[dim]
        chains = self.grouped(axes, lambda a: self.chains.held(value, dim, a))
        gone = tuple(a for a in proposed if a not in axes)
        lost = self.grouped(gone, lambda a: self.chains.proposed(value, dim, a))
        by = None if axes or gone else self.unsplit(value, dim)
        proposals = tuple(self.proposal(c) for c in self.clashes.get(value, ()) if c.dim == dim)
        asked = "asked" if by is not None and by.rule == "annotation" else ""
        other = "rejected" if proposals else "whole" if by is not None else "nothing"
        status = "split" if axes else "cost" if gone else asked or other
        letter = self.words.letter(value, dim)
        return Dim(dim, value.shape[dim], letter, self.words.axes(axes), status, chains, lost, by, proposals)

    def grouped(self, axes: tuple[str, ...], trace: Callable[[str], Trace]) -> tuple[Chain, ...]:
        """One chain per run of axes whose links are the same."""
        found: list[tuple[Trace, list[str]]] = []
        for axis in axes:
            now = trace(axis)
            if found and found[-1][0] == now:
                found[-1][1].append(axis)
            else:
                found.append((now, [axis]))
        return tuple(self.words.chain(t, tuple(names)) for t, names in found)

    def unsplit(self, value: Value, dim: int) -> Link | None:
        """The annotation that wants a dim unsplit on this mesh, or the op that cannot run split over it."""
        pin, op = self.propagation.pins.get(value), self.chains.producer.get(value)
        if pin is not None and not pin.open[dim] and not pin.dims[dim]:
            return self.words.link(Hop("annotation", value, dim, how=pin.how, span=pin.span))
        if op is None:
            return None
        rule = self.plan.rules[op]
        stuck = [f for f in rule.results[op.results.index(value)][dim] if not rule.factors[f].splittable]
        return self.words.link(Hop("whole", value, dim, op, stuck[0], span=op.span)) if stuck else None

    def proposal(self, clash: Clash) -> Proposal:
        """Say who proposed what, what stood in the way, and what it would cost."""
        source, at = clash.source
        value, dim = clash.value, clash.dim
        ends = dict.fromkeys(self.chains.proposed(source, at, a).hops[-1] for a in clash.axes)
        maker = self.chains.producer.get(value)
        taken = self.plan.home[value].dims[dim] == clash.axes
        pinned = self.propagation.pins.get(value)
        free = not taken and not (pinned is not None and clash.reason.startswith("dim"))
        cost = self.ways.towards(value, maker, dim, clash.axes) if free and maker is not None else None
        asking = self.asking(value, dim, clash.axes) if free and maker is None else None
        return Proposal(
            self.words.axes(clash.axes),
            self.words.name(source),
            at,
            direction(clash),
            "" if clash.op.name in TRANSPARENT else clash.factor,
            self.words.op(clash.op),
            self.words.place(clash.op.span),
            tuple(map(self.words.link, ends)),
            self.obstacle(clash),
            self.blocker(clash),
            taken,
            cost,
            asking,
        )

    def obstacle(self, clash: Clash) -> str:
        """What stood in the way; a rival dim with its letter, axes in the language's notation."""
        reason, held = clash.reason, self.propagation.layouts[clash.value].dims[clash.dim]
        for what in ("already split over", "pinned to"):
            if held and reason.startswith(f"dim {clash.dim} is {what}"):
                return f"dim {clash.dim} is {what} {self.words.axes(held)}"
        for dim, _ in self._rivals(clash):
            letter = self.words.letter(clash.value, dim)
            if letter and reason.endswith(f"splits dim {dim}"):
                return f"{reason} ({letter})"
        return reason

    def blocker(self, clash: Clash) -> Link | None:
        """The annotation behind what stood in the way: the one that pins the dim, or the origin of a rival axis."""
        value, pin = clash.value, self.propagation.pins.get(clash.value)
        if clash.reason.startswith(f"dim {clash.dim} is pinned") and pin is not None:
            return self.words.link(Hop("annotation", value, clash.dim, how=pin.how, span=pin.span))
        for dim, axes in self._rivals(clash):
            held = next((a for a in axes if a in clash.axes), axes[0])
            return self.words.link(self.chains.proposed(value, dim, held).hops[-1])
        return None

    def _rivals(self, clash: Clash) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Dims that hold what the proposal needs: this dim with other axes, or another dim with one of its axes."""
        layout = self.propagation.layouts[clash.value]
        if clash.reason.startswith(f"dim {clash.dim} is already split"):
            yield clash.dim, layout.dims[clash.dim]
        for dim, axes in enumerate(layout.dims):
            if dim != clash.dim and set(axes) & set(clash.axes):
                yield dim, axes

    def asking(self, value: Value, dim: int, axes: tuple[str, ...]) -> Trial | None:
        """What the program would send if an argument were laid out as proposed."""
        layout = self.plan.home[value]
        without = Layout(tuple(tuple(a for a in d if a not in axes) for d in layout.dims))
        return self.edits.param(value, without.with_dim(dim, axes))


def direction(clash: Clash) -> str:
    """Which way a proposal went through its op."""
    source, value, op = clash.source[0], clash.value, clash.op
    if source in op.operands:
        return "forward" if value in op.results else "sideways"
    return "backward"
