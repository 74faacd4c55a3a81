"""Imports point one way, and `import gshard_ir` brings nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest

import gshard_ir.errors

ROOT = Path(gshard_ir.errors.__file__).parent
LAYERS = (
    ("types", "source errors memo types mesh sharding"),
    ("ir", "ir text text_reader pipeline_base grammar"),
    ("ops", "factors opdef ops builder verify verify_layout promises validate"),
    ("passes", "passes frontend std"),
    ("pipeline", "pipeline reasons"),
    ("backends", "backends"),
    ("api", "data program dump explain compare api agreement gshard_ir"),
    ("cli", "cli __main__"),
)
RANK = {part: i for i, (_, parts) in enumerate(LAYERS) for part in parts.split()}
HEAVY = ("jax", "jaxlib", "lark", "ml_dtypes", "networkx", "rich")
LAZY = ("jax", "jaxlib", "ml_dtypes", "networkx", "rich")


@dataclass(frozen=True)
class Import:
    """One imported module, where, and whether it is imported as its importer is."""

    importer: str
    target: str
    line: int
    eager: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(ROOT.rglob("*.py")) + sorted(
        p for link in ROOT.iterdir() if link.is_symlink() for p in link.rglob("*.py")
    ):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(module: str) -> Iterator[Import]:
    """Yield what a module imports; names only for type checkers do not count."""

    def visit(node: ast.AST, eager: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno, eager)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}:{node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(module, inner if inner in MODULES else node.module, node.lineno, eager)
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, eager and not inside)

    yield from visit(ast.parse(MODULES[module].read_text(encoding="utf-8")), True)


ALL = [i for module in MODULES for i in imports(module)]


def part(module: str) -> str:
    names = module.split(".")
    return names[1] if len(names) > 1 else names[0]


def test_every_module_has_a_layer() -> None:
    assert len(MODULES) > 50
    assert sorted({part(m) for m in MODULES} - set(RANK)) == [], "give the new module a layer in LAYERS"


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    ours = [i for i in ALL if i.importer == module and i.target.split(".")[0] == "gshard_ir"]
    assert [str(i) for i in ours if i.target != "gshard_ir" and RANK[part(i.target)] > RANK[part(module)]] == []


def test_no_cycles() -> None:
    graph = nx.DiGraph((i.importer, i.target) for i in ALL if i.eager and i.target in MODULES)
    # A package whose __init__ lists its modules is imported before them; that is no cycle.
    graph.remove_edges_from([(a, b) for a, b in graph.edges if a.startswith(f"{b}.") or b.startswith(f"{a}.")])
    assert list(nx.simple_cycles(graph)) == []


def test_only_jax_backends_import_jax() -> None:
    users = {i.importer for i in ALL if i.target.split(".")[0] in ("jax", "jaxlib")}
    assert users, "somebody must import jax"
    assert sorted(u for u in users if not u.startswith("gshard_ir.backends.jax_")) == []


def test_heavy_imports_are_inside_functions() -> None:
    assert [str(i) for i in ALL if i.eager and i.target.split(".")[0] in LAZY] == []


def test_nobody_imports_the_folders() -> None:
    folders = ("passes", "backends", "grammar", "tests")
    assert [str(i) for i in ALL if i.target.split(".")[0] in folders] == []


def loaded(code: str) -> set[str]:
    """Return the heavy packages that a fresh interpreter has loaded after ``code``."""
    script = f"{code}\nimport sys\nprint(*(m for m in {HEAVY!r} if m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    return set(run.stdout.split("\n")[-2].split())


def test_import_is_light() -> None:
    assert loaded("import gshard_ir") == set()
    assert loaded("import jax") >= {"jax"}, "the probe sees what is loaded"


def test_compiler_does_not_load_jax() -> None:
    program = "def f(x: f32[8, 4]) -> f32[8, 4]:\n    return x + x\n"
    code = f"import gshard_ir as gs\np = gs.compile({program!r}, mesh={{'a': 2}})\np.dump('partitioned')"
    assert loaded(code).isdisjoint({"jax", "jaxlib"})
