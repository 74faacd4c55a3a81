"""The meaning of a global program: run it on one device with numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gshard_ir.errors import InternalError
from gshard_ir.ir import Function, Module, Op, Region, Value
from gshard_ir.opdef import Array, opdef
from gshard_ir.types import KEY, TensorType

Env = dict[Value, Array]
RunRegion = Callable[..., tuple[Array, ...]]


def runtime_shape(type_: TensorType) -> tuple[int, ...]:
    """Return the shape of the numpy array of a value: a key is two u32 words."""
    return (*type_.shape, 2) if type_.dtype == KEY else type_.shape


def run_op(op: Op, arrays: Sequence[Array], regions: Sequence[RunRegion] = ()) -> tuple[Array, ...]:
    """Run one op on numpy arrays; an op with regions gets them as functions, ``regions=``.

    Raises :class:`InternalError` when the meaning contradicts the inferred result types.
    """
    extra = {"regions": tuple(regions)} if regions else {}
    found = opdef(op.name).reference(*arrays, **op.attrs, **extra)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(op.results):
        raise InternalError(f"{op.name} computed {len(results)} results, {len(op.results)} expected")
    for value, array in zip(op.results, results, strict=True):
        expected = (runtime_shape(value.type), value.dtype.numpy())
        if (array.shape, array.dtype) != expected:
            raise InternalError(f"{op.name} computed {array.dtype}{list(array.shape)}, expected {value.type}")
    return results


def run_region(module: Module, region: Region, args: Sequence[Array], env: Env) -> tuple[Array, ...]:
    """Run a region whose free values are in ``env``, which receives every value that is computed."""
    env.update(zip(region.params, args, strict=True))
    for op in region.ops:
        arrays = [env[v] for v in op.operands]
        if op.name == "call":
            results = _call(module, module.functions[str(op.attrs["callee"])], arrays, env)
        else:
            inner = [_runner(module, r, env) for r in op.regions]
            results = run_op(op, arrays, inner)
        env.update(zip(op.results, results, strict=True))
    return tuple(env[v] for v in region.results)


def _call(module: Module, callee: Function, arrays: Sequence[Array], env: Env) -> tuple[Array, ...]:
    return run_region(module, callee.body, arrays, env)


def _runner(module: Module, region: Region, env: Env) -> RunRegion:
    return lambda *args: run_region(module, region, args, env)


def trace(module: Module, args: Sequence[Array]) -> Env:
    """Run a global module and return every value: the last one for a value that is computed several times."""
    if module.local:
        raise InternalError("a local program runs in the simulator")
    env: Env = {}
    params = module.main.params
    if len(args) != len(params):
        raise InternalError(f"{module.entry} takes {len(params)} arguments, found {len(args)}")
    for param, name, arg in zip(params, module.main.param_names, args, strict=True):
        if (arg.shape, arg.dtype) != (runtime_shape(param.type), param.dtype.numpy()):
            raise InternalError(f"argument {name} is {arg.dtype}{list(arg.shape)}, expected {param.type}")
    run_region(module, module.main.body, [np.asarray(a) for a in args], env)
    return env


def run(module: Module, args: Sequence[Array]) -> tuple[Array, ...]:
    """Run the entry of a global module and return its results."""
    env = trace(module, args)
    return tuple(env[v] for v in module.main.results)
