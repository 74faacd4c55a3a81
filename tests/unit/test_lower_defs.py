"""Defs, structs, consts, meshes: what functions a program becomes, their names, layouts and spans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gshard_ir.backends import reference_numpy
from gshard_ir.errors import GShardError
from gshard_ir.frontend.lower import load, lower
from gshard_ir.frontend.parser import parse
from gshard_ir.ir import Module
from gshard_ir.mesh import AxisRef
from gshard_ir.sharding import DimSharding
from gshard_ir.source import SourceFile
from gshard_ir.text import print_module
from gshard_ir.types import F32, TensorType
from gshard_ir.verify import verify


def program(text: str, **options: Any) -> Module:
    module = lower(parse(SourceFile("test.gshard", text)), **options)
    verify(module)
    return module


def run(text: str, *args: Any, **options: Any) -> tuple[Any, ...]:
    return reference_numpy.run(program(text, **options), [np.asarray(a, np.float32) for a in args])


def errors(text: str, **options: Any) -> str:
    with pytest.raises(GShardError) as caught:
        program(text, **options)
    return str(caught.value)


def callees(module: Module, name: str) -> list[Any]:
    return [op.attrs["callee"] for op in module.functions[name].body.walk() if op.name == "call"]


# ---- instances


def test_one_function_per_types_and_static_arguments() -> None:
    module = program("""
def scale(x, by: float, flag=True):
    return x * by if flag else x
def main(a: f32[3], b: f32[4]):
    p = scale(a, 2.0)
    q = scale(a + 1, 2)
    r = scale(b, 2.0)
    s = scale(b, 3.0, flag=False)
    return p, q, r, s
""")
    assert list(module.functions) == ["main", "scale", "scale_2", "scale_3"]
    assert callees(module, "main") == ["scale", "scale", "scale_2", "scale_3"]
    assert module.functions["scale"].param_names == ("x",)


def test_only_reached_functions_are_kept_and_std_is_under_its_own_names() -> None:
    module = program("def unused(x: f32[2]) -> f32[2]:\n    return x\ndef main(x: f32[2]):\n    return softmax(x)\n")
    assert list(module.functions) == ["main", "softmax"]
    op = module.functions["softmax"].body.ops[0]
    assert op.span is not None
    assert (op.span.file.name, op.span.callee, op.span.caller) == ("std/nn.gshard", "softmax", None)


def test_own_def_hides_an_operation() -> None:
    (result,) = run("def relu(x):\n    return x + 1\ndef main(x: f32[2]):\n    return relu(x)\n", [-1, 1])
    np.testing.assert_array_equal(result, [0, 2])


def test_generic_sizes_bind_from_arguments() -> None:
    module = program("""
def normalise[N](x: f32[..., N], g: f32[N]) -> f32[..., N]:
    return x / N * g
def main(a: f32[2,3,4], b: f32[5], g: f32[4], h: f32[5]):
    return normalise(a, g), normalise(b, h)
""")
    shapes = [f.results[0].shape for name, f in module.functions.items() if name != "main"]
    assert shapes == [(2, 3, 4), (5,)]


def test_generic_sizes_in_arithmetic_and_stacks() -> None:
    module = program("""
struct P:
    w: f32[2]
def f[N, M](x: f32[N, 2 * M], y: f32[M], p: P[N]) -> f32[N, M]:
    return x[:, :M] * y + sum(p.w)
def main(x: f32[3,8], y: f32[4], p: P[3]):
    return f(x, y, p)
""")
    assert module.main.results[0].shape == (3, 4)
    assert module.main.param_names == ("x", "y", "p.w")


def test_literals_become_scalar_tensors_where_a_tensor_is_asked() -> None:
    (result,) = run("def f(x: f32[2], t: f32[]):\n    return x * t\ndef main(x: f32[2]):\n    return f(x, 3)\n", [1, 2])
    np.testing.assert_array_equal(result, [3, 6])


def test_defaults_keywords_tuples_and_none() -> None:
    text = """
def f(x, y=None, scale: float = 2.0, bias: f32[2] = None):
    z = x * scale
    if y != None:
        z = z + y
    if bias != None:
        z = z + bias
    return z, (x, scale)
def main(x: f32[2], b: f32[2]):
    a, _ = f(x)
    c, (same, factor) = f(x, bias=b, scale=3)
    d, parts = f(y=b, x=x)
    return a, c * factor, d + parts[0], same
"""
    results = run(text, [1, 2], [10, 20])
    np.testing.assert_array_equal(np.array(results), [[2, 4], [39, 78], [13, 26], [1, 2]])


def test_compile_time_defs_leave_no_call() -> None:
    module = program("""
const N = double(4)
def double(n: int):
    return n * 2
def rank(x):
    return x.ndim
def main(x: f32[N]):
    return x * rank(x) + double(N)
