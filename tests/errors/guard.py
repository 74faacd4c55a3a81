"""Run hostile text through every stage under limits of time and memory, and inspect what is emitted."""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import re
import resource
import signal
import tokenize
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from gshard_ir.api import check
from gshard_ir.backends.py_code import MODULE_NAMES
from gshard_ir.errors import GShardError
from gshard_ir.frontend.parser import decode
from gshard_ir.program import TARGETS

SECONDS = 2.0
MEGABYTES = 500


class TooSlowError(BaseException):
    """Raised in the middle of a run that takes too long; no handler of ours catches it."""


@contextmanager
def limits(seconds: float = SECONDS) -> Iterator[None]:
    """Let a block use so much processor time, and MEGABYTES more memory than there is now."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TooSlowError(f"more than {seconds} s of processor time")

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGVTALRM, stop)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEGABYTES * 2**20, hard))
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, hard))
        signal.signal(signal.SIGVTALRM, before)


def attempt(
    data: bytes | str,
    *,
    mesh: Mapping[str, int] | None = None,
    defines: Mapping[str, int] | None = None,
    seconds: float = SECONDS,
    name: str = "hostile.gshard",
) -> tuple[str, ...]:
    """Take a text as far as it goes; return the emitted files, or nothing when diagnostics refused it."""
    try:
        with limits(seconds):
            raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
            program = check(decode(name, raw), mesh=mesh, defines=defines)
            files = tuple(program.emit(target) for target in TARGETS)
    except GShardError as error:
        refused = error
    else:
        for file in files:
            inspect(file)
        return files
    assert refused.diagnostics
    str(refused).encode()
    return ()


# ---- what may stand in an emitted file

ROOTS = frozenset({"jax", "jnp", "np", "lax", "P"})
FUNCTIONS = frozenset(
    {
        "P", "partial", "Mesh", "NamedSharding", "tuple", "next", "dict", "zip", "slice", "len", "enumerate", "range",
        "isinstance", "print", "int", "combine", "ValueError", "reversed", "list", "min", "max", "sum", "any", "all",
    }
)  # fmt: skip
METHODS = frozenset(
    {
        "astype", "reshape", "transpose", "T", "shape", "dtype", "ndim", "size", "at", "set", "add", "values", "items",
        "devices", "axis_names", "normal", "integers", "append", "index", "ravel",
    }
)  # fmt: skip
TEXTS = re.compile(
    r"[A-Za-z_]\w*|([A-Za-z]*,)*[A-Za-z]*->[A-Za-z]*"  # axis names, dtypes, argument names; einsum
)
LINE = re.compile(r"[ -~]*")


def inspect(file: str) -> None:
    """Assert that an emitted file is plain: names that shadow nothing, calls of known things, no text of the user's."""
    assert file.isascii()
    assert all(LINE.fullmatch(line) for line in file.split("\n")), "control characters"
    tree = ast.parse(file)
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    docs = {id(d) for d in _docstrings(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _check_call(node, functions)
        elif isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")
            assert node.attr in METHODS or _root(node) in ROOTS or _root(node) == "rng", f"attribute {node.attr}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            assert (
                TEXTS.fullmatch(node.value)
                or node.value == "this program is for a mesh of "
                or (node.value == ", not ")
            ), f"string {node.value!r}"
        elif isinstance(node, ast.Name):
            assert not node.id.startswith("__") or node.id == "__name__"
        assert not isinstance(node, ast.Lambda | ast.ClassDef | ast.AsyncFunctionDef | ast.Global | ast.Delete)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name not in OURS:
            _check_names(function)
    for token in tokenize.generate_tokens(io.StringIO(file).readline):
        assert token.type != tokenize.ERRORTOKEN


OURS = frozenset({"build", "pad", "trim"})
"""Functions of the file's own frame; their text is fixed."""


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in [tree, *(n for n in tree.body if isinstance(n, ast.FunctionDef))]:
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield first.value


def _check_call(node: ast.Call, functions: set[str]) -> None:
    called = node.func
    if isinstance(called, ast.Name):
        assert called.id in functions | FUNCTIONS, f"call of {called.id}"
    else:
        assert isinstance(called, ast.Attribute | ast.Call), ast.dump(called)


def _root(node: ast.Attribute) -> str:
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def _check_names(function: ast.FunctionDef) -> None:
    """Every name that a written function binds is an ordinary one."""
    bound = [function.name, *(a.arg for a in function.args.args)]
    bound += [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    shadowed = (set(bound) - {"mesh"}) & (MODULE_NAMES | set(dir(builtins)) | {*keyword.kwlist, *keyword.softkwlist})
    assert not shadowed, f"{function.name} binds {sorted(shadowed)}"
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) for name in bound)
