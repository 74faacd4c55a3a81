"""An explanation as lines for people."""

from __future__ import annotations

from collections.abc import Iterator

from gshard_ir.dump.table import Line, Segment, line
from gshard_ir.dump.traffic import bytes_text
from gshard_ir.explain.model import (
    WHY_NOT,
    Chain,
    Collective,
    Decision,
    Dim,
    Explanation,
    Link,
    Place,
    Proposal,
    Trial,
    ValueExplanation,
    Way,
)

COLUMN = 60
"""Where places stand, unless a line is longer."""
ASKED = "your annotation"


def lines_of(found: Explanation) -> Iterator[Line]:
    """Lay out everything that an explanation says."""
    yield (Segment(found.title, "head"), Segment(f"    mesh {found.mesh}"))
    for value in found.values:
        yield line()
        yield from value_lines(value)
    if found.others:
        yield line(f"  also bound: {', '.join(found.others)}", "faint")
    for collective in found.collectives:
        yield line()
        yield from collective_lines(collective, "")
    if not found.values and not found.collectives:
        yield line()
        yield line("no communication")


def value_lines(value: ValueExplanation) -> Iterator[Line]:
    """Lay out one value: its split dims, those that are not split, what is owed, decided and moved."""
    where = f" ({_where(value.place)})" if value.place.at else ""
    yield (
        Segment(value.name, "name"),
        Segment(f"{where}  {value.type}"),
        Segment(f"    {value.local} on each device", "faint"),
    )
    silent = [d for d in value.dims if d.status == "nothing"]
    for dims in _groups([d for d in value.dims if d not in silent]):
        yield from dim_lines(*dims)
    if silent:
        names = ", ".join(map(_dim_name, silent))
        yield line(f"  dim{'s' * (len(silent) > 1)} {names} not split: nothing asked")
    if not value.dims:
        yield line("  a scalar: nothing to split")
    for owed in value.pending:
        yield line(f"  a {owed.kind} over {owed.chain.axes} is still owed")
        yield from chain_lines(owed.chain, "    ")
    if value.proposed:
        yield line(f"  propagation alone: {value.proposed}")
    if value.decision is not None:
        yield from decision_lines(value.decision, "  ")
    for collective in value.collectives:
        yield from collective_lines(collective, "  ")


def _groups(dims: list[Dim]) -> list[tuple[Dim, ...]]:
    """Split dims first; those that one annotation wants unsplit together, the others one by one."""
    asked: dict[tuple[object, ...], list[Dim]] = {}
    alone = []
    for dim in dims:
        if dim.by is not None and not dim.proposals:
            asked.setdefault((dim.by.rule, dim.by.op, dim.by.factor, dim.by.place), []).append(dim)
        else:
            alone.append(dim)
    found = [*((d,) for d in alone), *map(tuple, asked.values())]
    return sorted(found, key=lambda group: group[0].status != "split")


def dim_lines(dim: Dim, *alike: Dim) -> Iterator[Line]:
    """Lay out one dim that there is something to say about; ``alike`` are others of which the same is true."""
    name = f"dim{'s' * bool(alike)} {', '.join(map(_dim_name, (dim, *alike)))}"
    if dim.axes:
        yield (Segment(f"  {name} "), Segment(f"@{dim.axes}", "comm"))
    else:
        yield line(f"  {name} not split{': nothing asked, cost decided' if dim.status == 'cost' else ''}")
    for chain in dim.chains:
        if len(dim.chains) > 1:
            yield line(f"    {chain.axes}")
        yield from chain_lines(chain, "    ")
    if dim.by is not None:
        tail = _owner(dim.by.place) if dim.by.rule == "annotation" else ""
        yield _row("    ", f"<- {_told(dim.by, first=True)}", dim.by.place, tail)
    for chain in dim.lost:
        yield line(f"    propagation alone: @{chain.axes}")
        yield from chain_lines(chain, "      ")
    for proposal in dim.proposals:
        yield from proposal_lines(proposal)


def chain_lines(chain: Chain, indent: str) -> Iterator[Line]:
    """Lay out the links of a chain, the nearest first."""
    for i, link in enumerate(chain.links):
        tail = _owner(link.place) if link.rule == "annotation" else "" if link.kept or not i else "not so in the end"
        yield _row(indent, f"<- {_told(link, first=i == 0)}", link.place, tail)
    if chain.end == "cost":
        yield line(f"{indent}<- nothing asked, cost decided")


def _told(link: Link, *, first: bool) -> str:
    """Say what a link is; the first one speaks of the value that is explained and does not name it."""
    at = "" if link.dim is None else f", dim {link.dim}"
    typed = link.op.startswith(f"{link.value}: ")
    name = "" if first or typed else f"{link.value}{at}: "
    by = f"factor {link.factor} of {link.op}" if link.factor else link.op
    told = {
        "annotation": link.op,
        "factor": by,
        "search": f"{by}, which the plan splits so",
        "copy": f"{by}: the same copy",
        "reduce": f"{by}, which is split and combined",
        "linear": f"{link.op}: the sum passes through",
        "whole": f"{by}, which must be whole",
    }
    return f"{name}{told[link.rule]}{at if typed and not first else ''}"


