"""Compile emitted programs, look at what XLA made of them, and time them in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gshard_ir.backends import hlo_traffic
from gshard_ir.backends.hlo_traffic import Measured
from gshard_ir.backends.jax_run import Executable
from gshard_ir.opdef import Array


@dataclass(frozen=True, eq=False)
class Step:
    """A compiled program with its arguments on the devices.

    ``moved`` is read from XLA's text; ``temp_bytes`` is what a device needs beside arguments and results;
    ``compile_seconds`` is XLA's time alone, without tracing.
    """

    executable: Executable
    compiled: Any
    placed: tuple[Any, ...]
    moved: Measured
    temp_bytes: int
    compile_seconds: float

    def results(self) -> tuple[Array, ...]:
        """Run once; return whole arrays."""
        return tuple(np.asarray(r) for r in self.executable.trimmed(self.compiled(*self.placed)))

    def seconds(self) -> float:
        """Time one run, from arguments in place to results in place."""
        import jax

        wait: Any = jax.block_until_ready
        start = time.perf_counter()
        wait(self.compiled(*self.placed))
        return time.perf_counter() - start


def warm_up() -> None:
    """Let XLA compile something trivial, so that no compile time holds what the first one sets up."""
    import jax

    jax.jit(lambda x: x + 1).lower(np.float32(0)).compile()


def prepare(executable: Executable, args: Sequence[Array]) -> Step:
    """Compile, and put whole arguments where the program takes them."""
    import jax

    lowered = executable.lower()
    start = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - start
    padded = executable.padded(args)
    placed = tuple(jax.device_put(x, s) for x, s in zip(padded, compiled.input_shardings[0], strict=True))
    memory = compiled.memory_analysis()
    temp = int(memory.temp_size_in_bytes) if memory is not None else 0
    return Step(executable, compiled, placed, hlo_traffic.measure(compiled.as_text()), temp, seconds)


def pairs(one: Step, other: Step, runs: int) -> list[tuple[float, float]]:
    """Time two steps in turn; who goes first alternates, so that neither always finds the caches of the other."""
    for step in (one, other):
        step.seconds()
    found = []
    for i in range(runs):
        if i % 2:
            second = other.seconds()
            found.append((one.seconds(), second))
        else:
            first = one.seconds()
            found.append((first, other.seconds()))
    return found
