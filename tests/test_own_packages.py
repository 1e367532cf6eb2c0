"""`tune` notices another package in place of one of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_tune(cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """`python -m tuning --version` in a folder, with another folder on Python's path."""
    command = [sys.executable, "-m", "tuning", "--version"]
    env = {"PYTHONPATH": str(path), "PATH": ""}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["search_spaces", "results", "trainables"])
@pytest.mark.parametrize("file", ["{name}/__init__.py", "{name}.py"])
def test_package_of_another_project_is_named(tmp_path: Path, name: str, file: str) -> None:
    other = tmp_path / file.format(name=name)
    other.parent.mkdir(exist_ok=True)
    other.write_text("")
    done = run_tune(tmp_path, ROOT)
    assert done.returncode == 2
    assert str(other) in done.stderr
    assert done.stderr.count("\n") == 1


def test_file_that_was_installed_over_ours_is_named(tmp_path: Path) -> None:
    for package in ("search_spaces", "results", "trainables", "tuning"):
        shutil.copytree(ROOT / package, tmp_path / package)
    assert run_tune(tmp_path, tmp_path).returncode == 0
    (tmp_path / "results" / "__init__.py").write_text('"""Results of something else."""\n')
    done = run_tune(tmp_path, tmp_path)
    assert done.returncode == 2
    assert "results/__init__.py" in done.stderr
