"""A machine is lost during a sweep: its trial continues elsewhere, and fewer trials run at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from results.paths import SweepPaths
from results.records.failures import Cause
from results.records.trial import TrialRecord, TrialState
from results.trial_paths import TrialPaths
from tests.ray.conftest import LONGEST_S, Tune
from tests.ray.machines import Machines
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

SWEEP = """
name: machines
trainable: tests.ray.stepping:Patient
metric: loss
space: {{index: {{grid_search: [0, 1, 2, 3]}}}}
fixed: {{lost: {lost}}}
scheduler: {{name: none}}
resources: {{workers: 1, max_trials_per_lane: 2}}
checkpoint: {{every: 1}}
tracking: {{name: none}}
"""


def test_lost_machine_costs_its_trial_an_attempt(
    machines: Machines, tmp_path: Path, survived: Callable[[SweepPaths], None]
) -> None:
    machines.require(2)
    tune = Tune(tmp_path, machines.address)
    lost = tmp_path / "lost"
    (tmp_path / "machines.yaml").write_text(SWEEP.format(lost=lost))

    sweep = tune.start("run", "machines.yaml")
    first = [tune.paths("machines").trial(trial) for trial in ("t0000", "t0001")]
    wait_for(lambda: all(3 in t.checkpoint_steps() and _printed(t) for t in first), sweep)
    pids = [_pid(trial, 1) for trial in first]
    machines.kill()
    wait_for(
        lambda: not all(_runs(pid) for pid in pids), sweep
    )  # workers outlive their raylet for a moment
    lost.touch()
    out, err = sweep.communicate(timeout=LONGEST_S)
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
    """Times of the first and the last report of a trial's last attempt."""
    times = [p.time for p in tune.curve("machines", record.id) if p.attempt == len(record.attempts)]
    return times[0], times[-1]


def _printed(trial: TrialPaths) -> bool:
    """Whether the filter has written the line with the process's id: it is a process too."""
    log = trial.log(1, 0)
    return log.exists() and "pid" in log.read_text()


def _pid(trial: TrialPaths, attempt: int) -> int:
    """Id of the process in which an attempt ran."""
    found = re.search(r"pid (\d+)", trial.log(attempt, 0).read_text())
    assert found is not None
    return int(found.group(1))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
