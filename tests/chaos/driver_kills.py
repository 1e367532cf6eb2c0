"""Row 5: SIGKILL to the driver at random moments, under Ray; the sweep is resumed each time."""

from __future__ import annotations

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

from results.paths import SweepPaths
from results.records.trial import TrialRecord
from results.storage.fault_injection import POINTS, VARIABLE
from tests.chaos.cluster import ENV, Cluster, cluster, kill_all_with, processes_with
from tests.chaos.invariants import Case, finished_trials, lost_steps, violations
from tests.chaos.outcome import Outcome
from tests.chaos.recovery import recovery_s

KILLS = 10
"""Kills per case."""
INTERVAL = 3
SWEEP = f"""
name: digits
trainable: digits
metric: accuracy
mode: max
space:
  learning_rate: {{loguniform: [1.0e-4, 1.0e-1]}}
  hidden_units: {{choice: [16, 32]}}
fixed: {{epochs: 40, batch_size: 64}}
search: {{startup_trials: 4}}
scheduler: {{name: asha, grace_period: 4, max_t: 40}}
budget: {{trials: 8}}
resources: {{workers: 1, concurrency: 1}}
checkpoint: {{every: {INTERVAL}}}
seed: 1
"""
NEVER = {"driver:released", "driver:failed"}
"""Fault points that an undisturbed session passes at its end, or never."""
_POINTS = sorted(p for p in POINTS if p.startswith("driver:") and p not in NEVER)
MARK = "TUNE_CHAOS_MARK"
_LONGEST_S = 900.0


def cases(count: int) -> list[str]:
    """Enough cases for at least `count` kills."""
    return [str(number) for number in range(-(-count // KILLS))]


def killed_drivers(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """Kill the drivers of sweeps repeatedly; each sweep ends like an uninterrupted one."""
    with cluster() as joined:
        yield from _killed(folder, names, joined)


def killed_with_their_clusters(folder: Path, names: list[str]) -> Iterator[Outcome]:
    """The same with drivers that start a cluster of their own, which is lost with them: killed at
    the same time, or ending by itself later. The resume begins at once.
    """
    yield from _killed(folder, names, None)


def _killed(folder: Path, names: list[str], joined: Cluster | None) -> Iterator[Outcome]:
    (folder / "digits.yaml").write_text(SWEEP)
    driver = _Driver(folder, joined)
    began = time.monotonic()
    driver.run("whole", random.Random(), kills=0)
    took_s = time.monotonic() - began
    for name in names:
        yield driver.case(name, took_s)


@dataclass
class _Driver:
    """Starts the program in a folder and kills it.

    Attributes:
        cwd: the folder.
        joined: a cluster that outlives the driver; None: the driver starts its own.
        mark: value of an environment variable of all processes it starts.
        finished: trials that were finished at the time of a kill.
        problems: broken invariants, one line each.
        whole_s: duration of an uninterrupted sweep (seconds).
    """

    cwd: Path
    joined: Cluster | None
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    finished: dict[str, TrialRecord] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    whole_s: float = 0.0

    def case(self, name: str, whole_s: float) -> Outcome:
        """Run sweeps with `KILLS` kills in total, and check the invariants of each."""
        rng = random.Random(f"kills {name}")
        self.problems, self.whole_s = [], whole_s
        kills = lost = sweep = 0
        recovery = 0.0
        while kills < KILLS:
            sweep += 1
            self.finished = {}
            called = f"killed-{name}-{sweep}"
            kills += self.run(called, rng, kills=KILLS - kills)
            case = Case(
                self.paths(called),
                self.paths("whole"),
                self.finished,
                INTERVAL,
                database=self.cwd / "sweeps" / "mlflow.db",
                left=self._left,
            )
            self.problems += [f"{called}: {line}" for line in violations(case)]
            lost = max(lost, lost_steps(case.paths))
            recovery = max(recovery, recovery_s(case.paths))
        return Outcome(name, kills, lost, recovery, tuple(self.problems))

    def run(self, name: str, rng: random.Random, kills: int) -> int:
        """Run a sweep to its end with at most `kills` kills; return their number."""
        args, done = ["run", "digits.yaml", "--name", name], 0
        while True:
            code = self._session(name, args, rng if done < kills else None)
            if code != -signal.SIGKILL:
                self.problems += [f"{name}: exit {code} after kill {done}"] * (code != 0)
                return done
            done += 1
            if self.paths(name).spec.exists():
                self.finished = {**finished_trials(self.paths(name)), **self.finished}
                args = ["resume", name]

    def paths(self, name: str) -> SweepPaths:
        return SweepPaths(self.cwd / "sweeps" / name)

    def _session(self, name: str, args: list[str], rng: random.Random | None) -> int:
        """Run one process of the program, killed at a random moment; return its exit code."""
        way = rng.choices(["point", "at work", "any"], [4, 4, 2])[0] if rng else ""
        at = {VARIABLE: f"{rng.choice(_POINTS)}:{rng.randint(1, 10)}"} if way == "point" else {}
        said = self.cwd / f"{name}.log"
        where = ["--address", self.joined.address] if self.joined else []
        with said.open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tuning", *args, *where],
                cwd=self.cwd,
                env={**ENV, **at, MARK: self.mark},
                stdout=log,
                stderr=log,
            )
        if rng and way == "at work":
            self._until_it_reports(name, process)
            self._kill(process, rng.uniform(0.0, 1.0), at_once=rng.random() < 0.5)
        elif rng and way == "any":
            self._kill(process, rng.uniform(0.0, self.whole_s), at_once=rng.random() < 0.5)
        return process.wait(_LONGEST_S)

    def _kill(self, process: subprocess.Popen[bytes], after_s: float, *, at_once: bool) -> None:
        """Kill a driver that still runs after `after_s`; `at_once`: with its own cluster."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        if at_once and self.joined is None and process.poll() is None:
            kill_all_with(MARK, self.mark)
        process.kill()

    def _left(self) -> list[str]:
        ours = processes_with(MARK, self.mark)
        return [*ours, *self.joined.left()] if self.joined else ours

    def _until_it_reports(self, name: str, process: subprocess.Popen[bytes]) -> None:
        before = self._reported(name)
        while process.poll() is None and self._reported(name) == before:
            time.sleep(0.05)

    def _reported(self, name: str) -> int:
        files = self.paths(name).trials.glob("*/reports.jsonl")
        return sum(f.stat().st_size for f in files)