def proposal_lines(proposal: Proposal) -> Iterator[Line]:
    """Lay out one proposal: by whom, what stood in its way, and what it would cost."""
    first = proposal.by[0] if len(proposal.by) == 1 else None
    own = (proposal.op, proposal.place, proposal.source)
    if first is not None and (first.op, first.place, first.value) == own:
        came = f"{proposal.direction}, from {proposal.source}, dim {proposal.source_dim}"
        yield _row("    ", f"proposed @{proposal.axes} by {proposal.op}", proposal.place, came)
    else:
        through = f"factor {proposal.factor} of {proposal.op}" if proposal.factor else proposal.op
        yield _row("    ", f"proposed @{proposal.axes} {proposal.direction} through {through}", proposal.place, "")
        yield line(f"      from {proposal.source}, dim {proposal.source_dim}")
        for link in proposal.by:
            yield _row("      ", f"<- {_told(link, first=False)}", link.place, _owner(link.place))
    yield line(f"    {'stopped' if proposal.taken else 'rejected'}: {proposal.obstacle}")
    if proposal.blocked_by is not None:
        link = proposal.blocked_by
        yield _row("      ", f"<- {_told(link, first=False)}", link.place, _owner(link.place))
    if proposal.taken:
        yield line("    taken in the end: the plan has it so")
    if proposal.cost is not None:
        yield line(f"    {way_text(proposal.cost)}")
    if proposal.asking is not None:
        yield line(f"    asked for as {_trial(proposal.asking)}")


def decision_lines(decision: Decision, indent: str) -> Iterator[Line]:
    """Lay out how an op runs and what the other ways would have cost."""
    searched = decision.first != decision.chosen
    why = "decided by the search" if searched else "the weightiest of suggestions that collide"
    yield _row(indent, f"{decision.op} runs {decision.chosen}: {why}", decision.place, "")
    if searched and not any(w.propagated for w in decision.ways):
        yield line(f"{indent}  propagation alone: {decision.first}")
    for way in decision.ways:
        yield line(f"{indent}  {'propagation alone: ' if way.propagated else ''}{way_text(way)}")
    if decision.more:
        yield line(f"{indent}  {decision.more} more way{'s are' if decision.more > 1 else ' is'} no better", "faint")


def way_text(way: Way) -> str:
    """``over E@expert would send 351,232 B more in 1 collective more: it costs more``."""
    parts = [f"{way.split} would send {_more(way.bytes, bytes_text(abs(way.bytes)))}"]
    if way.collectives:
        parts.append(f"in {_count(abs(way.collectives), 'collective')} {'more' if way.collectives > 0 else 'less'}")
    if way.work:
        parts.append(f"with {_count(abs(way.work), 'local step')} {'more' if way.work > 0 else 'less'}")
    why = WHY_NOT[way.why_not] + (f", {way.detail}" if way.detail else "")
    return f"{' '.join(parts)}: {why}"


def collective_lines(found: Collective, indent: str) -> Iterator[Line]:
    """Lay out one collective."""
    words = [found.kind, found.axes]
    yield (
        Segment(f"{indent}{' '.join(w for w in words if w)}{', ' if found.detail else ''}{found.detail}", "comm"),
        Segment(f"  {found.value}", "name"),
        Segment(f" ({_where(found.place)})  " if found.place.at else "  "),
        Segment(bytes_text(found.bytes), "bytes"),
    )
    inner = f"{indent}  "
    width = max(len(found.source), len(found.target))
    yield _row(inner, f"from {found.source.ljust(width)}  {found.producer.op}", found.producer.place, "")
    yield _row(inner, f"to   {found.target.ljust(width)}  {found.consumer.op}", found.consumer.place, "")
    yield line(f"{inner}for {found.reason}")
    for because in found.because:
        yield _row(inner, f"because {because.what}: {because.text}", because.place, "")
    for decision in found.decisions:
        yield from decision_lines(decision, inner)
    if found.suggestion is not None:
        trial = found.suggestion
        old = f" in place of {trial.old}" if trial.old else ""
        yield _row(inner, f"try {trial.new}{old}", trial.place, "")
        yield line(f"{inner}  {_sums(trial)}", "good")


def _trial(trial: Trial) -> str:
    old = f" in place of {trial.old}" if trial.old else ""
    return f"{trial.new}{old}, {trial.place.at}: {_sums(trial)}"


def _sums(trial: Trial) -> str:
    after = f"{bytes_text(trial.bytes)} in {_count(trial.collectives, 'collective')}"
    return f"{after} in all, instead of {bytes_text(trial.bytes_before)} in {trial.collectives_before:,}"


def _more(count: float, text: str) -> str:
    return "as much" if not count else f"{text} {'more' if count > 0 else 'less'}"


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _dim_name(dim: Dim) -> str:
    return f"{dim.dim} ({dim.letter})" if dim.letter else f"{dim.dim}"


def _where(place: Place) -> str:
    """``line 21``, or ``std/moe.gshard:31, line 19`` inside a def that line 19 calls."""
    own = place.at.endswith(f":{place.line}") and not place.at.startswith("std/")
    return f"line {place.line}" if own else f"{place.at}, line {place.line}"


def _at(place: Place) -> str:
    own = place.at.endswith(f":{place.line}") and not place.at.startswith("std/")
    return place.at if own or not place.at else f"{place.at} (line {place.line})"


def _owner(place: Place) -> str:
    return "annotation" if place.at.startswith("std/") else ASKED


def _row(indent: str, text: str, place: Place, tail: str) -> Line:
    """Text, the place in a column of its own, and a remark."""
    at = _at(place)
    gap = "    " if at and tail else ""
    if not at and not tail:
        return line(f"{indent}{text}")
    return (Segment(f"{indent}{text}".ljust(COLUMN)), Segment("  "), Segment(at, "faint"), Segment(f"{gap}{tail}"))
