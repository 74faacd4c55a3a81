"""What an explanation is: plain frozen records that every renderer reads, and their JSON.

The JSON document, format ``gshard-explain-1``, has the fields of :class:`Explanation` and, inside, of the
other records here, under the same names. Bytes are sent per device. ``place.at`` is the innermost place,
``place.line`` the line of the entry's file that led there (0 where none is known). ``value_id`` and ``op_id``
number the values (parameters first) and the ops of the inlined program, in order.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass

FORMAT = "gshard-explain-1"


@dataclass(frozen=True)
class Place:
    """``moe.gshard:21``, and the line of the entry's own file."""

    at: str
    line: int


@dataclass(frozen=True)
class Link:
    """One step of a chain: why ``value`` has the axes on ``dim`` (None: as a pending reduction).

    ``rule`` says what ``op`` is and whether a next link is what it goes back to:

    - ``annotation``: the text of what was asked; the last link
    - ``factor``: propagation carried the axes over ``factor`` of the op, from the next link's value
    - ``search``: the search runs the op split over ``factor``; the next link's value, if any, lies so as well
    - ``copy``: the op changes nothing; the next link's value is the same copy
    - ``reduce``: the op was split over ``factor``, which it reduces or looks up; the next link's value was split so
    - ``linear``: a pending sum of the next link's value passes through the op, which is linear in it
    - ``whole``: the op cannot run split over ``factor``; the only link

    ``kept`` is False where the search has changed the value since, so that the plan does not hold it like this.
    """

    rule: str
    value: str
    value_id: int
    dim: int | None
    factor: str
    op: str
    op_id: int | None
    place: Place
    kept: bool = True


@dataclass(frozen=True)
class Chain:
    """Links from a value back to an annotation (``end`` is ``annotation``) or to the search (``cost``).

    ``axes`` is the text, ``names`` the axes of the refined mesh, major to minor.
    """

    axes: str
    names: tuple[str, ...]
    links: tuple[Link, ...]
    end: str


@dataclass(frozen=True)
class Way:
    """Another way to run an op, compared with the plan by what would be emitted.

    ``bytes`` and ``collectives`` are what the whole program would send and launch more, ``work`` the local steps
    that this op would do more; ``why_not`` is one of :data:`WHY_NOT` and ``detail`` gives the numbers behind it.
    ``propagated``: it is what propagation alone would do.
    """

    split: str
    bytes: float
    collectives: int
    work: int
    why_not: str
    detail: str
    propagated: bool


WHY_NOT = {
    "price": "it costs more",
    "even": "it costs no less",
    "work": "more local work",
    "memory": "more memory",
    "uneven": "an uneven split that no layout suggests",
    "off": "the search is off",
}


@dataclass(frozen=True)
class Decision:
    """How an op runs that does not leave its result as propagation laid it out.

    ``chosen`` and ``first`` are ways as text, ``first`` that of propagation's own plan; where they are the same,
    suggestions collided and the one with most bytes behind it came first. ``ways`` holds ``first`` and the cheapest
    others; ``more`` counts the rest.
    """

    op: str
    place: Place
    chosen: str
    first: str
    ways: tuple[Way, ...]
    more: int


@dataclass(frozen=True)
class Proposal:
    """Axes that propagation offered to a dim and that something stood in the way of.

    They came from dim ``source_dim`` of ``source``, in ``direction`` through ``factor`` of ``op``; ``by`` are the
    annotations where they started. ``obstacle`` is what stood in the way, and ``blocked_by`` the annotation behind it.
    ``taken``: the plan has the axes there in the end. ``cost`` is the cheapest way to run the op that makes the value
    as proposed; ``asking``, for an argument, is what pinning it would send.
    """

    axes: str
    source: str
    source_dim: int
    direction: str
    factor: str
    op: str
    place: Place
    by: tuple[Link, ...]
    obstacle: str
    blocked_by: Link | None
    taken: bool
    cost: Way | None = None
    asking: Trial | None = None


@dataclass(frozen=True)
class Trial:
    """A changed annotation, compiled and counted: bytes and collectives of the whole program before and after.

    ``old`` is empty where the annotation is new.
    """

    old: str
    new: str
    place: Place
    bytes: float
    bytes_before: float
    collectives: int
    collectives_before: int


@dataclass(frozen=True)
class Dim:
    """One dim of a value.

    ``status`` is ``split``; or, not split: ``asked`` (by the annotation ``by``), ``cost`` (the search undid ``lost``),
    ``rejected`` (see ``proposals``), ``whole`` (the op in ``by`` cannot run split over it) or ``nothing`` (asked).
    ``chains`` explain the axes that it has, ``lost`` those that propagation alone would have given it.
    """

    dim: int
    size: int
    letter: str
    axes: str
    status: str
    chains: tuple[Chain, ...]
    lost: tuple[Chain, ...]
    by: Link | None
    proposals: tuple[Proposal, ...]


@dataclass(frozen=True)
class Owed:
    """A reduction of ``kind`` that is still owed on a value, and why."""

    kind: str
    chain: Chain


@dataclass(frozen=True)
class Because:
    """A line that causes a collective: the text there and what it did."""

    what: str
    text: str
    place: Place


@dataclass(frozen=True)
class Actor:
    """An op that makes or wants a copy of a value. ``op`` is ``result`` for what the program returns."""

    op: str
    place: Place


@dataclass(frozen=True)
class Collective:
    """One collective as it runs: ``bytes`` that each device sends, from layout ``source`` to ``target``.

    ``suggestion`` is one changed annotation with which the program sends less, found by compiling it.
    """

    kind: str
    axes: str
    detail: str
    bytes: float
    value: str
    value_id: int
    place: Place
    source: str
    target: str
    producer: Actor
    consumer: Actor
    reason: str
    because: tuple[Because, ...]
    decisions: tuple[Decision, ...]
    suggestion: Trial | None


@dataclass(frozen=True)
class ValueExplanation:
    """A value: how it lies in the end and why, dim by dim.

    ``type`` is the global type with the layout, ``local`` the shape on one device; ``proposed`` is propagation's
    own layout where that splits other dims, else empty. ``pending`` holds the reductions that are still owed.
    """

    name: str
    value_id: int
    place: Place
    type: str
    local: str
    proposed: str
    dims: tuple[Dim, ...]
    pending: tuple[Owed, ...]
    decision: Decision | None
    collectives: tuple[Collective, ...]


@dataclass(frozen=True)
class Explanation:
    """Explanations of some values and collectives of a program. ``others`` are further bindings of the name."""

    title: str
    mesh: str
    values: tuple[ValueExplanation, ...]
    collectives: tuple[Collective, ...]
    others: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return everything as plain data."""
        found = plain(self)
        assert isinstance(found, dict)
        return {"format": FORMAT, **found}

    def json(self) -> str:
        """Return indented JSON, ending in a newline; the same program gives the same bytes."""
        return json.dumps(self.as_json(), indent=1, ensure_ascii=False) + "\n"

    def __str__(self) -> str:
        from gshard_ir.dump.table import plain as text
        from gshard_ir.explain.text import lines_of

        return text(lines_of(self))


def plain(item: object) -> object:
    """Turn records and tuples into dicts and lists; a float that is whole becomes an int."""
    if is_dataclass(item):
        return {f.name: plain(getattr(item, f.name)) for f in fields(item)}
    if isinstance(item, tuple):
        return [plain(i) for i in item]
    return int(item) if isinstance(item, float) and item == int(item) else item
