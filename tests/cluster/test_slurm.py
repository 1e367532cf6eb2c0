"""A real Slurm runs sweeps: preemption, the time limit, and what people ask of the queue."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import read_reports, read_trials
from tests.chaos.invariants import lost_steps
from tests.cluster.slurm import Slurm, slurm, why_not
from tests.cluster.sweep import LONGEST_S

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.timeout(600),
]
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as made:
        yield made


class Submitted:
    """A sweep of one trial that was submitted to the low partition."""

    def __init__(self, cluster: Slurm, folder: Path, name: str, steps: int, *options: str) -> None:
        self.cluster, self.folder, self.steps = cluster, folder, steps
        self.paths = SweepPaths(folder / "sweeps" / name)
        self.file = folder / f"{name}.yaml"
        self.file.write_text(SWEEP.format(name=name, steps=steps))
        said = self.tune("submit", str(self.file), "--to", "slurm", *options)
        found = re.search(r"slurm job (\d+) begins", said)
        assert found, said
        self.id = found[1]

    def tune(self, *args: str, code: int = 0) -> str:
        storage = ["--storage", str(self.paths.storage.root)]
        command = [*TUNE, *args, *storage]
        done = subprocess.run(command, env=self.cluster.env, capture_output=True, text=True)
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
        assert re.search(r" ended +\S+ +done ", self.states)


def test_preempted_sweep_goes_on_by_itself(cluster: Slurm, tmp_path: Path) -> None:
    sweep = Submitted(cluster, tmp_path, "preempted", 20, "--with", "partition=low")
    assert re.search(rf"^{sweep.id} +slurm +(pending|running) ", sweep.states, re.MULTILINE)
    again = sweep.tune("submit", str(sweep.file), "--to", "slurm", code=2)
    assert f"slurm job {sweep.id} has it" in again or "driven by process" in again
    sweep.wait_until(lambda: sweep.step >= 3)
    urgent = ("--partition=high", "--cpus-per-task=2", "--mem=1G", "--output=/dev/null")
    cluster("sbatch", *urgent, "--wrap=sleep 5")
    sweep.wait_until(lambda: "pending" in sweep.states)
    sweep.check(attempts=2)
    assert f"slurm job {sweep.id} has ended" in sweep.tune("cancel", "preempted")


def test_job_is_queued_again_before_its_time_limit(cluster: Slurm, tmp_path: Path) -> None:
    sweep = Submitted(cluster, tmp_path, "limited", 30, "--with", "time=60")
    sweep.wait_until(lambda: sweep.step >= 3)
    cluster("scancel", "--batch", "--signal=USR1", sweep.id)  # as Slurm does at the limit
    sweep.wait_until(lambda: "pending" in sweep.states)
    sweep.check(attempts=2)


def test_cancelled_sweep_keeps_its_checkpoints(cluster: Slurm, tmp_path: Path) -> None:
    sweep = Submitted(cluster, tmp_path, "cancelled", 30)
    sweep.wait_until(lambda: sweep.step >= 3)
    assert "was running, and ends" in sweep.tune("cancel", "cancelled")
    sweep.wait_until(lambda: " ended " in sweep.states)
    assert sweep.step < sweep.steps
    assert sweep.paths.trial("t0000").checkpoint_steps()[-1] == sweep.step
    assert "continues sweep" in sweep.tune("submit", str(sweep.file), "--to", "slurm")
    sweep.check(attempts=2)


def test_job_that_waits_is_cancelled(cluster: Slurm, tmp_path: Path) -> None:
    sweep = Submitted(cluster, tmp_path, "waits", 2, "--with", "hold")
    assert "pending (JobHeldUser)" in sweep.states
    assert "was pending" in sweep.tune("cancel", "waits")
    sweep.wait_until(lambda: " ended " in sweep.states)
    assert sweep.step == 0


def test_refused_job_is_one_line_and_leaves_no_folder(cluster: Slurm, tmp_path: Path) -> None:
    file, storage = tmp_path / "sweep.yaml", tmp_path / "sweeps"
    file.write_text(SWEEP.format(name="refused", steps=1))
    command = [*TUNE, "submit", str(file), "--to", "slurm", "--with", "partition=absent"]
    done = subprocess.run(
        [*command, "--storage", str(storage)], env=cluster.env, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("sbatch: ")
    assert "invalid partition" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (storage / "refused").exists()
