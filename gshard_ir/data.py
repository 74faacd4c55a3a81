"""Arguments and results at the boundary: from structs and arrays to one array per parameter, and back.

A parameter of a def is a tensor or a struct; the IR knows the leaves alone, by dotted names (``p.wi``).
Struct arguments are mappings, dataclasses or named tuples; a key is an int seed, two u32 words or a
``jax.random.key``. Nothing is converted silently: a wrong shape or element type is an error with both.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.ir import Function, Value
from gshard_ir.opdef import Array
from gshard_ir.types import KEY, TensorType

Tree: TypeAlias = int | dict[str, "Tree"]
"""Names below a parameter: the index of a leaf, or the fields of a struct."""


def tree_of(names: Sequence[str]) -> dict[str, Tree]:
    """Nest dotted names: ``["x", "p.wi"]`` is ``{"x": 0, "p": {"wi": 1}}``."""
    root: dict[str, Tree] = {}
    for index, name in enumerate(names):
        at = root
        *path, last = name.split(".")
        for word in path:
            inner = at.setdefault(word, {})
            assert isinstance(inner, dict), f"{name} is below a leaf"
            at = inner
        at[last] = index
    return root


def bind(function: Function, args: Sequence[object], kwargs: Mapping[str, object]) -> tuple[Array, ...]:
    """Return one array per parameter of ``function`` (a global one), in order, of exactly its type.

    ``kwargs`` may use dotted names for single fields. Raises ``GShardError`` naming every argument that is
    missing, unknown, or of another shape or element type.
    """
    binder = _Binder(function)
    binder.positional(args)
    for name, value in kwargs.items():
        binder.named(name, value)
    return binder.finish()


class _Binder:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.tree = tree_of(function.param_names)
        self.found: dict[int, Array] = {}
        self.given: set[int] = set()
        self.errors: list[Diagnostic] = []

    def positional(self, args: Sequence[object]) -> None:
        if len(args) > len(self.tree):
            names = ", ".join(self.tree)
            self.error(f"{self.function.name} takes {len(self.tree)} arguments ({names}), found {len(args)}")
        for (name, tree), value in zip(self.tree.items(), args, strict=False):
            self.place(name, tree, value)

    def named(self, name: str, value: object) -> None:
        at: Tree = self.tree
        for word in name.split("."):
            if not isinstance(at, dict) or word not in at:
                choices = list(dict.fromkeys([*self.tree, *self.function.param_names]))
                self.error(
                    f"{self.function.name} has no argument {name}",
                    f"it takes {', '.join(self.function.param_names) or 'none'}",
                    suggestion=nearest(name, choices),
                )
                return
            at = at[word]
        self.place(name, at, value)

    def place(self, name: str, tree: Tree, value: object) -> None:
        """Match a value with a leaf or, field by field, with a struct."""
        if isinstance(tree, int):
            self.leaf(name, tree, value)
            return
        fields = fields_of(value)
        if fields is None:
            shown = ", ".join(tree)
            self.given.update(_leaves(tree))
            self.error(
                f"{name} is a struct with fields {shown}, found {describe(value)}",
                suggestion="a dict or a .npz of them",
            )
            return
        for field in fields:
            if field not in tree:
                note = f"its fields are {', '.join(tree)}"
                self.error(f"{name} has no field {field}", note, suggestion=nearest(field, list(tree)))
        for field, inner in tree.items():
            if field in fields:
                self.place(f"{name}.{field}", inner, fields[field])

    def leaf(self, name: str, index: int, value: object) -> None:
        if index in self.given:
            self.error(f"{name} is given twice")
            return
        self.given.add(index)
        try:
            self.found[index] = as_array(name, self.function.params[index].type, value)
        except GShardError as error:
            place = _declared(self.function.params[index])
            self.errors += [dataclasses.replace(d, notes=(*d.notes, *place)) for d in error.diagnostics]

    def error(self, message: str, *notes: str, suggestion: str | None = None) -> None:
        self.errors.append(Diagnostic(message, None, notes, suggestion))

    def finish(self) -> tuple[Array, ...]:
        missing = [
            f"{name}: {value.type}"
            for i, (name, value) in enumerate(zip(self.function.param_names, self.function.params, strict=True))
            if i not in self.given
        ]
        if missing:
            self.error(
                f"{self.function.name} is missing {'an argument' if len(missing) == 1 else 'arguments'}", *missing
            )
        if self.errors:
            raise GShardError(self.errors)
        return tuple(self.found[i] for i in range(len(self.function.params)))


def _leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [i for inner in tree.values() for i in _leaves(inner)]


def _declared(value: Value) -> tuple[str, ...]:
    return (f"declared at {value.span}",) if value.span else ()


def fields_of(value: object) -> dict[str, object] | None:
    """Return the fields of a mapping, dataclass or named tuple, None for anything else."""
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return None


def nearest(name: str, choices: Sequence[str]) -> str | None:
    """Return the most similar of ``choices``, if one is similar at all."""
    found = difflib.get_close_matches(name, choices, n=1)
    return found[0] if found else None


def describe(value: object) -> str:
    """Say what a value is: ``f64[3,4]`` for an array, else its Python type."""
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if dtype is None or shape is None:
        if value is None:
            return "None"
        name = type(value).__name__
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return f"{_dtype_text(dtype)}[{','.join(map(str, shape))}]"


def _dtype_text(dtype: object) -> str:
    from gshard_ir.types import dtype_of

    try:
        return dtype_of(np.empty(0, dtype)).name
    except (KeyError, TypeError):
        return str(dtype)


def as_array(name: str, type_: TensorType, value: object) -> Array:
    """Return ``value`` as an array of ``type_``: numpy's or, when it already fits, jax's own.

    Python numbers, and lists of them, take the element type asked for when that loses nothing.
    Raises ``GShardError`` with both types.
    """
    if type_.dtype == KEY and not type_.shape:
        return _as_key(name, value)
    expected, shape = type_.dtype.numpy(), type_.shape
    if type_.dtype == KEY:
        shape = (*shape, 2)
    if getattr(value, "dtype", None) is None:
        value = _from_python(name, type_, value)
    found: Any = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else value
    if isinstance(found, np.ndarray) and not found.dtype.isnative:
        found = found.astype(found.dtype.newbyteorder("="))
    if found.dtype == np.dtype("V2") and type_.dtype.name == "bf16":
        found = found.view(expected)  # how numpy reads back a saved bf16 array
    if tuple(found.shape) != tuple(shape):
        note = _shape_note(tuple(found.shape), tuple(shape))
        raise GShardError(Diagnostic(f"{name} is {describe(found)}, expected {type_}", None, note))
    if found.dtype != expected:
        raise GShardError(
            Diagnostic(f"{name} is {describe(found)}, expected {type_}", None, (), f'{name}.astype("{expected.name}")')
        )
    array: Array = found
    return array


def _shape_note(found: tuple[int, ...], expected: tuple[int, ...]) -> tuple[str, ...]:
    if len(found) != len(expected):
        return (f"it has {len(found)} {'dim' if len(found) == 1 else 'dims'}, expected {len(expected)}",)
    wrong = [f"dim {d} is {n}, expected {m}" for d, (n, m) in enumerate(zip(found, expected, strict=True)) if n != m]
    return (", ".join(wrong),)


def _from_python(name: str, type_: TensorType, value: object) -> Array:
    """Convert Python numbers; anything that is not numbers, or does not survive the conversion, is an error."""
    mistake = GShardError(Diagnostic(f"{name} is {describe(value)}, expected {type_}"))
    if not isinstance(value, bool | int | float | list | tuple):
        raise mistake
    try:
        raw = np.asarray(value)
        if raw.size == 0:
            raw = raw.astype(type_.dtype.numpy())
        kinds = {"f": "iuf", "i": "iu", "u": "iu", "b": "b"}[type_.dtype.kind]
        if raw.dtype.kind not in kinds:
            raise mistake
        with np.errstate(all="ignore"):
            cast = raw.astype(type_.dtype.numpy())
    except (ValueError, OverflowError, TypeError):
        raise mistake from None
    if type_.dtype.is_integer and not np.array_equal(cast.astype(object), raw.astype(object)):
        raise GShardError(Diagnostic(f"{name} has values that do not fit {type_.dtype}", None, (f"found {value}",)))
    return cast


def _as_key(name: str, value: object) -> Array:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if not 0 <= int(value) < 2**64:
            raise GShardError(Diagnostic(f"{name} is a key; a seed is in [0, 2**64), found {value}"))
        return key_of(int(value))
    found: Any = value
    if str(getattr(value, "dtype", "")).startswith("key<"):
        import sys

        found = sys.modules["jax"].random.key_data(value)  # a typed key exists only where jax is loaded
    if getattr(found, "dtype", None) != np.uint32 or tuple(found.shape) != (2,):
        message = f"{name} is {describe(value)}, expected a key"
        raise GShardError(Diagnostic(message, None, ("a key is an int seed, u32[2], or a jax.random.key",)))
    array: Array = found
    return array


def key_of(seed: int) -> Array:
    """Return the two words of a key, as ``jax.random.key`` makes them from a seed."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF], dtype=np.uint32)


