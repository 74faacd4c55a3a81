"""Load and run an emitted file inside this process, on real or fake devices."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from gshard_ir.errors import GShardError, fail
from gshard_ir.ir import Module
from gshard_ir.opdef import Array
from gshard_ir.types import KEY, ShardedType

FAKE_DEVICES = 8
"""At least so many fake CPU devices are made, so that a later program on another mesh still fits."""


def ensure_devices(count: int) -> list[Any]:
    """Return ``count`` jax devices: accelerators if there are enough, else (fake) CPU devices.

    Fake devices can only be made before jax starts; raises :class:`GShardError` when that is too late.
    """
    jax = _jax()
    with contextlib.suppress(RuntimeError):  # jax has started: what it has is what there is
        jax.config.update("jax_num_cpu_devices", max(count, FAKE_DEVICES))
    for found in (jax.devices(), jax.devices("cpu")):
        if len(found) >= count:
            return list(found[:count])
    raise fail(
        f"the mesh needs {count} devices, jax has started with {len(jax.devices('cpu'))}",
        suggestion=f'jax.config.update("jax_num_cpu_devices", {count}) before the first use of jax',
    )


def _jax() -> Any:
    try:
        import jax
    except ImportError as missing:
        raise fail("running a program needs jax", suggestion="pip install 'gshard_ir[jax]'") from missing
    return jax


def load(source: str, name: str = "emitted") -> ModuleType:
    """Execute emitted source as a module of its own; nothing is written to disk.

    ``source`` must be the text of an emitter: it is executed as it stands.
    """
    module = ModuleType(name)
    filename = f"<gshard {name}>"
    module.__file__ = filename
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), module.__dict__)
    return module


@dataclass(frozen=True)
class Executable:
    """An emitted program on devices: call it with whole arrays, or lower it to look at what XLA makes of it.

    ``local`` is the module that the source was emitted from; it knows the whole shapes of the results.
    """

    source: str
    local: Module

    @cached_property
    def module(self) -> ModuleType:
        _jax()
        return load(self.source, self.local.main.name)

    @cached_property
    def mesh(self) -> Any:
        """The user's mesh on devices of this process."""
        sizes: dict[str, int] = self.module.MESH
        devices = ensure_devices(self.local.mesh.devices)
        return _jax().make_mesh(tuple(sizes.values()), tuple(sizes), devices=devices)

    @cached_property
    def step(self) -> Any:
        """The jitted function on padded global arrays."""
        return self.module.build(self.mesh)

    def lower(self) -> Any:
        """Return jax's own lowered object; ``.compile()`` gives ``as_text()`` and ``memory_analysis()``."""
        jax, step = _jax(), self.step
        types = [jax.ShapeDtypeStruct(s, jax.numpy.dtype(d)) for s, d, _ in self.module.INPUTS.values()]
        return step.lower(*types)

    def on_devices(self, *args: Any) -> tuple[Any, ...]:
        """Run on whole (unpadded) arrays, numpy's or jax's; return whole jax arrays, one per result."""
        return self.trimmed(self.step(*self.padded(args)))

    def padded(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Return whole arrays as :attr:`step` takes them."""
        ports = self.module.INPUTS.values()
        return tuple(_padded(a, shape) for a, (shape, *_) in zip(args, ports, strict=True))

    def trimmed(self, found: Any) -> tuple[Any, ...]:
        """Return what :attr:`step` gave as whole arrays, one per result."""
        results = found if isinstance(found, tuple) else (found,)
        return tuple(_trimmed(r, whole) for r, whole in zip(results, self._wholes(), strict=True))

    def __call__(self, *args: Array) -> tuple[Array, ...]:
        """Run as :meth:`on_devices` does and return numpy arrays."""
        return tuple(np.asarray(r) for r in self.on_devices(*args))

    def _wholes(self) -> Sequence[tuple[int, ...]]:
        shapes = []
        for value in self.local.main.results:
            type_ = value.type
            whole = type_.whole if isinstance(type_, ShardedType) else type_.shape
            shapes.append((*whole, 2) if type_.dtype == KEY else whole)
        return shapes


def _padded(array: Array, shape: tuple[int, ...]) -> Array:
    if tuple(array.shape) == tuple(shape):
        return array
    if array.ndim != len(shape) or any(m > n for m, n in zip(array.shape, shape, strict=True)):
        raise fail(f"an argument has shape {list(array.shape)}, the program takes {list(shape)} (padding included)")
    return np.pad(np.asarray(array), [(0, n - m) for m, n in zip(array.shape, shape, strict=True)])


def _trimmed(array: Any, whole: tuple[int, ...]) -> Any:
    return array if tuple(array.shape) == whole else array[tuple(slice(n) for n in whole)]


def run(source: str, local: Module, args: Sequence[Array]) -> tuple[Array, ...]:
    """Run emitted source once on whole numpy arrays."""
    return Executable(source, local)(*args)


__all__ = ["FAKE_DEVICES", "Executable", "GShardError", "ensure_devices", "load", "run"]
