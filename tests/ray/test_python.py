"""The notebook of the documentation, which the command line then continues."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from results.averaging.soup.scoring import read_soup
from tests.ray.conftest import ENV, LONGEST_S, Tune

ROOT = Path(__file__).parents[2]


def test_notebook_begins_what_the_command_line_ends(tmp_path: Path, address: str) -> None:
    tune = Tune(tmp_path, address)
    done = subprocess.run(
        [sys.executable, ROOT / "tests/ray/notebook.py", ROOT / "docs/notebook.ipynb"],
        cwd=tmp_path,
        env={**os.environ, **ENV},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " trials\n" in done.stdout  # the table of a sweep that runs
    paths = tune.paths("notebook")
    soup = read_soup(paths.soup("uniform-2"))
    assert soup.scores["uniform"].interval is not None
    weights = [load_file(p) for p in paths.trials.glob("*/models/*/model.safetensors")]
    average = load_file(paths.exports / "uniform-2-safetensors" / "model.safetensors")
    mean = sum(w["weight"].item() for w in weights) / 2
    assert average["weight"].item() == pytest.approx(mean)
    assert (paths.exports / f"{tune.best('notebook')['trial']}-pt2" / "model.pt2").is_file()

    tune("resume", "notebook", "--trials", "+1")
    assert [r.state.value for r in tune.trials("notebook")] == ["completed"] * 3
    confirmed = tune("best", "notebook", "--confirm", "1", "--reevaluate")
    assert "on the test split" in confirmed
