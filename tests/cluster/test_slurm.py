"""A real Slurm runs sweeps: preemption, the time limit, and what people ask of the queue."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.slurm import Slurm, slurm, why_not
from tests.cluster.submitted import SWEEP, TUNE, Submitted

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm")) as made:
        yield made


def submitted(cluster: Slurm, folder: Path, name: str, steps: int, *options: str) -> Submitted:
    return Submitted(cluster.env, "slurm", folder, name, steps, *options)


def test_preempted_sweep_goes_on_by_itself(cluster: Slurm, tmp_path: Path) -> None:
    sweep = submitted(cluster, tmp_path, "preempted", 20, "--with", "partition=low")
    assert re.search(rf"^{sweep.id} +slurm +(pending|running) ", sweep.states, re.MULTILINE)
    again = sweep.submit(code=2)
    assert f"slurm job {sweep.id} has it" in again or "driven by process" in again
    sweep.wait_until(lambda: sweep.step >= 3)
    urgent = ("--partition=high", "--cpus-per-task=2", "--mem=1G", "--output=/dev/null")
    cluster("sbatch", *urgent, "--wrap=sleep 5")
    sweep.wait_until(lambda: "pending" in sweep.states)
    sweep.check(attempts=2)
    assert f"slurm job {sweep.id} has ended" in sweep.tune("cancel", "preempted")


def test_job_is_queued_again_before_its_time_limit(cluster: Slurm, tmp_path: Path) -> None:
    sweep = submitted(cluster, tmp_path, "limited", 30, "--with", "time=60")
    sweep.wait_until(lambda: sweep.step >= 3)
    cluster("scancel", "--batch", "--signal=USR1", sweep.id)  # as Slurm does at the limit
    sweep.wait_until(lambda: "pending" in sweep.states)
    sweep.check(attempts=2)


def test_cancelled_sweep_keeps_its_checkpoints(cluster: Slurm, tmp_path: Path) -> None:
    sweep = submitted(cluster, tmp_path, "cancelled", 30)
    sweep.wait_until(lambda: sweep.step >= 3)
    assert "was running, and ends" in sweep.tune("cancel", "cancelled")
    sweep.wait_until(lambda: " ended " in sweep.states)
    assert sweep.step < sweep.steps
    assert sweep.paths.trial("t0000").checkpoint_steps()[-1] == sweep.step
    assert "continues sweep" in sweep.submit()
    sweep.check(attempts=2)


def test_job_that_waits_is_cancelled(cluster: Slurm, tmp_path: Path) -> None:
    sweep = submitted(cluster, tmp_path, "waits", 2, "--with", "hold")
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
