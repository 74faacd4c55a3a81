"""How an emitted file reads, and that nothing a user writes can become code in it."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gshard_ir as gs
from gshard_ir.backends import jax_auto, jax_shard_map
from gshard_ir.backends.hlo_traffic import measure
from gshard_ir.backends.jax_functions import folded
from gshard_ir.backends.jax_run import Executable, ensure_devices, load
from gshard_ir.backends.py_code import comment_text, docstring_text, fresh, identifier, quoted
from gshard_ir.builder import Builder
from gshard_ir.errors import GShardError
from gshard_ir.ir import Function, Module
from gshard_ir.mesh import Mesh
from gshard_ir.program import Program
from gshard_ir.sharding import Layout, sharded
from gshard_ir.source import SourceFile, Span
from gshard_ir.types import F32, TensorType

MOE = """
from std.moe import top2_gating

mesh(data=1, expert=8)
const E = 8
const G, S, M, H = 8, 16, 4, 12
const C = 2 * S // E

struct Moe:
    wg: f32[M, E]
    wi: f32[E@expert, M, H]
    wo: f32[E@expert, H, M]

def moe(x: f32[G, S, M], p: Moe) -> (f32[G, S, M], f32[]):
    x = split(x, 0, data, expert)
    wg = replicate(p.wg)
    gates = softmax(einsum("GSM,ME->GSE", x, wg), axis=-1)
    combine, dispatch, aux = top2_gating(gates, C)
    sent = einsum("GSEC,GSM->EGCM", dispatch, x)
    sent = split(sent, 0, expert)
    h = relu(einsum("EGCM,EMH->EGCH", sent, p.wi))
    out = einsum("EGCH,EHM->GECM", h, p.wo)
    return einsum("GSEC,GECM->GSM", combine, out), aux
"""


@pytest.fixture(scope="module")
def moe() -> Program:
    return gs.compile(MOE, mesh={"expert": 8})


def function(source: str, name: str) -> str:
    """The text of one function of an emitted file."""
    found = re.search(rf"^def {name}\(.*?(?=\n\n\n)", source, re.DOTALL | re.MULTILINE)
    assert found is not None, source
    return found[0]


def test_the_layer_reads_as_written_by_hand(moe: Program) -> None:
    body = function(moe.source, "moe")
    lines = [re.sub(r"(?<=\S)  +# .*", "", line) for line in body.splitlines()]
    assert lines == [
        "def moe(x, wg, wi, wo):",
        '    gates = softmax(jnp.einsum("GSM,ME->GSE", x, wg))',
        "    aux, combine, dispatch = top2_gating(gates)",
        '    sent = jnp.einsum("GSEC,GSM->EGCM", dispatch, x)',
        "    # <string>:20 split(sent, 0, expert): all_to_all over expert, 448 bytes sent per device",
        '    sent = lax.all_to_all(sent, "expert", split_axis=0, concat_axis=1, tiled=True)',
        '    h = jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", sent, wi))',
        '    out = jnp.einsum("EGCH,EHM->GECM", h, wo)',
        lines[8],
        '    out = lax.all_to_all(out, "expert", split_axis=0, concat_axis=1, tiled=True)',
        '    return jnp.einsum("GSEC,GECM->GSM", combine, out), aux',
    ]
    assert lines[8].endswith(": all_to_all over expert, 448 bytes sent per device")


def test_places_are_aligned(moe: Program) -> None:
    lines = function(moe.source, "moe").splitlines()
    columns = {line.index("  # <string>:") for line in lines if "  # <" in line.lstrip()}
    assert len(columns) == 1
    assert "# std/moe.gshard:" in function(moe.source, "top2_gating")


def test_called_defs_become_functions(moe: Program) -> None:
    text = function(moe.source, "softmax")
    assert "jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))" in text
    assert text.splitlines()[-1].startswith("    return ")
    assert moe.source.index("def softmax") < moe.source.index("def top2_gating") < moe.source.index("def moe")


def test_the_file_stands_alone(moe: Program) -> None:
    for source in (moe.source, moe.emit("jax-auto")):
        tree = ast.parse(source)
        modules = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
        modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert modules <= {"jax", "jax.numpy", "jax.sharding", "numpy", "functools"}
        assert "._src" not in source
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        helpers = defined - {"build", "moe", "pad", "trim"}
        assert helpers <= called | {"moe"}, "a function that nobody calls"
        assert max(map(len, source.splitlines())) <= 150


def test_it_runs_and_sends_what_it_says(moe: Program) -> None:
    compiled = moe.lower().compile()
    measured = measure(compiled.as_text())
    assert measured.sent == 2 * 448 + 7
    assert f"Each device sends {2 * 448 + 7:,} bytes: 1 all_reduce, 2 all_to_all." in moe.source
    counted = sum(int(n.replace(",", "")) for n in re.findall(r"([\d,]+) bytes sent per device", moe.source))
    assert counted == measured.sent


def test_xla_gets_the_annotations_alone(moe: Program) -> None:
    source = moe.emit("jax-auto")
    body = function(source, "moe")
    assert body.count("constrain(") == 3
    assert 'x = constrain(x, mesh, P("expert", P.UNCONSTRAINED, P.UNCONSTRAINED))' in body
    assert "wg = constrain(wg, mesh, P())" in body
    assert "# <string>:20 split(sent, 0, expert)" in body
    assert "lax.all_to_all" not in source
    args = [np.asarray(np.random.default_rng(i).normal(size=s), np.float32) for i, s in enumerate(((8, 16, 4), (4, 8)))]
    args += [
        np.asarray(np.random.default_rng(i).normal(size=s), np.float32) for i, s in enumerate(((8, 4, 12), (8, 12, 4)))
    ]
    ours = Executable(moe.source, moe.local)(*args)
    theirs = Executable(source, moe.local)(*args)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_as_a_script(moe: Program, tmp_path: Path) -> None:
    file = tmp_path / "out.py"
    file.write_text(moe.source)
    found = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False, timeout=120)
    assert found.stdout.splitlines() == ["r0 float32 (8, 16, 4)", "aux float32 ()"], found.stderr


def test_same_text_every_time(moe: Program) -> None:
    again = gs.compile(MOE, mesh={"expert": 8})
    assert again.source == moe.source
    assert again.emit("jax-auto") == moe.emit("jax-auto")


def test_emitting_needs_no_jax() -> None:
    code = "import sys, gshard_ir.backends.jax_shard_map, gshard_ir.backends.jax_auto; print('jax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


UNEVEN = """
mesh(a=4)
def main(x: f32[10@a, 3], y: f32[3]) -> (f32[10@a, 3], f32[3]):
    z = x * 2.0 + y
    return z, sum(z, axis=0)