def join(function: Function, arrays: Sequence[Array]) -> object:
    """Return results as the def does: one value bare, several as a tuple, structs as nested dicts."""
    tree = tree_of(function.result_names)
    values = [_nest(inner, arrays) for inner in tree.values()]
    return values[0] if len(values) == 1 else tuple(values)


def _nest(tree: Tree, arrays: Sequence[Array]) -> object:
    if isinstance(tree, int):
        return arrays[tree]
    found = {name: _nest(inner, arrays) for name, inner in tree.items()}
    return tuple(found.values()) if list(found) == [str(i) for i in range(len(found))] and found else found


def seeded(function: Function, seed: int) -> dict[str, Array]:
    """Return random arguments by dotted name; each depends on the seed, its own name and its type alone.

    Floats are normal with standard deviation 1, fields of structs (they are parameters) 1/sqrt(fan-in) where they
    have two dims or more; integers are in [0, 8), keys are made from the seed.
    """
    return {
        name: _random(name, value.type, seed) for name, value in zip(function.param_names, function.params, strict=True)
    }


def _random(name: str, type_: TensorType, seed: int) -> Array:
    rng = np.random.default_rng([seed, *name.encode()])
    dtype = type_.dtype
    if dtype == KEY:
        return key_of(seed) if not type_.shape else rng.integers(0, 2**32, (*type_.shape, 2), dtype=np.uint32)
    if dtype.is_float:
        scale = type_.shape[-2] ** -0.5 if "." in name and type_.rank >= 2 and type_.shape[-2] else 1.0
        return np.asarray(rng.standard_normal(type_.shape) * scale).astype(dtype.numpy())
    high = 2 if dtype.kind == "b" else 8
    return np.asarray(rng.integers(0, high, type_.shape)).astype(dtype.numpy())
