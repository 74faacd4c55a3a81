"""The wheel holds gshard_ir and the gshard command, whole, and nothing else."""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOL = SETTINGS["tool"]["setuptools"]
FOLDERS = ("passes", "backends", "grammar")
IGNORED = ("__pycache__", "*.egg-info", "*.pyc")


def folder_of(package: str) -> Path:
    """Return where a package's files lie, by the longest entry of package-dir."""
    for prefix in sorted(TOOL["package-dir"], key=len, reverse=True):
        if package == prefix or package.startswith(f"{prefix}."):
            return ROOT / TOOL["package-dir"][prefix] / package[len(prefix) + 1 :].replace(".", "/")
    raise AssertionError(f"{package} has no folder")


def package_files() -> dict[str, Path]:
    """Return every file that an installed package must have, by its path there."""
    found = {}
    roots = [("gshard_ir", ROOT / "gshard_ir"), *((f"gshard_ir/{name}", ROOT / name) for name in FOLDERS)]
    for prefix, root in roots:
        for path in sorted(root.rglob("*")):
            inner = path.relative_to(root)
            if path.is_file() and not any(fnmatch.fnmatch(p, bad) for p in inner.parts for bad in IGNORED):
                if prefix == "gshard_ir" and inner.parts[0] in FOLDERS:
                    continue
                found[f"{prefix}/{inner.as_posix()}"] = path
    return found


def test_symlinks_show_the_folders_as_subpackages() -> None:
    for name in FOLDERS:
        link = ROOT / "gshard_ir" / name
        assert link.is_symlink()
        assert link.readlink().as_posix() == f"../{name}"


def test_listed_packages_are_those_on_disk() -> None:
    on_disk = {path.rpartition("/")[0].replace("/", ".") for path in package_files()}
    assert sorted(TOOL["packages"]) == sorted(on_disk)
    for package in TOOL["packages"]:
        assert (folder_of(package) / "__init__.py").exists(), package


def test_package_data_is_complete() -> None:
    data = TOOL["package-data"]
    for path in package_files():
        package, _, name = path.rpartition("/")
        patterns = data.get(package.replace("/", "."), [])
        if not name.endswith(".py"):
            assert any(fnmatch.fnmatch(name, p) for p in patterns), f"{path} is in no pattern of package-data"
    for package, patterns in data.items():
        for pattern in patterns:
            assert list(folder_of(package).glob(pattern)), f"{pattern} of {package} matches nothing"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel from a clean copy of the sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("gshard_ir", *FOLDERS):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns(*IGNORED))
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", build, "out"], cwd=copy, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    (path,) = (copy / "out").glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    files = [name for name in wheel.namelist() if not name.endswith("/")]
    info = f"gshard_ir-{SETTINGS['project']['version']}.dist-info"
    assert {name.split("/")[0] for name in files} == {"gshard_ir", info}
    assert sorted(name for name in files if name.startswith("gshard_ir/")) == sorted(package_files())


def test_wheel_brings_the_command_and_the_licence(wheel: zipfile.ZipFile) -> None:
    names = {name.split(".dist-info/")[-1]: name for name in wheel.namelist() if ".dist-info/" in name}
    commands = wheel.read(names["entry_points.txt"]).decode()
    assert commands == "[console_scripts]\ngshard = gshard_ir.cli:main\n"
    assert wheel.read(names["licenses/LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert "License-Expression: Apache-2.0" in wheel.read(names["METADATA"]).decode()


def test_sources_name_no_registry() -> None:
    for name in ("pyproject.toml", "Makefile", ".ci/run"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "http" not in text and "index-url" not in text, name
