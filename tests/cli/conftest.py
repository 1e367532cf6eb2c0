"""The `tune` program in this process, in an empty folder, and sweeps for it to read."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from tests.results.written import write_checkpoint
from tests.tuning.simulate import finish, make_spec, new_sweep, open_run, train
from tuning.cli.app import main
from tuning.controller.sweep import SweepController

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "search_spaces" / "digits.yaml"


@dataclass(frozen=True)
class Outcome:
    """Exit code, stdout and stderr of a command."""

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

    def __call__(self, *args: str | Path, code: int | None = 0) -> Outcome:
        self.monkeypatch.setattr(sys, "argv", ["tune", *map(str, args)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        outcome = Outcome(int(ended.value.code or 0), *self.capsys.readouterr())
        assert code is None or outcome.code == code, outcome
        return outcome

    def refused(self, *args: str | Path) -> str:
        """Run a command that must fail as a mistake of the user; returns stderr."""
        outcome = self(*args, code=2)
        assert outcome.out == ""
        assert "Traceback" not in outcome.err
        return outcome.err

    def sweep(self, name: str = "simulated", done: bool = True, **changes: Any) -> SweepPaths:
        """A sweep in ./sweeps, simulated to its end unless `done` is False."""
        spec = make_spec(**{"name": name, "tracking": {"name": "none"}, **changes})
        paths = new_sweep(spec)
        if done:
            finish(open_run(paths.root, spec))
        return paths

    def begun(self, **changes: Any) -> tuple[SweepPaths, SweepController]:
        """The sweep `mine` before its first trial, and its controller."""
        paths = self.sweep("mine", done=False, **changes)
        return paths, open_run(paths.root, make_spec(name="mine", **changes))

    def unfinished(self, **changes: Any) -> tuple[SweepPaths, SweepController]:
        """The sweep `mine`, whose first trial has reported twice and still runs."""
        paths, run = self.begun(**changes)
        train(run, run.next_trial(), upto=2)
        return paths, run

    def best(self, *args: str | Path) -> dict[str, Any]:
        """What `tune best` prints as JSON."""
        found: dict[str, Any] = json.loads(self("best", *args, "--json").out)
        return found

    def write(self, name: str, text: str) -> Path:
        path = self.cwd / name
        path.write_text(text)
        return path


def add_checkpoint(paths: SweepPaths, trial_id: str, step: int) -> Path:
    """A complete checkpoint whose weights cannot be loaded."""
    return write_checkpoint(paths.trial(trial_id), step, {"model.safetensors": "weights"})


@pytest.fixture
def tune(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tune]:
    monkeypatch.chdir(tmp_path)
    for name in ("TUNE_STORAGE", "COLUMNS", "FORCE_COLOR", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory() as short:  # the user's `tune up` must not get the commands
        monkeypatch.setenv("RAY_TMPDIR", short)
        yield Tune(tmp_path, capsys, monkeypatch)


@pytest.fixture
def listing(tmp_path: Path) -> Callable[[], list[str]]:
    """Lists every file and folder in the folder where `tune` runs."""
    return lambda: sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*"))
