"""The demo: what its own numbers say must add up, and it takes arrays of the user's own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from documents import ROOT, Shell, blocks, run_console

FOLDER = ROOT / "examples" / "moe_layer"


def names_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo_names", FOLDER / "names.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def demo(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(FOLDER / "demo.py"), *words], capture_output=True, text=True, check=False
    )


def numbers(pattern: str, text: str) -> list[float]:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in\n{text}"
    return [float(n.replace(",", "")) for n in found.groups()]


def assert_adds_up(text: str, tokens: int) -> None:
    taken = re.search(r"tokens per expert +(.*)", text)
    assert taken, text
    loads = [int(n.replace(",", "")) for n in re.findall(r"\d+: ([\d,]+)", taken[1])]
    dropped, routes, share = numbers(r"routes dropped +([\d,]+) of ([\d,]+) \(([\d.]+)%\)", text)
    assert routes == 2 * tokens
    assert sum(loads) + dropped == routes
    assert share == pytest.approx(100 * dropped / routes, abs=0.051)
    unserved, of = numbers(r"without an expert +([\d,]+) of ([\d,]+) tokens", text)
    assert of == tokens and 2 * unserved <= dropped
    errors = numbers(r"largest error against the unsharded program +y ([\d.e+-]+), aux ([\d.e+-]+)", text)
    assert 0 < errors[0] < 1e-4 and errors[1] < 1e-5


def test_make_demo_prints_what_the_readme_shows(tmp_path: Path, update: bool) -> None:
    (block,) = [b for b in blocks(ROOT / "README.md") if b.text.startswith("$ make demo")]
    (printed,) = run_console(Shell(tmp_path), block, update)
    count, languages = numbers(r"([\d,]+) names of territories, languages and currencies in (\d+) languages", printed)
    assert count > 50_000 and languages == 100
    assert_adds_up(printed, 16 * 512)
    exchanges = re.findall(r"line (\d+) +(\w+) +([\d,]+) B", printed)
    assert exchanges == [("21", "sent", "114,688"), ("23", "out", "114,688")]


def test_arrays_of_the_users_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    own = {"x": rng.normal(size=(2, 7, 20, 32)), "wg": rng.normal(size=(32, 6)), "wi": rng.normal(size=(6, 32, 48))}
    np.savez(tmp_path / "own.npz", **{name: array.astype(np.float32) for name, array in own.items()})  # type: ignore[arg-type]
    found = demo("--mesh", "data=2,expert=4", "--input", str(tmp_path / "own.npz"))
    assert found.returncode == 0, found.stderr
    assert "mesh data=2,expert=4" in found.stdout and "2 steps on 8 devices" in found.stdout
    assert_adds_up(found.stdout, 2 * 7 * 20)


def test_wrong_arrays_are_refused_in_words(tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", x=np.zeros((8, 64, 256), np.float32), wg=np.zeros((255, 8), np.float32))
    found = demo("--input", str(tmp_path / "wrong.npz"))
    assert found.returncode == 1 and "Traceback" not in found.stderr
    assert "p.wg is f32[255,8], expected f32[256,8]" in found.stderr


def test_tokens_of_names() -> None:
    module = names_module()
    everything = [
        module.Name(language, "territory", code, text)
        for language, code, text in (("de", "AT", "Österreich"), ("de", "CH", "Schweiz"), ("th", "TH", "ไทย"))
    ]
    drawn = module.sample(everything, 20, seed=3)
    assert drawn == module.sample(everything, 20, seed=3)
    assert [name.language for name in drawn] == ["de", "th"], "one per language in turn, until there are enough bytes"
    vectors = module.embed(everything, 5)
    assert vectors.shape == (len("Österreich\nSchweiz\nไทย\n".encode()), 5)
    cut = module.batches(everything, (1, 2, 4, 5))
    np.testing.assert_array_equal(cut.reshape(8, 5), vectors[:8])
