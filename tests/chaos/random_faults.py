"""Random kills and stops of every kind of process, in every phase of a session.

Each case is a sweep with a Ray cluster of its own. Its faults come from one shuffled list of all
(process, phase, signal), so that a number of cases covers all of them, with the same seeds. A
session that a fault ends is resumed; the sweep ends like an uninterrupted one.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from results.paths import SweepPaths
from results.records.trial import TrialRecord
from tests.chaos.cluster import ENV, processes_with
from tests.chaos.driver_kills import INTERVAL, MARK, SWEEP
from tests.chaos.invariants import Case, finished_trials, lost_steps, violations
from tests.chaos.outcome import Outcome
from tests.chaos.recovery import recovery_s

FAULTS = 5
"""Faults of a case; one is left out if its phase ends before there is such a process."""
SILENT_S = 60.0
"""Seconds without a word after which a session hangs."""
PROCESSES = {
    "driver": (),
    "process group": (),
    "gcs": ("gcs/gcs_server",),
    "raylet": ("raylet/raylet --",),
    "dashboard agent": ("ray::DashboardAgent", "dashboard/agent.py --"),
    "environment agent": ("ray::RuntimeEnvAgent", "agent/main.py --"),
    "broker": ("ray::Broker",),
    "worker": ("ray::RayTrainWorker",),
    "tracking process": ("tracking_process",),
}
"""Kinds of processes to parts of their commands. Ray Train's controller is in the driver."""
PHASES = ("start", "warm-up", "training", "checkpoint", "end")
SIGNALS = {
    "driver": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT),
    "process group": (signal.SIGTERM, signal.SIGINT),
    "worker": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM),
}
_OTHERS = (signal.SIGKILL, signal.SIGSTOP)
Fault = tuple[str, str, signal.Signals]


def faults(case: int) -> list[Fault]:
    """The faults of a case, in the order of the phases, so that one session can have several."""
    every = [
        (process, phase, signum)
        for process, phase in itertools.product(PROCESSES, PHASES)
        for signum in SIGNALS.get(process, _OTHERS)
    ]
    random.Random(14).shuffle(every)
    own = [every[(case * FAULTS + i) % len(every)] for i in range(FAULTS)]
    return sorted(own, key=lambda fault: PHASES.index(fault[1]))


