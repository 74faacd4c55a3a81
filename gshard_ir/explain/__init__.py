"""Why a value lies as it does and why a collective is there: one model, rendered as text or JSON."""

from __future__ import annotations

from dataclasses import replace

from gshard_ir.dump.traffic import Traffic, traffic_of
from gshard_ir.explain.collectives import Collectives
from gshard_ir.explain.edits import Edits
from gshard_ir.explain.model import Collective, Explanation, ValueExplanation
from gshard_ir.explain.names import Names
from gshard_ir.explain.values import Values
from gshard_ir.explain.ways import Ways
from gshard_ir.explain.words import Words
from gshard_ir.ir import Value
from gshard_ir.pipeline import Compiled
from gshard_ir.reasons import reasons


class Explainer:
    """Explains one compiled program.

    ``suggest``: for each collective, try changed annotations by compiling them. ``search`` is what the program
    was compiled with.
    """

    def __init__(
        self,
        compiled: Compiled,
        title: str = "",
        *,
        traffic: Traffic | None = None,
        search: bool = True,
        suggest: bool = True,
    ) -> None:
        self.words = Words(compiled)
        self.title, self.mesh = title, str(compiled.prepared.mesh)
        self.names = Names(title, compiled.lowered, compiled.prepared.main)
        edits = Edits(compiled, self.words, search=search)
        self.values = Values(compiled, self.words, Ways(compiled, self.words), edits)
        traffic = traffic or traffic_of(compiled, reasons(compiled))
        self.collectives = Collectives(compiled, traffic, self.values, edits, suggest=suggest)

    def name(self, name: str) -> Explanation:
        """Explain the last binding of ``NAME``, or ``NAME@LINE``, ``callee.NAME``; raises ``GShardError``."""
        found = self.names.find(name)
        return Explanation(self.title, self.mesh, tuple(map(self.value, found.values)), (), found.others)

    def all(self, *, collectives: bool) -> Explanation:
        """Explain every value, each with its collectives; or every collective."""
        if collectives:
            return Explanation(self.title, self.mesh, (), self.collectives.all())
        return Explanation(self.title, self.mesh, tuple(map(self.value, self.words.values)), ())

    def value(self, value: Value) -> ValueExplanation:
        """Explain one value and the collectives that move it."""
        return replace(self.values.explain(value), collectives=self.collectives.of(value))


__all__ = ["Collective", "Explainer", "Explanation", "ValueExplanation"]