"""


def test_padding_is_stated() -> None:
    program = gs.compile(UNEVEN)
    assert '"x": ((12, 3), "float32", P("a")),  # (10, 3), padded' in program.source
    module = load(program.source)
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    shape = module.INPUTS["x"][0]
    found, total = module.build(Executable(program.source, program.local).mesh)(
        module.pad(x, shape), np.ones(3, np.float32)
    )
    np.testing.assert_array_equal(module.trim(np.asarray(found), (10, 3)), x * 2 + 1)
    np.testing.assert_array_equal(total, (x * 2 + 1).sum(0))
    assert "def pad" not in gs.compile(UNEVEN.replace("10@a", "12@a")).source


def test_uneven_demands_are_constraints_inside_for_xla() -> None:
    program = gs.compile(UNEVEN)
    source = program.emit("jax-auto")
    assert '"x": ((10, 3), "float32", P()),' in source
    assert 'x = constrain(x, mesh, P("a"' in source
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    z, total = Executable(source, program.local)(x, np.ones(3, np.float32))
    np.testing.assert_array_equal(z, x * 2 + 1)
    np.testing.assert_array_equal(total, (x * 2 + 1).sum(0))


TWICE = """
mesh(a=2)
def main(x: f32[4, 6], y: f32[4, 6], z: f32[4, 3]) -> (f32[4, 6], f32[4, 3]):
    p = softmax(x)
    q = softmax(y)
    return p * q, softmax(z)
