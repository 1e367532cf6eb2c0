"""A little of the fuzz; `make chaos` runs the rest (`TUNE_FUZZ` sets the count here)."""

import os
import random
from pathlib import Path

import pytest

from tests.fuzz import files, folders

COUNT = int(os.environ.get("TUNE_FUZZ", "120"))


def test_sweep_files(tmp_path: Path) -> None:
    taken = 0
    for seed in range(COUNT):
        try:
            taken += files.check(files.mutated(random.Random(seed)), tmp_path)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e!r}") from e
    assert 0 < taken < COUNT


def test_damaged_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    sweep = folders.make_sweep(tmp_path / "whole")
    resumed = 0
    count = max(20, COUNT // 6)
    for seed in range(count):
        paths = folders.damaged(sweep, tmp_path / f"{seed}", random.Random(seed))
        try:
            resumed += folders.check(paths)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e!r}") from e
    assert 0 < resumed <= count