def run(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Run the cases."""
    (folder / "digits.yaml").write_text(SWEEP)
    _Sweep(folder, "whole", random.Random(), []).run()
    for name in names:
        yield _Sweep(folder, f"faults-{name}", random.Random(name), faults(int(name))).case(name)


@dataclass
class _Sweep:
    """A sweep of the program, and the faults that are still to be injected."""

    cwd: Path
    name: str
    rng: random.Random
    faults: list[Fault]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    finished: dict[str, TrialRecord] = field(default_factory=dict)
    injected: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def paths(self) -> SweepPaths:
        return SweepPaths(self.cwd / "sweeps" / self.name)

    @property
    def log(self) -> Path:
        return self.cwd / f"{self.name}.log"

    def case(self, name: str) -> Outcome:
        """Run the sweep with its faults, and check the invariants."""
        self.run()
        whole = SweepPaths(self.paths.root.parent / "whole")
        left = lambda: processes_with(MARK, self.mark)  # noqa: E731
        database = self.paths.root.parent / "mlflow.db"
        case = Case(self.paths, whole, self.finished, INTERVAL, database=database, left=left)
        found = [*self.problems, *violations(case)]
        after = ", ".join(f"{s.name} {process} at {phase}" for process, phase, s in self.injected)
        sys.stderr.write(f"{self.name}: {after}\n")
        costs = lost_steps(self.paths), recovery_s(self.paths)
        return Outcome(name, len(self.injected), *costs, tuple(f"{p} ({after})" for p in found))

    def run(self) -> None:
        """Run and resume the sweep until it is finished."""
        for _ in range(FAULTS + 2):
            exists = self.paths.spec.exists()
            args = ["resume", self.name] if exists else ["run", "digits.yaml", "--name", self.name]
            before = self.log.stat().st_size if self.log.exists() else 0
            code = self._session(args)
            said = self._said(before, code)
            if "Traceback" in said:
                self.problems.append(f"traceback: {said[said.index('Traceback') :][-300:]!r}")
            if code == 0:
                self._sync(said)
                return
            if "tune resume" not in said and "try again" not in said:
                self.problems.append(f"I7: exit {code} without a next command: {said[-200:]!r}")
            if exists or self.paths.spec.exists():
                self.finished = {**finished_trials(self.paths), **self.finished}
        self.problems.append("the sweep did not end")

    def _said(self, before: int, code: int) -> str:
        """Its output; the line after a kill comes from another process, a moment later."""
        deadline = time.monotonic() + 10.0
        said = self.log.read_text()[before:]
        while code and "tune resume" not in said and time.monotonic() < deadline:
            time.sleep(0.1)
            said = self.log.read_text()[before:]
        return said

    def _sync(self, said: str) -> None:
        """Do what the summary proposes if MLflow's process was killed at the end."""
        if "tune sync" in said:
            command = [sys.executable, "-m", "tuning", "sync", self.name]
            subprocess.run(command, cwd=self.cwd, env=ENV, check=True, stdout=subprocess.DEVNULL)

    def _session(self, args: list[str]) -> int:
        with self.log.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuning", *args],
                cwd=self.cwd,
                env={**ENV, MARK: self.mark},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        session = _Session(self, process)
        while process.poll() is None:
            if not session.goes_on():
                self.problems.append(
                    f"silent for {SILENT_S:.0f} s: {self.log.read_text()[-300:]!r}"
                )
                process.kill()
                break
            session.inject()
            time.sleep(0.02)
        return process.wait()

    def size(self) -> int:
        """Bytes of all reports."""
        files = self.paths.trials.glob("*/reports.jsonl")
        return sum(f.stat().st_size for f in files)

    def newest(self) -> int:
        """Number of checkpoints that are written or were."""
        return len({*self.paths.trials.glob("*/checkpoints/*"), *self._hidden()})

    def _hidden(self) -> Iterator[Path]:
        return self.paths.trials.glob("*/checkpoints/.*")


class _Session:
    """One process of the program, to which faults are done."""

    def __init__(self, sweep: _Sweep, process: subprocess.Popen[bytes]) -> None:
        self._sweep, self._process = sweep, process
        self._log_at = sweep.log.stat().st_size
        self._reports, self._checkpoints = sweep.size(), sweep.newest()
        self._heard, self._state = time.monotonic(), (0, 0)
        self._after = time.monotonic() + sweep.rng.uniform(0.0, 1.0)
        self._armed = 0.0

    def goes_on(self) -> bool:
        """Whether the session has said something within `SILENT_S`."""
        state = self._sweep.log.stat().st_size, self._sweep.size()
        if state != self._state:
            self._state, self._heard = state, time.monotonic()
        return time.monotonic() - self._heard < SILENT_S

    def inject(self) -> None:
        """Do the next fault when its phase has come and its process exists."""
        if not self._sweep.faults or time.monotonic() < self._after:
            return
        process, phase, signum = self._sweep.faults[0]
        if self._has_passed(phase):
            self._sweep.faults.pop(0)
        elif self._is_in(phase) and (target := self._find(process)) is not None:
            if not self._armed:
                self._armed = time.monotonic() + self._sweep.rng.choice((0.0, 0.0, 0.3))
            if time.monotonic() >= self._armed:
                self._sweep.injected.append(self._sweep.faults.pop(0))
                self._armed = 0.0
                self._send(target, signum, to_group=process == "process group")
                self._after = time.monotonic() + self._sweep.rng.uniform(0.0, 1.0)

    def _has_passed(self, phase: str) -> bool:
        trains = self._sweep.size() != self._reports
        if phase in ("start", "warm-up") and trains:
            return True
        return phase != "end" and self._is_in("end")

    def _is_in(self, phase: str) -> bool:
        if phase == "start":
            return self._sweep.log.stat().st_size > self._log_at
        if phase == "warm-up":
            return self._find("worker") is not None
        if phase == "training":
            return self._sweep.size() != self._reports
        if phase == "checkpoint":
            return self._sweep.newest() != self._checkpoints
        with self._sweep.log.open() as log:
            log.seek(self._log_at)
            return "writing results" in log.read()

    def _find(self, process: str) -> psutil.Process | None:
        with suppress(psutil.Error):
            driver = psutil.Process(self._process.pid)
            if not PROCESSES[process]:
                return driver
            for child in driver.children(recursive=True):
                with suppress(psutil.Error):
                    title = " ".join(child.cmdline())
                    # a raylet's command names those of its agents
                    is_raylet = "raylet/raylet --" in title
                    if is_raylet == (process == "raylet") and any(
                        part in title for part in PROCESSES[process]
                    ):
                        return child
        return None

    def _send(self, target: psutil.Process, signum: signal.Signals, *, to_group: bool) -> None:
        with suppress(psutil.Error, ProcessLookupError):
            if to_group:
                os.killpg(target.pid, signum)
            else:
                target.send_signal(signum)
        if signum is signal.SIGSTOP:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(self._sweep.rng.choice((1.0, 3.0, 12.0)))
            with suppress(psutil.Error):
                target.send_signal(signal.SIGCONT)
