"""The `points` section."""

from __future__ import annotations

from pathlib import Path

from search_spaces.loading.sweep_file import load_sweep
from tests.search_spaces.examples import MINIMAL


def test_equal_points_are_one(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    rates = ("0.01", "0.02", "0.01")
    path.write_text(MINIMAL + "points:\n" + "".join(f"  - {{lr: {r}}}\n" for r in rates))
    assert load_sweep(path).spec.points == [{"lr": 0.01}, {"lr": 0.02}]
