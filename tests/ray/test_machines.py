"""A machine is lost in mid-sweep: its trial goes on elsewhere, and fewer trials run at once."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from results.failures import Cause
from results.paths import SweepPaths, TrialPaths
from results.records import TrialRecord, TrialState
from tests.chaos.cluster import ENV
from tests.ray.conftest import Tune, wait_for

TWO_MACHINES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
second = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.2")
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(second, allow_graceful=False)
print("lost", flush=True)
sys.stdin.read()
cluster.shutdown()
"""

CODE = """
import os, threading
from pathlib import Path
from pydantic import Field
from trainables.base import Trainable, TrainableConfig

class Config(TrainableConfig):
    index: int = Field(description="of no effect")
    lost: str = Field(description="a file that is there once the machine is lost")

class Patient(Trainable):
    Config = Config

    def train(self, config, worker):
        print("pid", os.getpid(), flush=True)
        found = worker.resume()
        value = float((found.folder / "value.txt").read_text()) if found else 0.0
        for step in range(found.step + 1 if found else 1, 7):
            value = 0.9 * value + step
            while step == 4 and not Path(config.lost).exists():
                threading.Event().wait(0.05)
            save = lambda folder: self.save(folder, value)
            worker.report(step=step, metrics={"loss": value}, checkpoint=save, final=step == 6)

    def save(self, folder, value):
        (folder / "value.txt").write_text(repr(value))

    def evaluate(self, config, weights, split, cache):
        return {"loss": 0.0}
"""

SWEEP = """
name: machines
trainable: patient.py:Patient
metric: loss
space: {{index: {{grid_search: [0, 1, 2, 3]}}}}
fixed: {{lost: {lost}}}
scheduler: {{name: none}}
resources: {{workers: 1, max_trials_per_lane: 2}}
checkpoint: {{every: 1}}
tracking: {{name: none}}
"""


@pytest.fixture
def machines() -> Iterator[subprocess.Popen[str]]:
    """A cluster of two machines of one CPU; a line to it loses the second."""
    with subprocess.Popen(
        [sys.executable, "-c", TWO_MACHINES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=ENV,
    ) as holder:
        yield holder
        assert holder.stdin is not None
        holder.stdin.close()
        holder.wait(60)


def test_a_lost_machine_costs_its_trial_an_attempt(
    machines: subprocess.Popen[str], tmp_path: Path, survived: Callable[[SweepPaths], None]
) -> None:
    assert machines.stdout is not None
    assert machines.stdin is not None
    tune = Tune(tmp_path, machines.stdout.readline().strip())
    lost = tmp_path / "lost"
    (tmp_path / "patient.py").write_text(CODE)
    (tmp_path / "machines.yaml").write_text(SWEEP.format(lost=lost))

    sweep = tune.start("run", "machines.yaml")
    first = [tune.paths("machines").trial(trial) for trial in ("t0000", "t0001")]
    wait_for(lambda: all(3 in t.checkpoint_steps() for t in first), sweep)
    machines.stdin.write("lose one\n")
    machines.stdin.flush()
    assert machines.stdout.readline() == "lost\n"
    pids = [_pid(trial, 1) for trial in first]
    wait_for(lambda: not all(_runs(pid) for pid in pids), sweep)  # they outlive their raylet a bit
    lost.touch()
    out, err = sweep.communicate(timeout=250)
    assert sweep.returncode == 0, f"{out}\n{err}"

    records = tune.trials("machines")
    assert [r.state for r in records] == [TrialState.COMPLETED] * 4
    curves = list(tune.values("machines").values())
    assert len(curves[0]) == 6
    assert all(curve == curves[0] for curve in curves)

    [retried] = [r for r in records if any(a.error for a in r.attempts)]
    assert retried.id in ("t0000", "t0001")
    assert {a.cause for a in retried.attempts} == {Cause.INFRASTRUCTURE, None}
    ran = sorted(_heard(tune, record) for record in records)
    assert all(a[1] <= b[0] for a, b in pairwise(ran)), "one at a time is left"

    hosts = Counter(_pid(tune.paths("machines").trial(r.id), len(r.attempts)) for r in records)
    assert max(hosts.values()) <= 2, "max_trials_per_lane"
    survived(tune.paths("machines"))


def _heard(tune: Tune, record: TrialRecord) -> tuple[float, float]:
    """When the first and the last report of a trial's last attempt came."""
    times = [p.time for p in tune.curve("machines", record.id) if p.attempt == len(record.attempts)]
    return times[0], times[-1]


def _pid(trial: TrialPaths, attempt: int) -> int:
    """Of the process in which an attempt ran."""
    found = re.search(r"pid (\d+)", trial.log(attempt, 0).read_text())
    assert found is not None
    return int(found.group(1))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
