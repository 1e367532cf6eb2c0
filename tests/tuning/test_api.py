"""The Python API, as far as it needs no cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tuning
from search_spaces.errors import UserError
from tests.tuning.sources import sweep


def test_import_is_cheap() -> None:
    heavy = {"ray", "torch", "optuna", "mlflow", "pandas", "pydantic"}
    code = "import sys, tuning; tuning.run; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not heavy & set(said.stdout.split())


def test_unknown_name_is_no_attribute() -> None:
    assert not hasattr(tuning, "walk")


def test_run_leaves_no_folder_after_a_mistake(tmp_path: Path) -> None:
    paths = sweep(tmp_path, run=False)
    with pytest.raises(UserError, match="unknown hyperparameter"):
        tuning.run(paths.spec, storage=str(tmp_path / "other"))
    assert not (tmp_path / "other").exists()


def test_resume_of_a_finished_sweep_returns_its_trials(tmp_path: Path) -> None:
    paths = sweep(tmp_path)
    assert len(tuning.resume(str(paths.root)).records) == 6
