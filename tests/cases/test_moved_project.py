"""Sweeps whose project was moved to another folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import read_trials
from search_spaces.errors import UserError
from tests.tuning.trained import train_all
from tuning import api
from tuning.controller.session import open_sweep

SCRIPT = """
from pathlib import Path
from trainables import Trainable, TrainableConfig

class Config(TrainableConfig):
    x: float = 0.5
    data: str = ""

class Mine(Trainable[Config]):
    Config = Config

    def train(self, config, worker):
        assert Path(config.data).read_text() == "data"
        worker.report(step=1, metrics={"loss": config.x}, final=True)

    def evaluate(self, config, weights, split, cache):
        return {}
"""
SWEEP = """
name: mv
trainable: src/train.py:Mine
metric: loss
space: {x: {uniform: [0, 1]}}
fixed: {data: DATA}
scheduler: {name: none}
budget: {trials: 1}
search: {name: random}
"""


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SweepPaths:
    """A sweep of one trial in a project that is in another folder now, the working directory."""
    old, new = tmp_path / "old", tmp_path / "new"
    (old / "src").mkdir(parents=True)
    (old / "src" / "train.py").write_text(SCRIPT)
    (old / "data.txt").write_text("data")
    (old / "s.yaml").write_text(SWEEP.replace("DATA", str(old / "data.txt")))
    monkeypatch.chdir(old)
    paths = api.create(old / "s.yaml", storage=str(old / "sweeps"))
    with open_sweep(paths, read_spec(paths)) as run:
        train_all(run)
    monkeypatch.chdir(tmp_path)
    old.rename(new)
    monkeypatch.chdir(new)
    return SweepPaths(new / "sweeps" / "mv")


@pytest.mark.parametrize("overrides", [[], ["trainable=src/train.py:Mine"]])
def test_moved_project_is_found_and_its_trials_still_fit(
    moved: SweepPaths, overrides: list[str]
) -> None:
    new = moved.root.parents[1]
    _, changed = api.amend(str(moved.root), trials="+1", overrides=overrides)
    assert f"{new} in place of" in changed
    assert "no longer fit" not in changed
    spec = read_spec(moved)
    assert spec.trainable == f"{new}/src/train.py:Mine"
    assert spec.fixed["data"] == f"{new}/data.txt"
    (record,) = read_trials(moved)
    assert record.config["data"] == f"{new}/data.txt"
    with open_sweep(moved, spec) as run:
        train_all(run)
    assert len(read_trials(moved)) == 2


def test_other_code_is_not_taken(moved: SweepPaths) -> None:
    script = moved.root.parents[1] / "src" / "train.py"
    script.write_text(SCRIPT.replace("config.x}", "-config.x}"))
    with pytest.raises(UserError, match="no such file"):
        api.amend(str(moved.root), trials="+1")
    with pytest.raises(UserError, match="--set trainable: cannot change"):
        api.amend(str(moved.root), overrides=["trainable=src/train.py:Mine"])