""")
    assert list(module.functions) == ["main"]
    assert module.main.params[0].shape == (8,)


def test_static_if_unroll_and_rebinding() -> None:
    text = """
const N = 3
def main(x: f32[2]):
    y = x
    for i in unroll(N):
        if i == 1:
            y = y * 10
        elif i > 1:
            y += i
        else:
            y = y + 1
    for a, b in unroll([(1, 2), (3, 4)]):
        y = y + a * b
    return y
"""
    (result,) = run(text, [0, 1])
    np.testing.assert_array_equal(result, [10 + 2 + 14, 20 + 2 + 14])


def test_return_inside_a_static_branch() -> None:
    text = """
def f(x, kind: str):
    if kind == "double":
        return x * 2
    return x
def main(x: f32[1]):
    return f(x, "double") + f(x, "same")
"""
    assert run(text, [3])[0] == 9


# ---- structs


STRUCTS = """
mesh(a=2, b=2)
struct Inner:
    w: f32[4@b, 6]
    c: f32[]
struct Layer:
    inner: Inner
    g: f32[6@a]
struct Model:
    layers: Layer[3]
    pair: (f32[2], i32[2])
"""


def test_struct_parameters_are_flattened_in_order() -> None:
    module = program(STRUCTS + "def main(m: Model, x: f32[2]):\n    return m.layers[1], m.pair[1]\n")
    names = ("m.layers.inner.w", "m.layers.inner.c", "m.layers.g", "m.pair.0", "m.pair.1", "x")
    assert module.main.param_names == names
    assert [str(v.type) for v in module.main.params] == [
        "f32[3,4,6]", "f32[3]", "f32[3,6]", "f32[2]", "i32[2]", "f32[2]",
    ]  # fmt: skip
    assert [v.hint for v in module.main.params] == list(names)
    sharding = module.main.param_shardings[0]
    assert sharding is not None
    assert sharding.dims == (DimSharding(), DimSharding((AxisRef("b"),), open=False), DimSharding())
    assert module.main.param_shardings[3:] == (None, None, None)
    assert [str(v.type) for v in module.main.results] == ["f32[4,6]", "f32[]", "f32[6]", "i32[2]"]


def test_stack_dims_may_be_split() -> None:
    module = program("mesh(s=2)\nstruct L:\n    w: f32[4]\ndef main(p: L[6@s]):\n    return p.w\n")
    sharding = module.main.param_shardings[0]
    assert sharding is not None and sharding.dims[0] == DimSharding((AxisRef("s"),), open=False)
    assert module.main.params[0].shape == (6, 4)


def test_structs_are_built_passed_and_returned() -> None:
    text = """
struct P:
    a: f32[2]
    b: f32[]
def step(p: P, x: f32[2]) -> P:
    return P(a=p.a + x, b=1.0)
def main(p: P, x: f32[2]) -> (P, f32[2]):
    new = step(step(p, x), x)
    return new, P(new.a, 2).a
