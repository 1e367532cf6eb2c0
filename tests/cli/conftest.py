"""The real program in this process: `tune("ls")` in an empty folder, and sweeps to look at."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from results.checkpoints.commit import commit, create_staging, staging_folder
from results.paths import SweepPaths
from search_spaces.loading.sweep_file import LoadedSweep, Source
from tests.tuning.simulate import finish, make_spec, open_run
from tuning.cli.app import main
from tuning.controller.sweep_dir.folder import create_sweep

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "search_spaces" / "digits.yaml"


@dataclass(frozen=True)
class Outcome:
    """What a command said: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[list[str]]:
        """Words of each line of stdout."""
        return [line.split() for line in self.out.splitlines()]


@dataclass
class Tune:
    """The `tune` program in `cwd`."""

    cwd: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *args: str | Path, code: int = 0) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["tune", *map(str, args)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        outcome = Outcome(int(ended.value.code or 0), *self.capsys.readouterr())
        assert outcome.code == code, outcome
        return outcome

    def refused(self, *args: str | Path) -> str:
        """Run what is a mistake, as a user would see it; gives the lines on stderr."""
        said = self(*args, code=2)
        assert said.out == ""
        assert "Traceback" not in said.err
        return said.err

    def sweep(self, name: str = "simulated", done: bool = True, **changes: Any) -> SweepPaths:
        """A sweep in ./sweeps, run to its end by hand unless `done` is False."""
        spec = make_spec(**{"name": name, "tracking": {"name": "none"}, **changes})
        loaded = LoadedSweep(spec, Source("simulated.yaml"), Path("simulated.yaml"), ())
        paths = create_sweep(loaded, None, None)
        if done:
            finish(open_run(paths.root, spec))
        return paths

    def write(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.write_text(text)
        return path


def add_checkpoint(paths: SweepPaths, trial_id: str, step: int) -> Path:
    """A whole checkpoint, of no model that could be loaded."""
    trial = paths.trial(trial_id)
    folder = staging_folder(trial, step, 1)
    create_staging(folder)
    (folder / "model.safetensors").write_bytes(b"weights")
    commit(folder, trial.checkpoint(step), step=step)
    return trial.checkpoint(step)


@pytest.fixture
def tune(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tune:
    monkeypatch.chdir(tmp_path)
    for name in ("TUNE_STORAGE", "COLUMNS", "FORCE_COLOR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    return Tune(tmp_path, capsys, monkeypatch)


@pytest.fixture
def listing(tmp_path: Path) -> Callable[[], list[str]]:
    """Every file and folder below the folder in which `tune` runs."""
    return lambda: sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