"""


def test_equal_functions_are_written_once() -> None:
    source = gs.compile(TWICE).source
    assert source.count("def softmax") == 1
    body = function(source, "main")
    assert "p = softmax(x)" in body
    assert "q = softmax(y)" in body


def test_wrong_mesh_is_refused(moe: Program) -> None:
    module = load(moe.source)
    mesh = Executable(gs.compile(UNEVEN).source, gs.compile(UNEVEN).local).mesh
    with pytest.raises(ValueError, match=r"this program is for a mesh of \{'data': 1, 'expert': 8\}, not \{'a': 4\}"):
        module.build(mesh)


def test_too_few_devices_is_an_error_with_the_numbers() -> None:
    have = len(ensure_devices(8))
    with pytest.raises(GShardError, match=r"the mesh needs 4096 devices, jax has started with \d+"):
        ensure_devices(4096)
    assert have == 8


HOSTILE = (
    "jnp", "lax", "np", "P", "Mesh", "build", "mesh", "MESH", "class", "lambda", "match", "None", "sum", "__import__",
    "__class__", "x.y", 'x"; import os', "naïve", "x\ny", "", "1x", "_", "é", "threefry2x32", "own_block", "a" * 200,
)  # fmt: skip


@pytest.mark.parametrize("hint", HOSTILE)
def test_names_are_safe(hint: str) -> None:
    word = identifier(hint)
    assert word.isidentifier()
    assert word.isascii()
    assert not keyword.iskeyword(word)
    assert not hasattr(builtins, word)
    assert not word.startswith("__")
    assert word not in {"jnp", "lax", "np", "P", "Mesh", "build", "mesh", "MESH"}
    assert fresh(hint, {word}) != word
    assert fresh(hint, {word}).isidentifier()


def local_program(names: tuple[str, ...], mesh: Mesh, axis: str) -> Module:
    """A chain of ops whose values all have hostile names."""
    b = Builder()
    type_ = sharded(TensorType(F32, (4,)), Layout(((axis,),)), mesh)
    values = [b.param(type_, name) for name in names]
    total = values[0]
    for value, name in zip(values[1:], reversed(names), strict=False):
        total = b("add", total, value, hint=name, type=type_)
    gathered = b(
        "all_gather", total, axes=(axis,), dim=0, hint=names[-1], type=sharded(total.type, Layout(((),)), mesh)
    )
    body = b.region(gathered, total)
    shardings = (None,) * len(names)
    main = Function("import", body, names, ('")', "r\n"), shardings, (None, None))
    return Module(mesh, {"import": main}, "import", local=True)


def test_hostile_names_stay_text() -> None:
    axis = 'ax"]) + exit()#\n'
    local = local_program(HOSTILE, Mesh((axis,), (2,)), axis)
    reasons = {op: 'why\nimport os; os.abort()"""' for op in local.main.body.ops if op.name == "all_gather"}
    source = jax_shard_map.emit(local, title='a"""\nimport os\n"""\\', reasons=reasons)
    tree = ast.parse(source)
    assert {type(node).__name__ for node in tree.body} <= {
        "Expr",
        "Import",
        "ImportFrom",
        "Assign",
        "FunctionDef",
        "If",
    }
    assert "os" not in {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    assert "exit" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    assert not names & {"jnp", "lax", "np", "P", "Mesh", "build", "__import__", "sum", "threefry2x32"}
    args = [np.arange(4, dtype=np.float32) + i for i in range(len(HOSTILE))]
    found = Executable(source, local)(*args)
    np.testing.assert_array_equal(found[0], sum(args))


def test_strings_and_comments_cannot_be_left() -> None:
    word = 'a"b\\c\n\u2028d'
    assert ast.literal_eval(quoted(word)) == word
    assert "\n" not in comment_text(word)
    assert comment_text("ok [1,2]") == "ok [1,2]"
    assert ast.literal_eval(f'"""{docstring_text(word + chr(34) * 3)}"""')


def test_a_name_is_bound_again_only_when_its_value_is_dead() -> None:
    b = Builder()
    mesh = Mesh(("a",), (1,))
    type_ = sharded(TensorType(F32, (2,)), Layout(((),)), mesh)
    x = b.param(type_, "x")
    y = b("exp", x, hint="x", type=type_)
    z = b("exp", y, hint="x", type=type_)
    w = b("add", z, y, hint="x", type=type_)
    v = b("mul", w, w, hint="w", type=type_)
    main = Function("main", b.region(v, x), ("x",), ("v", "x"), (None,), (None, None))
    source = jax_shard_map.emit(Module(mesh, {"main": main}, "main", local=True))
    (found, same) = Executable(source, Module(mesh, {"main": main}, "main", local=True))(np.array([0, 1], np.float32))
    e = np.exp(np.array([0, 1], np.float32))
    np.testing.assert_allclose(found, (np.exp(e) + e) ** 2, rtol=1e-6)
    np.testing.assert_array_equal(same, [0, 1])


def test_long_calls_fold_without_becoming_tuples() -> None:
    code = f"y = (a + b) * jnp.where({', '.join(['condition_' * 5, 'first_' * 5, 'second_' * 5])})[:, :5]"
    rows = folded(code)
    assert len(rows) > 1
    assert ast.dump(ast.parse("\n".join(rows))) == ast.dump(ast.parse(code))
    grouped = f"y = ({' + '.join(['operand_' * 4] * 4)}) * 2.0"
    assert folded(grouped) == [grouped]


def test_dead_ops_are_left_out() -> None:
    b = Builder()
    mesh = Mesh(("a",), (1,))
    x = b.param(sharded(TensorType(F32, (2,)), Layout(((),)), mesh), "x")
    b("sin", x, hint="unused")
    main = Function("main", b.region(b("cos", x, hint="y", type=x.type)), ("x",), ("y",), (None,), (None,))
    assert "jnp.sin" not in jax_shard_map.emit(Module(mesh, {"main": main}, "main", local=True))


def test_auto_leaves_open_dims_to_xla() -> None:
    text = "mesh(a=2)\ndef main(x: f32[4, 6]) -> f32[4, 6]:\n    y = x * 2.0\n    y = split(y, 1, a)\n    return y\n"
    program = gs.compile(text)
    source = jax_auto.emit(program.compiled.prepared, program.local)
    assert 'constrain(y, mesh, P(P.UNCONSTRAINED, "a"))' in source


def calls_of(order: str, chained: bool) -> tuple[str, Module]:
    """Two calls of one def, three ops each, in the given order; ``chained`` makes each op read the one before."""
    source = SourceFile("calls.gshard", "")
    sites = {name: Span(source, line, 1, line, 9) for line, name in enumerate("fg", 1)}
    b = Builder()
    mesh = Mesh(("a",), (1,))
    x = b.param(sharded(TensorType(F32, (2,)), Layout(((),)), mesh), "x")
    last = dict.fromkeys("fg", x)
    newest = x
    for name in order:
        span = Span(source, 9, 1, 9, 5, sites[name], name)
        operand = newest if chained else last[name]
        newest = last[name] = b("exp" if name == "f" else "tanh", operand, hint=f"{name}x", span=span, type=x.type)
    main = Function("main", b.region(last["f"], last["g"]), ("x",), ("f", "g"), (None,), (None, None))
    local = Module(mesh, {"main": main}, "main", local=True)
    return jax_shard_map.emit(local), local


def test_interleaved_calls_are_told_apart() -> None:
    source, local = calls_of("fgfgfg", chained=False)
    assert [line.strip() for line in function(source, "main").splitlines()] == [
        "def main(x):",
        "fx = f(x)  # calls.gshard:1",
        "gx = g(x)  # calls.gshard:2",
        "return fx, gx",
    ]
    f, g = Executable(source, local)(np.array([0, 0.5], np.float32))
    np.testing.assert_allclose(f, np.exp(np.exp(np.exp([0, 0.5]))), rtol=1e-5)
    np.testing.assert_allclose(g, np.tanh(np.tanh(np.tanh([0, 0.5]))), rtol=1e-5)


def test_calls_that_need_each_other_stay_inlined() -> None:
    source, local = calls_of("fgfgfg", chained=True)
    assert "def f(" not in source
    assert "def g(" not in source
    at = np.array([0, 0.5])
    for _ in range(3):
        before = np.exp(at)
        at = np.tanh(before)
    f, g = Executable(source, local)(np.array([0, 0.5], np.float32))
    np.testing.assert_allclose(f, before, rtol=1e-5)
    np.testing.assert_allclose(g, at, rtol=1e-5)


def test_small_defs_stay_inlined() -> None:
    assert "def f(" not in calls_of("ffggg", chained=False)[0]
    assert "def g(" in calls_of("ffggg", chained=False)[0]


def test_what_a_call_shares_with_its_caller_is_passed_in(moe: Program) -> None:
    text = function(moe.source, "top2_gating")
    assert re.search(r"aux = balance_loss\(\w+, gates\)", text)
    assert "return total / 8.0" in function(moe.source, "balance_loss")
