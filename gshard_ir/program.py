"""A compiled program: call it on arrays, look at any stage of it, run either oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gshard_ir import data
from gshard_ir.errors import GShardError, fail
from gshard_ir.ir import Module, Op
from gshard_ir.mesh import LAUNCH_BYTES, user_axes
from gshard_ir.opdef import Array
from gshard_ir.source import SourceFile

if TYPE_CHECKING:
    from gshard_ir.backends.jax_run import Executable
    from gshard_ir.dump.layout import ValueLayout
    from gshard_ir.dump.traffic import Traffic
    from gshard_ir.explain import Explainer, Explanation
    from gshard_ir.passes.propagate import Propagation
    from gshard_ir.pipeline import Compiled

TARGETS = ("jax", "jax-auto")
STAGES = ("source", "ir", "propagated", "partitioned", "emitted")


@dataclass(frozen=True)
class Program:
    """One entry def of a source file, type-checked, for one mesh. Later stages are computed when first asked for.

    ``lowered`` is the global program; ``launch_bytes`` is what a collective's launch costs the search, in
    bytes; ``search`` off keeps propagation's own plan.
    """

    file: SourceFile = field(repr=False)
    lowered: Module = field(repr=False)
    launch_bytes: float = LAUNCH_BYTES
    search: bool = True

    def __repr__(self) -> str:
        return f"<gshard program {self.title}, mesh {self.lowered.mesh}>"

    @property
    def entry(self) -> str:
        """Name of the def."""
        return self.lowered.entry

    @property
    def title(self) -> str:
        """``moe.gshard:moe``: the file without its folder, and the def."""
        return f"{self.file.name.replace(chr(92), '/').rsplit('/', 1)[-1]}:{self.entry}"

    @property
    def mesh_sizes(self) -> dict[str, int]:
        """The user's axes and their sizes, major to minor."""
        return user_axes(self.lowered.mesh)

    @cached_property
    def compiled(self) -> Compiled:
        """Every stage of the compiler. Raises ``GShardError`` when an annotation cannot be honoured."""
        from gshard_ir.pipeline import compile_module

        return compile_module(self.lowered, launch_bytes=self.launch_bytes, search=self.search)

    @cached_property
    def propagation(self) -> Propagation:
        """Layouts by propagation alone. Raises ``GShardError`` for annotations that contradict themselves."""
        if "compiled" in self.__dict__:
            return self.compiled.propagation
        from gshard_ir.passes.propagate import propagate
        from gshard_ir.pipeline import prepare

        prepared = prepare(self.lowered)
        return propagate(prepared.main, prepared.mesh)

    @property
    def local(self) -> Module:
        """What one device runs, in the IR, with explicit collectives."""
        return self.compiled.partitioned.module

    @cached_property
    def reasons(self) -> dict[Op, str]:
        """For each collective of :attr:`local`, what it is for."""
        from gshard_ir.reasons import reasons

        return reasons(self.compiled)

    def traffic(self) -> Traffic:
        """Return the collectives in program order with bytes sent per device, and their sums."""
        return self._traffic

    @cached_property
    def _traffic(self) -> Traffic:
        from gshard_ir.dump.traffic import traffic_of

        return traffic_of(self.compiled, self.reasons)

    def dump(self, stage: str = "partitioned", *, target: str = "jax", all: bool = False, format: str = "text") -> str:
        """Return one stage as ``"text"``, ``"json"``, ``"html"`` (a page) or ``"dot"`` (a graph, of ``partitioned``).

        ``stage`` is one of :data:`STAGES`; ``target`` one of :data:`TARGETS`, for ``emitted``; ``all`` shows
        values inside called defs too. Raises ``GShardError`` for another stage, target or format.
        """
        from gshard_ir.dump.stages import report

        return report(self, stage, target=target, everything=all).render(format)

    def _repr_html_(self) -> str:
        """Show the source in a notebook: layouts and costs beside each line, collectives marked."""
        from gshard_ir.dump import html
        from gshard_ir.dump.stages import report

        try:
            return report(self, "partitioned").html()
        except GShardError as error:
            return html.fragment(f"<pre>{html.text_lines(str(error))}</pre>\n")

    def layout(self, name: str) -> list[ValueLayout]:
        """Return how every value called ``name`` (or ``name@line``) lies on the devices; ``str()`` draws it."""
        from gshard_ir.dump.layout import find
        from gshard_ir.dump.partitioned import rows_of

        return find(rows_of(self.compiled, self.traffic()), name, self.local.mesh, self.title)

    def explain(self, name: str | None = None, *, collectives: bool = False) -> Explanation:
        """Return why values lie as they do, as data; ``print`` it for the text.

        ``name`` is ``NAME`` (its last binding), ``NAME@LINE`` or ``callee.NAME``; without one, every value is
        explained, or with ``collectives`` every collective. Raises ``GShardError`` for an unknown name.
        """
        return self.explainer.all(collectives=collectives) if name is None else self.explainer.name(name)

    @cached_property
    def explainer(self) -> Explainer:
        """What :meth:`explain` asks; it keeps what it has compiled and counted."""
        from gshard_ir.explain import Explainer

        return Explainer(self.compiled, self.title, traffic=self.traffic(), search=self.search)

    @property
    def source(self) -> str:
        """The emitted Python file: :func:`jax.shard_map` around what one device runs."""
        return self.emit("jax")

    def emit(self, target: str = "jax") -> str:
        """Return the emitted Python file for one of :data:`TARGETS`."""
        if target not in self._emitted:
            self._emitted[target] = self._emit(target)
        return self._emitted[target]

    @cached_property
    def _emitted(self) -> dict[str, str]:
        return {}

    def _emit(self, target: str) -> str:
        if target == "jax":
            from gshard_ir.backends import jax_shard_map

            return jax_shard_map.emit(self.local, title=self.title, reasons=self.reasons)
        if target == "jax-auto":
            from gshard_ir.backends import jax_auto

            return jax_auto.emit(self.compiled.prepared, self.local, title=self.title)
        note = f"targets are {', '.join(TARGETS)}"
        raise fail(f"unknown target {target}", None, note, suggestion=data.nearest(target, TARGETS))

    @cached_property
    def executable(self) -> Executable:
        """The emitted file, loaded for the jax devices of this process."""
        from gshard_ir.backends.jax_run import Executable

        return Executable(self.source, self.local)

    def lower(self) -> Any:
        """Return jax's ``Lowered`` of the emitted program; ``.compile()`` has ``as_text`` and ``memory_analysis``."""
        return self.executable.lower()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run on the devices that jax has. Arguments as in :func:`gshard_ir.data.bind`; results are jax arrays.

        Raises ``GShardError`` for arguments that do not fit, and when jax has fewer devices than the mesh.
        """
        return self._run(self.executable.on_devices, args, kwargs)

    def reference(self, *args: object, **kwargs: object) -> Any:
        """Run the unsharded program in numpy: what every other way of running it must equal."""
        from gshard_ir.backends import reference_numpy

        return self._run(
            lambda *arrays: reference_numpy.run(self.lowered, [np.asarray(a) for a in arrays]), args, kwargs
        )

    def simulate(self, *args: object, **kwargs: object) -> Any:
        """Run every device's program in this process, in lock-step, in numpy."""
        from gshard_ir.backends import spmd_numpy

        return self._run(lambda *arrays: spmd_numpy.run(self.local, [np.asarray(a) for a in arrays]), args, kwargs)

    def _run(self, run: Callable[..., Sequence[Array]], args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        arrays = data.bind(self.lowered.main, args, kwargs)
        return data.join(self.lowered.main, run(*arrays))
