"""A short run of the fuzz tests; `TUNE_FUZZ` sets the count, `make chaos` runs more."""

import os
import random
from pathlib import Path

import pytest

from tests.fuzz import files, folders, hostile, records
from tests.search_spaces.examples import SHIPPED

COUNT = int(os.environ.get("TUNE_FUZZ", "120"))


def test_mutated_sweep_file_loads_or_is_refused(tmp_path: Path) -> None:
    loaded = 0
    for seed in range(COUNT):
        try:
            loaded += files.check(files.mutated(random.Random(seed)), tmp_path)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e!r}") from e
    assert 0 < loaded < COUNT


def test_damaged_sweep_folder_resumes_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_hostile_sweep_file_loads_or_is_refused_in_time(tmp_path: Path) -> None:
    loaded, count = 0, max(20, COUNT // 6)
    for seed in range(count):
        try:
            loaded += hostile.check(hostile.hostile(random.Random(seed)), tmp_path)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e!r}") from e
    assert loaded < count
    assert hostile.check(SHIPPED[0].read_bytes(), tmp_path)


def test_damaged_records_are_named_or_change_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    sweeps = records.make_sweeps(tmp_path / "whole")
    for seed in range(max(12, COUNT // 10)):
        found = records.check(
            sweeps[seed % 3], tmp_path / f"{seed}", random.Random(seed), uses=False
        )
        assert list(found) == [], f"seed {seed}"
