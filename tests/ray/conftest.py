"""One local Ray cluster of 2 CPUs for all tests of this folder; sweeps are run by the real CLI."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, read_reports, read_trials
from tests.chaos.cluster import CANARY, ENV, Cluster, cluster
from tests.chaos.invariants import lost_steps
from tests.chaos.pytest_rows import LOST, RECOVERY_S
from tests.chaos.recovery import recovery_s
from tests.ray.machines import Machines
from tests.ray.machines import machines as several_machines
from tuning.evaluation.reproduce import measures_process

LONGEST_S = 900.0
"""Limit for one command (seconds): ten times its duration on an idle machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.ray)
            item.add_marker(pytest.mark.timeout(2 * LONGEST_S))


@pytest.fixture(scope="session")
def joined() -> Iterator[Cluster]:
    """The cluster of all tests."""
    with cluster() as made:
        yield made


@pytest.fixture(scope="session")
def address(joined: Cluster) -> str:
    """Address of the cluster."""
    return joined.address


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    """Another cluster, whose machines join and leave; a test requires a number of them."""
    with several_machines() as made:
        yield made


@dataclass
class Tune:
    """The `tune` program in a folder of its own.

    Attributes:
        cwd: the folder.
        address: of the cluster to join; empty: sessions start one.
    """

    cwd: Path
    address: str

    def start(self, *args: str | Path, wrapper: Sequence[str] = ()) -> subprocess.Popen[str]:
        runs = self.address and args[0] in ("run", "resume", "plan", "doctor")
        joins = ["--address", self.address] if runs else []
        # Where an installed `tune` is shadowed by Ray's, `python -m tuning` is the same program.
        return subprocess.Popen(
            [*wrapper, sys.executable, "-m", "tuning", *map(str, args), *joins],
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENV,
            start_new_session=True,  # a test sends signals to the process group
        )

    def __call__(self, *args: str | Path, code: int = 0) -> str:
        """Run to the end; return stdout, or stderr where an error line is expected."""
        process = self.start(*args)
        out, err = process.communicate(timeout=LONGEST_S)
        assert process.returncode == code, f"exit {process.returncode}\n{out}\n{err}"
        return err if code in (2, 4) else out

    def killed_at(self, point: str, *args: str | Path) -> None:
        """Run until a fault point of the driver kills it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(ENV, "TUNE_CRASH_AT", point)
            process = self.start(*args)
        out, err = process.communicate(timeout=LONGEST_S)
        assert process.returncode == -signal.SIGKILL, f"{process.returncode}\n{out}\n{err}"
        assert "continue with: tune resume" in err

    def paths(self, sweep: str) -> SweepPaths:
        return SweepPaths(self.cwd / "sweeps" / sweep)

    def trials(self, sweep: str) -> list[TrialRecord]:
        return read_trials(self.paths(sweep))

    def curve(self, sweep: str, trial: str) -> list[Report]:
        record = next(r for r in self.trials(sweep) if r.id == trial)
        return read_reports(self.paths(sweep).trial(trial), record.end_step)

    def values(self, sweep: str) -> dict[str, list[tuple[int, dict[str, float]]]]:
        """Curves of all trials, without metrics that measure time or memory."""
        return {
            r.id: [
                (p.step, {k: v for k, v in p.metrics.items() if not measures_process(k)})
                for p in self.curve(sweep, r.id)
            ]
            for r in self.trials(sweep)
        }

    def mlflow(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.cwd / "sweeps" / "mlflow.db") as db:
            return db.execute(query).fetchall()

    def leaks(self) -> list[Path]:
        """Files of the storage that contain a secret, or that other users may read.

        Ray's own marker files have the cluster's mode, in a private folder.
        """
        found = []
        for file in (p for p in (self.cwd / "sweeps").rglob("*") if p.is_file()):
            with suppress(FileNotFoundError):  # Ray's processes may still remove theirs
                open_to_others = file.stat().st_mode & 0o077 and "ray" not in file.parts
                if open_to_others or CANARY.encode() in file.read_bytes():
                    found.append(file)
        return found

    def best(self, sweep: str) -> dict[str, Any]:
        return json.loads(self("best", sweep, "--json"))


@pytest.fixture
def tune(tmp_path: Path, address: str) -> Tune:
    return Tune(tmp_path, address)


@pytest.fixture
def survived(record_property: Callable[[str, object], None]) -> Callable[[SweepPaths], None]:
    """Record the cost of a sweep's faults for the table of `make chaos`."""

    def note(paths: SweepPaths) -> None:
        record_property(LOST, lost_steps(paths))
        record_property(RECOVERY_S, recovery_s(paths))

    return note


def end(process: subprocess.Popen[str], signum: int = signal.SIGKILL) -> tuple[int, str]:
    """Send a signal and wait; return the exit code and stdout."""
    process.send_signal(signum)
    out, _ = process.communicate(timeout=LONGEST_S)
    return process.returncode, out
