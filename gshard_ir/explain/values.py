"""Explains a value: dim by dim why it lies as it does, what was proposed and rejected, what the search decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gshard_ir.explain.chains import Chains, Hop, Trace
from gshard_ir.explain.edits import Edits
from gshard_ir.explain.model import Chain, Dim, Link, Owed, Proposal, Trial, ValueExplanation
from gshard_ir.explain.ways import Ways
from gshard_ir.explain.words import Words
from gshard_ir.ir import Value
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
        words, home = self.words, self.plan.home[value]
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
            words.layout(value, self.propagation.layouts[value]),
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
        asked = None if axes or gone else self.asked(value, dim)
        proposals = tuple(self.proposal(c) for c in self.clashes.get(value, ()) if c.dim == dim)
        status = "split" if axes else "cost" if gone else "asked" if asked else "rejected" if proposals else "nothing"
        letter = self.words.letter(value, dim)
        return Dim(dim, value.shape[dim], letter, self.words.axes(axes), status, chains, lost, asked, proposals)

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

    def asked(self, value: Value, dim: int) -> Link | None:
        """The annotation that wants a dim unsplit, on this mesh."""
        pin = self.propagation.pins.get(value)
        if pin is None or pin.open[dim] or pin.dims[dim]:
            return None
        return self.words.link(Hop("annotation", value, dim, how=pin.how, span=pin.span))

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
            clash.factor,
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
        """What stood in the way; a rival dim with its letter."""
        for dim, _ in self._rivals(clash, self.propagation.layouts[clash.value]):
            letter = self.words.letter(clash.value, dim)
            if letter and clash.reason.endswith(f"splits dim {dim}"):
                return f"{clash.reason} ({letter})"
        return clash.reason

    def blocker(self, clash: Clash) -> Link | None:
        """The annotation behind what stood in the way: the one that pins the dim, or the origin of a rival axis."""
        value, layout, pin = clash.value, self.propagation.layouts[clash.value], self.propagation.pins.get(clash.value)
        if clash.reason.startswith(f"dim {clash.dim} is pinned") and pin is not None:
            return self.words.link(Hop("annotation", value, clash.dim, how=pin.how, span=pin.span))
        for dim, axes in self._rivals(clash, layout):
            held = next((a for a in axes if a in clash.axes), axes[0])
            return self.words.link(self.chains.proposed(value, dim, held).hops[-1])
        return None

    def _rivals(self, clash: Clash, layout: Layout) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Dims that hold what the proposal needs: another dim with one of its axes, or this dim with others."""
        for dim, axes in enumerate(layout.dims):
            if dim != clash.dim and set(axes) & set(clash.axes):
                yield dim, axes
        if layout.dims[clash.dim]:
            yield clash.dim, layout.dims[clash.dim]

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
