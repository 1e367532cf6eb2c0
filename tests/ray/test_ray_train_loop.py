"""A train loop from Ray Train's documentation runs unchanged as a trial."""

from __future__ import annotations

import re
from pathlib import Path

from results.analysis import confirmation as confirmations
from results.checkpoints.commit import newest_intact
from results.paths import SweepPaths
from results.records.trial import TrialState, read_reports
from results.records.worker_samples import phase_seconds
from results.trial_paths import TrialPaths
from tests.chaos.cluster import Cluster
from tests.ray.conftest import Tune, end
from tests.waiting import wait_for

LOOP = """
import os
import tempfile
import time

import ray.train
import torch
from ray.train.torch import prepare_model

attempts = []


def train_loop_per_worker(config):
    attempts.append(1)
    print("attempt", len(attempts), "of process", os.getpid())
    # As libraries do that look for their last checkpoint in a relative folder.
    mine = str(config["lr"])
    if os.path.exists("last.txt") and open("last.txt").read() != mine:
        raise RuntimeError("this is the working directory of another trial")
    with open(f"{os.getpid()}.txt", "w") as f:
        f.write(mine)
    os.replace(f"{os.getpid()}.txt", "last.txt")  # the other rank reads it meanwhile
    torch.manual_seed(config["seed"])
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    start = 1
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    print("starting at epoch", start)
    for epoch in range(start, config["epochs"] + 1):
        x = torch.ones(8, 4)
        loss = ((model(x) - 1.0) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        while epoch == 4 and not os.path.exists(config["gate"]):
            time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch},
                           os.path.join(folder, "state.pt"))
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item(), "epoch": epoch}, checkpoint=saved)
"""

SWEEP = """
name: loop
trainable: my_loop.py:train_loop_per_worker
metric: loss
space: {lr: {grid_search: [0.05, 0.0, 0.04]}}
fixed: {epochs: 6, gate: GATE, seed: 0}
scheduler: {name: asha, time_attr: epoch, grace_period: 1, max_t: 6}
resources: {workers: 2, concurrency: 1}
"""
"""The second trial learns nothing, so the scheduler stops it."""


def test_ray_train_loop_is_resumed_and_stopped_early(tune: Tune, joined: Cluster) -> None:
    gate = tune.cwd / "gate"
    (tune.cwd / "my_loop.py").write_text(LOOP)
    (tune.cwd / "loop.yaml").write_text(SWEEP.replace("GATE", str(gate)))
    run = tune.start("run", "loop.yaml")
    paths = tune.paths("loop")
    wait_for(lambda: len(tune.curve("loop", "t0000")) >= 3 if paths.trial_ids() else False, run)
    end(run)
    before = tune.curve("loop", "t0000")

    gate.touch()
    tune("resume", "loop")
    first, second, third = tune.trials("loop")
    assert (first.state, len(first.attempts)) == (TrialState.COMPLETED, 2)
    assert [p.step for p in tune.curve("loop", "t0000")] == [1, 2, 3, 4, 5, 6]
    log = paths.trial("t0000").log(2, 0).read_text()
    resumed_at = int(re.search(r"starting at epoch (\d+)", log).group(1))
    assert before[-1].step <= resumed_at <= before[-1].step + 2
    best = tune.best("loop")
    assert best["step"] == 6
    assert (Path(best["checkpoint"]) / "state.pt").exists()
    names = tune.mlflow("select name from runs order by name")
    assert names == [("loop",), ("t0000",), ("t0001",), ("t0002",)]

    assert (second.state, second.end_step) == (TrialState.STOPPED, 3)
    assert third.attempts[0].error is None
    assert newest_intact(paths.trial("t0001")).step == 3
    measured = phase_seconds(paths.trial("t0002"), third)
    assert measured.keys() == {0, 1}
    assert all(seconds["compute"] and seconds["report"] for seconds in measured.values())
    check_processes(paths)

    check_repetitions(tune, paths, best["trial"])
    assert not joined.left()


def check_repetitions(tune: Tune, paths: SweepPaths, trial: str) -> None:
    """`tune reproduce` and `tune best --confirm` run the loop to the end of the trial."""
    assert "bit-identical in all of 6 reports" in tune("reproduce", "loop", trial)
    tune("best", "loop", "--confirm", "1", "--seeds", "1")
    confirmation = confirmations.read(paths)
    assert [c.trial for c in confirmation.trials] == [trial]
    again = paths.retrained(trial, confirmation.seeds[0])
    assert [r.step for r in read_reports(again)] == [1, 2, 3, 4, 5, 6]


def check_processes(paths: SweepPaths) -> None:
    """Trials share processes, and have no module of another one."""
    used = [attempts(paths.trial(f"t000{n}"), a) for n, a in ((0, 1), (0, 2), (1, 1), (2, 1))]
    assert [{*each.values()} for each in used] == [{1}] * 4
    assert used[1].keys() == used[2].keys() == used[3].keys()
    assert len(used[0] | used[1]) == 4


def attempts(trial: TrialPaths, attempt: int) -> dict[int, int]:
    """Processes of an attempt's ranks, and how often each has called the loop."""
    logs = (trial.log(attempt, rank) for rank in (0, 1))
    text = "".join(log.read_text() for log in logs if log.exists())
    found = re.findall(r"attempt (\d+) of process (\d+)", text)
    return {int(process): int(count) for count, process in found}
