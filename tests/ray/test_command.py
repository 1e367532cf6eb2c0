"""A program runs as the trials of a sweep: killed, stopped, resumed, and tracked."""

from __future__ import annotations

import pytest

from results.checkpoints.commit import newest_intact
from results.records.trial import TrialState
from tests.ray.conftest import Tune
from tests.user_code.conftest import is_running, pids_in
from tests.waiting import wait_for

PROGRAM = """
import os, subprocess, sys
from tune_report import checkpoint_dir, report

rate = float(sys.argv[1])
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleep, start_new_session=True)
open(str(child.pid), "w")
weight, epoch = 0.0, 0
if folder := checkpoint_dir():
    weight, epoch = map(float, open(os.path.join(folder, "state")).read().split())
print("workers", sys.argv[2], "from epoch", epoch)
while epoch < 4:
    if epoch == 2 and rate == 0.1 and not os.path.exists("killed"):
        open("killed", "w")
        os.kill(os.getpid(), 9)
    epoch += 1
    weight -= rate * 2 * (weight - 3)
    os.makedirs("checkpoint", exist_ok=True)
    with open("checkpoint/state", "w") as file:
        print(repr(weight), epoch, file=file)
    report(step=epoch, loss=(weight - 3) ** 2, checkpoint="checkpoint")
"""

SWEEP = """
name: command
command: [python, program.py, "{rate}", "{workers}"]
metric: loss
space: {rate: {grid_search: [0.1, 0.0, 0.2]}}
scheduler: {name: asha, grace_period: 2, max_t: 4, reduction_factor: 2}
resources: {workers: 2, concurrency: 1}
"""
"""The second trial learns nothing, so the scheduler stops it."""


PAUSED = """
name: paused
command: [python, program.py, "{rate}", "{workers}"]
metric: loss
space: {rate: {grid_search: [0.2, 0.05, 0.15, 0.08]}}
scheduler: {name: asha_promote, grace_period: 1, max_t: 4, reduction_factor: 2}
resources: {concurrency: 1}
"""


def losses(rate: float) -> list[float]:
    """The curve without interruption."""
    weight, found = 0.0, []
    for _ in range(4):
        weight -= rate * 2 * (weight - 3)
        found.append((weight - 3) ** 2)
    return found


def test_command_is_killed_resumed_stopped_and_tracked(tune: Tune) -> None:
    (tune.cwd / "program.py").write_text(PROGRAM)
    (tune.cwd / "command.yaml").write_text(SWEEP)
    tune("run", "command.yaml")
    paths = tune.paths("command")
    first, second, third = tune.trials("command")
    assert first.attempts[0].error is not None
    assert "the program was killed by SIGKILL" in first.attempts[0].error
    assert [(r.state, r.end_step) for r in (first, second, third)] == [
        (TrialState.COMPLETED, 4),
        (TrialState.STOPPED, 2),
        (TrialState.COMPLETED, 4),
    ]
    for record, rate in ((first, 0.1), (third, 0.2)):
        curve = tune.curve("command", record.id)
        assert [p.step for p in curve] == [1, 2, 3, 4]
        assert [p.metrics["loss"] for p in curve] == losses(rate)
        newest = newest_intact(paths.trial(record.id))
        assert newest is not None
        assert newest.step == 4
    log = paths.trial("t0000").log(2, 0).read_text()
    assert "workers 2 from epoch 2.0" in log
    names = tune.mlflow("select name from runs order by name")
    assert names == [("command",), ("t0000",), ("t0001",), ("t0002",)]
    pids = [pid for record in paths.trial_ids() for pid in pids_in(paths.trial(record).work)]
    assert len(pids) == 4
    wait_for(lambda: not any(map(is_running, pids)))


@pytest.mark.scripts
def test_paused_command_continues_from_its_checkpoint(tune: Tune) -> None:
    (tune.cwd / "program.py").write_text(PROGRAM)
    (tune.cwd / "paused.yaml").write_text(PAUSED)
    tune("run", "paused.yaml")
    states = {record.params["rate"]: record for record in tune.trials("paused")}
    best = states[0.2]
    assert (best.state, best.end_step) == (TrialState.COMPLETED, 4)
    assert len(best.attempts) > 1
    assert TrialState.PAUSED in {record.state for record in states.values()}
    for rate, record in states.items():
        curve = tune.curve("paused", record.id)
        assert [p.metrics["loss"] for p in curve] == losses(rate)[: len(curve)]
    log = tune.paths("paused").trial(best.id).log(len(best.attempts), 0).read_text()
    assert "from epoch 2.0" in log
