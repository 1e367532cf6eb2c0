"""`tune run` on a host, of one trial with a worker on each host."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from results.paths import SweepPaths
from results.records.trial import read_reports, read_trials
from tests.chaos.invariants import lost_steps
from tests.chaos.pytest_rows import LOST, RECOVERY_S
from tests.chaos.recovery import recovery_s
from tests.cluster.hosts import GCS, Host

SWEEP = """
name: {name}
trainable: tests.cluster.paced:Paced
metric: loss
space: {{steps: {{grid_search: [{steps}]}}}}
fixed: {{seconds: {seconds}}}
scheduler: {{name: none}}
resources: {{workers: 2}}
checkpoint: {{every: 1}}
tracking: {{name: none}}
"""
COMMAND = """
name: {name}
command: [torchrun, --nproc-per-node, "{{workers}}", {program}, "{{args}}"]
metric: loss
space: {{epochs: {{grid_search: [{steps}]}}}}
fixed: {{lr: 0.1}}
scheduler: {{name: none}}
resources: {{workers: 2}}
tracking: {{name: none}}
"""
PROGRAM = Path(__file__).parents[1] / "user_code" / "programs" / "ddp.py"
LONGEST_S = 300.0
Measure = Callable[[str, object], None]


class Run:
    """`tune run` on the first host, of one trial with a worker on each host."""

    def __init__(self, host: Host, folder: Path, name: str, steps: int, seconds: float) -> None:
        self.paths, self.steps = SweepPaths(folder / "sweeps" / name), steps
        file, self._output = folder / f"{name}.yaml", folder / "output.log"
        sweep = COMMAND if name == "command" else SWEEP
        file.write_text(sweep.format(name=name, steps=steps, seconds=seconds, program=PROGRAM))
        tune = [sys.executable, "-m", "tuning", "run", str(file), "--address", GCS]
        with open(self._output, "w") as output:
            self._process = subprocess.Popen(
                host.inside(*tune, "--storage", str(self.paths.storage.root)),
                env=host.env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + LONGEST_S
        while text not in self.output:
            assert self._process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)

    def end(self, code: int = 0) -> str:
        assert self._process.wait(LONGEST_S) == code, self.output
        return self.output

    def check(self, record_property: Measure, *, attempts: int) -> None:
        """It ended as if nothing had happened, after so many attempts."""
        self.end()
        [record] = read_trials(self.paths)
        reports = read_reports(self.paths.trial(record.id))
        expected = [n / 2 + n * (n + 1) / 2 for n in range(1, self.steps + 1)]
        assert [r.metrics["loss"] for r in reports] == expected
        assert len(record.attempts) == attempts, self.output
        record_property(LOST, lost_steps(self.paths))
        record_property(RECOVERY_S, recovery_s(self.paths))
        assert lost_steps(self.paths) <= attempts - 1, "an interval of a checkpoint each"
