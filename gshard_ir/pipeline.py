"""The passes in order: from a lowered module to what one device runs, with everything learnt on the way."""

from __future__ import annotations

from dataclasses import dataclass

from gshard_ir.ir import Module
from gshard_ir.mesh import LAUNCH_BYTES
from gshard_ir.passes.axes import Axes
from gshard_ir.passes.cleanup import Cleanup
from gshard_ir.passes.inline import Inline
from gshard_ir.passes.partition import Partitioned, partition
from gshard_ir.passes.per_use import PerUse
from gshard_ir.passes.pins import PinResults
from gshard_ir.passes.propagate import Propagation, propagate
from gshard_ir.passes.refine import Refined, refine
from gshard_ir.pipeline_base import Pass
from gshard_ir.verify import verify

PREPARE: tuple[Pass, ...] = (Inline(), Axes(), PinResults(), Cleanup(), PerUse())


@dataclass(frozen=True)
class Compiled:
    """Every stage of one compilation.

    ``lowered`` is the front end's module, ``prepared`` the inlined global program that layouts are
    decided for, ``partitioned`` the program of one device with the reason for each collective.
    """

    lowered: Module
    prepared: Module
    propagation: Propagation
    refined: Refined
    partitioned: Partitioned


def prepare(module: Module) -> Module:
    """Run the passes that layouts need: one function, refined mesh, one constant per use."""
    verify(module)
    for step in PREPARE:
        module = step.run(module)
        verify(module)
    return module


def compile_module(module: Module, *, launch_bytes: float = LAUNCH_BYTES, search: bool = True) -> Compiled:
    """Take a global module to a local one. With ``search`` off, propagation's own plan is used as it is.

    Raises ``GShardError`` when an annotation cannot be honoured.
    """
    prepared = prepare(module)
    propagation = propagate(prepared.main, prepared.mesh)
    refined = refine(propagation, launch_bytes=launch_bytes, search=search)
    partitioned = partition(prepared, refined.plan)
    verify(partitioned.module)
    return Compiled(module, prepared, propagation, refined, partitioned)
