"""The one-device interpreter: calls, regions, traces, and contradictions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from gshard_ir.backends.reference_numpy import run, run_op, trace
from gshard_ir.builder import Builder
from gshard_ir.errors import InternalError
from gshard_ir.ir import Function, Module, Op, Region, Value
from gshard_ir.mesh import Mesh
from gshard_ir.opdef import REGISTRY, OpDef, define
from gshard_ir.types import BOOL, F32, I32, KEY, TensorType

VECTOR, SCALAR = TensorType(F32, (3,)), TensorType(F32, ())
MESH = Mesh(("a",), (2,))


def function(name: str, body: Region) -> Function:
    params = tuple(f"x{i}" for i in range(len(body.params)))
    results = tuple(f"y{i}" for i in range(len(body.results)))
    return Function(name, body, params, results, (None,) * len(params), (None,) * len(results))


def module(*functions: Function) -> Module:
    return Module(MESH, {f.name: f for f in functions}, functions[0].name)


def affine() -> Function:
    b = Builder()
    x, y = b.param(VECTOR), b.param(VECTOR)
    return function("affine", b.region(b("add", b("mul", x, y), y), b("neg", x)))


def test_a_function_computes_its_results_in_order():
    x, y = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    first, second = run(module(affine()), [x, y])
    assert first.tolist() == [8, 15, 24] and second.tolist() == [-1, -2, -3]


def test_calls_run_their_callee_each_time():
    b = Builder()
    x = b.param(VECTOR)
    once = b.add("call", (x, x), types=(VECTOR, VECTOR), callee="affine")
    twice = b.add("call", once, types=(VECTOR, VECTOR), callee="affine")
    main = function("main", b.region(twice[0]))
    (found,) = run(module(main, affine()), [np.array([1, 2, 3], np.float32)])
    # once = (x*x + x, -x); twice = once0*once1 + once1
    assert found.tolist() == [2 * -1 - 1, 6 * -2 - 2, 12 * -3 - 3]


def test_keys_are_two_words_at_run_time():
    b = Builder()
    key = b.param(TensorType(KEY, ()))
    main = function("main", b.region(b("uniform", b("fold_in", key, b.constant(3, I32)), shape=(2,))))
    (found,) = run(module(main), [np.array([0, 1], np.uint32)])
    assert found.shape == (2,) and ((found >= 0) & (found < 1)).all()


def test_a_trace_holds_every_value():
    main = affine()
    args = [np.array([1, 2, 3], np.float32)] * 2
    env = trace(module(main), args)
    assert set(env) >= {*main.params, *(v for op in main.body.ops for v in op.results)}
    assert env[main.body.ops[0].result].tolist() == [1, 4, 9]


@pytest.fixture
def either() -> Iterator[OpDef]:
    """An op with two regions, one of which runs."""
    record = define(
        OpDef(
            "either",
            ("pred", "args*"),
            infer=lambda types, attrs: types[1:2],
            reference=lambda pred, *args, regions: regions[0 if pred else 1](*args),
            family="control",
            regions=2,
        )
    )
    yield record
    del REGISTRY[record.name]


def test_regions_run_and_see_values_around_them(either):
    b = Builder()
    pred, x, outer = b.param(TensorType(BOOL, ())), b.param(VECTOR), b.param(VECTOR)

    def region(name: str) -> Region:
        inner = Builder()
        return inner.region(inner(name, inner.param(VECTOR), outer))

    (y,) = b.add(either.name, (pred, x), regions=(region("add"), region("mul")))
    main = module(function("main", b.region(y)))
    args = [np.array([1, 2, 3], np.float32), np.array([10, 10, 10], np.float32)]
    assert run(main, [np.array(True), *args])[0].tolist() == [11, 12, 13]
    assert run(main, [np.array(False), *args])[0].tolist() == [10, 20, 30]


def test_arguments_of_another_shape_or_number_are_a_bug_of_the_caller():
    main = module(affine())
    with pytest.raises(InternalError, match="takes 2 arguments, found 1"):
        run(main, [np.zeros(3, np.float32)])
    with pytest.raises(InternalError, match=r"x1 is float64\[3\], expected f32\[3\]"):
        run(main, [np.zeros(3, np.float32), np.zeros(3)])


def test_local_programs_are_refused():
    main = module(affine())
    local = Module(main.mesh, main.functions, main.entry, local=True)
    with pytest.raises(InternalError, match="simulator"):
        run(local, [np.zeros(3, np.float32)] * 2)


def test_results_are_checked_against_inferred_types():
    wrong = Op("neg", (Value(VECTOR),), (Value(SCALAR),))
    with pytest.raises(InternalError, match=r"neg computed float32\[3\], expected f32\[\]"):
        run_op(wrong, [np.zeros(3, np.float32)])


def test_nothing_warns_whatever_the_numbers():
    """Warnings are errors here: overflow, division by zero and invalid operations stay silent."""
    floats = np.array([np.nan, np.inf, -np.inf, 0, -1, 3e38], np.float32)
    ints = np.array([-(2**31), 0, -1, 2**31 - 1, 7, 1], np.int32)
    for op in REGISTRY.values():
        if op.family == "elementwise" and op.name not in ("select", "cast", "fold_in"):
            for data in (floats, ints):
                texts, _ = op.examples[0] if data is floats else op.examples[-1]
                if texts[0].startswith("f32" if data is floats else "i32"):
                    for pair in (data, data[::-1].copy()), (data, data), (np.asarray(data[0]), np.asarray(data[1])):
                        op.reference(*pair[: len(op.operands)])