"""
    module = program(text)
    assert module.main.result_names == ("new.a", "new.b", "r1")
    a, b, r1 = reference_numpy.run(module, [np.array(v, np.float32) for v in ([1, 2], 7, [10, 20])])
    np.testing.assert_array_equal(a, [21, 42])
    assert b == 1 and np.array_equal(a, r1)


# ---- names, hints, spans


def test_results_take_the_names_of_variables() -> None:
    text = "def main(x: f32[2]):\n    y = x * 2\n    return y, x + 1, x, y\n"
    assert program(text).main.result_names == ("y", "r1", "x", "r3")


def test_values_take_the_names_of_variables_and_exact_spans() -> None:
    module = program("def main(x: f32[2]):\n    y = x * 2 + 1\n    y = exp(y)\n    u, v = y, -y\n    return u - v\n")
    by_hint = {op.result.hint: op for op in module.main.body.ops if op.result.hint}
    assert [(op.name, op.result.hint) for op in module.main.body.ops if op.name != "constant"] == [
        ("mul", ""), ("add", "y"), ("exp", "y"), ("neg", "v"), ("sub", ""),
    ]  # fmt: skip
    span = by_hint["v"].result.span
    assert span is not None
    assert (span.line, span.column, span.end_column, span.callee) == (4, 15, 17, "main")


def test_unused_constants_and_reshapes_are_dropped() -> None:
    module = program("def main(x: f32[2,3]):\n    return x / sum(x, axis=1, keepdims=True)\n")
    assert [op.name for op in module.main.body.ops] == ["reduce_sum", "broadcast", "div"]


# ---- entry, consts, mesh


def test_entry_is_main_else_the_last_def() -> None:
    text = "def a(x: f32[1]):\n    return x\ndef b(x: f32[2]):\n    return x\n"
    assert program(text).entry == "b"
    assert program(text, entry="a").entry == "a"
    assert program(text + "def main(x: f32[3]):\n    return x\ndef c(x: f32[4]):\n    return x\n").entry == "main"
    assert "no def aa" in errors(text, entry="aa")
    assert "try: a" in errors("def abc(x: f32[1]):\n    return x\n", entry="abd")


def test_defines_replace_consts_and_what_follows_from_them() -> None:
    text = "const E = 8\nconst C = 2 * E\nconst rate = 0.5\ndef main(x: f32[C]):\n    return x * rate\n"
    assert program(text).main.params[0].shape == (16,)
    assert program(text, defines={"E": 3, "rate": 1}).main.params[0].shape == (6,)
    assert "no const EE to define" in errors(text, defines={"EE": 3})
    assert "a size must be a compile-time integer" in errors(text, defines={"C": 1.5})


AXES = "mesh(data=2, expert=4)\ndef main(x: f32[8@data, 8@expert]):\n    return x\n"


def test_mesh_override_sets_declared_axes() -> None:
    assert program(AXES).mesh.shape == {"data": 2, "expert": 4}
    assert program(AXES, mesh={"expert": 8}).mesh.shape == {"data": 1, "expert": 8}
    assert program(AXES, mesh={"expert": 2, "data": 3}).mesh.names == ("data", "expert")
    text = errors(AXES, mesh={"expt": 8})
    assert "declares no mesh axis expt" in text and "data=2, expert=4" in text and "try: expert" in text
    assert "positive integer" in errors(AXES, mesh={"data": 0})


def test_mesh_of_a_program_that_declares_none() -> None:
    text = "def main(x: f32[8]):\n    return x\n"
    assert program(text).mesh.devices == 1
    assert program(text, mesh={"b": 2, "a": 4}).mesh.names == ("b", "a")


def test_mesh_sizes_are_expressions_over_consts() -> None:
    text = "mesh(a=N, b=2 * N)\nconst N = 2\ndef main(x: f32[8@a]):\n    return x\n"
    assert program(text, defines={"N": 3}).mesh.shape == {"a": 3, "b": 6}


def test_every_complete_def_is_checked() -> None:
    text = "def bad(x: f32[2]):\n    return x + y\ndef open(x):\n    return x + z\ndef main(x: f32[2]):\n    return x\n"
    assert "unknown name y" in errors(text) and "unknown name z" not in errors(text)


def test_load_reports_files_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(GShardError, match=r"cannot read gone\.gshard: no such file"):
        load(tmp_path / "gone.gshard", "gone.gshard")
    (tmp_path / "latin.gshard").write_bytes(b"# \xe9\n")
    with pytest.raises(GShardError, match="not UTF-8"):
        load(tmp_path / "latin.gshard")


def test_lowering_twice_gives_the_same_text() -> None:
    tree = parse(load(Path(__file__).parents[2] / "examples" / "moe_layer" / "moe.gshard"))
    assert print_module(lower(tree)) == print_module(lower(tree))


def test_einsum_of_many_operands_contracts_the_cheapest_pairs() -> None:
    module = program('def main(a: f32[2,90], b: f32[90,80], c: f32[80]):\n    return einsum("ij,jk,k->i", a, b, c)\n')
    assert [op.attrs["spec"] for op in module.main.body.ops] == ["jk,k->j", "ij,j->i"]
    ten = ", ".join(["x"] * 10)
    spec = "ab,bc,cd,de,ef,fg,gh,hi,ij,jk"
    module = program(f'def main(x: f32[3,3]):\n    return einsum("{spec}->ak", {ten})\n')
    assert len(module.main.body.ops) == 9
    x = np.arange(9, dtype=np.float32).reshape(3, 3) / 10
    np.testing.assert_allclose(reference_numpy.run(module, [x])[0], np.linalg.matrix_power(x, 10), rtol=1e-5)


def test_type_of_a_scalar_is_written_with_brackets() -> None:
    module = program("def main(x: f32[]) -> f32[]:\n    return x\n")
    assert module.main.params[0].type == TensorType(F32, ())


def test_compile_time_arguments_may_stand_in_types() -> None:
    text = """
const K = 2
def grow(x: f32[K], n: int, y: f32[n], m: int = n + 1) -> f32[n, K]:
    K = 7
    return y[:, None] * x + m + K
def main(x: f32[K], y: f32[3]):
    return grow(x, 3, y)
"""
    (result,) = run(text, [1, 2], [1, 2, 3])
    np.testing.assert_array_equal(result, np.array([[1, 2], [2, 4], [3, 6]]) + 4 + 7)


def test_where_on_a_compile_time_condition_still_broadcasts() -> None:
    module = program("def main(x: f32[2,3], y: f32[3]):\n    return where(1 > 2, x, y) + where(True, 1, 2)\n")
    assert module.main.results[0].shape == (2, 3)
