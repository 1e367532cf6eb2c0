"""A sweep of one trial that is submitted to an engine, and looked at by `tune queue`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from results.paths import SweepPaths
from results.records.trial import read_reports, read_trials
from tests.chaos.invariants import lost_steps
from tests.cluster.sweep import LONGEST_S

TUNE = (sys.executable, "-m", "tuning")
SWEEP = """
name: {name}
trainable: tests.cluster.paced:Paced
metric: loss
space: {{steps: {{grid_search: [{steps}]}}}}
fixed: {{seconds: 0.5}}
scheduler: {{name: none}}
resources: {{workers: 1}}
checkpoint: {{every: 1}}
tracking: {{name: none}}
cluster: {{max_nodes: 1, cpus: 2, memory: 2}}
"""


class Submitted:
    """The sweep.

    Args:
        env: of the program.
        engine: its name.
        folder: for the sweep file and the storage.
        options: of `tune submit`.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        engine: str,
        folder: Path,
        name: str,
        steps: int,
        *options: str,
    ) -> None:
        self.engine, self.steps = engine, steps
        self._env, self._folder = env, folder
        self.paths = SweepPaths(folder / "sweeps" / name)
        self.file = folder / f"{name}.yaml"
        self.file.write_text(SWEEP.format(name=name, steps=steps))
        said = self.submit(*options)
        found = re.search(rf"{engine} job (\S+) begins", said)
        assert found, said
        self.id = found[1]

    def submit(self, *options: str, code: int = 0) -> str:
        return self.tune("submit", str(self.file), "--to", self.engine, *options, code=code)

    def tune(self, *args: str, code: int = 0) -> str:
        storage = ["--storage", str(self.paths.storage.root)]
        command = [*TUNE, *args, *storage]
        done = subprocess.run(
            command, env=self._env, cwd=self._folder, capture_output=True, text=True
        )
        assert done.returncode == code, f"{args}: {done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    @property
    def step(self) -> int:
        """The last step that was reported."""
        reports = [r for t in self.paths.trial_ids() for r in read_reports(self.paths.trial(t))]
        return max((r.step for r in reports), default=0)

    @property
    def states(self) -> str:
        return self.tune("queue")

    @property
    def log(self) -> str:
        return self.paths.log.read_text() if self.paths.log.exists() else ""

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not holds():
            assert time.monotonic() < deadline, f"{self.states}\n{self.log}"
            time.sleep(0.5)

    def check(self, attempts: int) -> None:
        """It ended as if nothing had happened, after so many attempts."""
        self.wait_until(lambda: " ended " in self.states)
        [record] = read_trials(self.paths)
        reports = read_reports(self.paths.trial(record.id))
        assert [r.step for r in reports] == [*range(1, self.steps + 1)]
        assert len(record.attempts) == attempts, self.log
        assert lost_steps(self.paths) <= attempts - 1, "an interval of a checkpoint each"
        assert re.search(r" ended .*done ", self.states)
