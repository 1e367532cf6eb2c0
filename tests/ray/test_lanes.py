"""A trial does not depend on what ran in its processes before it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from results.records.trial import TrialRecord, TrialState
from tests.chaos.cluster import Cluster
from tests.ray.conftest import Tune

CODE = """
import logging, os
import torch
import torch.distributed as dist
from pydantic import Field
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from trainables.base import Trainable, TrainableConfig
from trainables.training.gradients import data_parallel
from trainables.job import Answer

kept = []
ROLES = {roles}

class Config(TrainableConfig):
    index: int = Field(description="of its role")

class Roles(Trainable):
    Config = Config

    def train(self, config, worker):
        print("pid", os.getpid())
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        print("timeout", group.options._timeout)
        getattr(self, ROLES[config.index])(worker)

    def plain(self, worker):
        torch.manual_seed(7)  # not the trial's seed: all plain trials are equal
        model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.3), nn.Linear(32, 1))
        model = data_parallel(model, worker)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        for step in range(1, 6):
            x = torch.randn(16, 8)
            loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            worker.report(step=step, metrics={"loss": loss.item()}, final=step == 5)

    def changes_globals(self, worker):
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        register_module_forward_hook(lambda module, given, out: out * 2)
        logging.disable()
        os.environ["OMP_NUM_THREADS"] = "7"
        os.chdir("/")
        worker.report(step=1, metrics={"loss": 9.0}, final=True)

    def failing(self, worker):
        self.plain(worker)
        torch.set_default_dtype(torch.float64)
        raise ValueError("bad luck")

    def leaking(self, worker):
        if worker.rank == 1:
            kept.append(b"x" * (96 * 2**20))
        worker.report(step=1, metrics={"loss": 9.0}, final=True)

    def evaluate(self, config, weights, split, cache):
        return {"loss": 0.0}

class Short(Roles):
    def train(self, config, worker):
        worker.report(step=1, metrics={"loss": 0.0}, final=True)

class Alone(Roles):
    isolation = "trial"
"""

SWEEP = """
name: lanes
trainable: roles.py:Roles
metric: loss
space: {index: {grid_search: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}}
scheduler: {name: none}
resources: {workers: 2, max_lane_growth: 64, process_group_timeout: 20m}
failure: {max_retries: 0}
tracking: {name: none}
"""
ROLES = [
    *("plain", "failing", "plain", "changes_globals", "changes_globals", "changes_globals"),
    *("changes_globals", "failing", "changes_globals", "plain", "leaking", "plain"),
]
PLAIN = [i for i, role in enumerate(ROLES) if role == "plain"]
LEAKING = ROLES.index("leaking")


@pytest.fixture
def sweep(tune: Tune) -> Path:
    (tune.cwd / "roles.py").write_text(CODE.replace("{roles}", repr(ROLES)))
    file = tune.cwd / "lanes.yaml"
    file.write_text(SWEEP)
    return file


def logs(tune: Tune, name: str) -> list[str]:
    """The log of each trial's rank 1, in its last attempt."""
    trials = [(tune.paths(name).trial(r.id), len(r.attempts)) for r in tune.trials(name)]
    return [paths.log(attempts, 1).read_text() for paths, attempts in trials]


def pids(tune: Tune, name: str) -> list[str]:
    """The process of each of these logs."""
    return [re.match(r"pid (\d+)", log).group(1) for log in logs(tune, name)]


def test_lane_trials_do_not_depend_on_earlier_trials(tune: Tune, sweep: Path) -> None:
    out = tune("run", sweep)
    records = tune.trials("lanes")
    failed = [r.params["index"] for r in records if r.state is TrialState.FAILED]
    assert failed == [i for i, role in enumerate(ROLES) if role == "failing"]
    curves = [tune.values("lanes")[records[i].id] for i in PLAIN]
    assert len(curves[0]) == 5
    assert all(curve == curves[0] for curve in curves)

    limited = ["\ntimeout 0:20:00\n" in log for log in logs(tune, "lanes")]
    assert all(limited), "also of a renewed process group"

    processes = pids(tune, "lanes")
    assert len(set(processes[: LEAKING + 1])) == 1, "one lane, failures included"
    assert processes[LEAKING + 1] != processes[0], "the leak retired the lane"
    assert [r.params["index"] for r in records if leak_of(r)] == [LEAKING]
    assert "rank 1: " in leak_of(records[LEAKING])
    assert "MiB of host memory beyond the " in leak_of(records[LEAKING])
    assert f"leak, lane replaced: {records[LEAKING].id} (rank 1: " in out
    assert "leak: rank 1: " in tune("show", "lanes", records[LEAKING].id)

    alone = ["--set", "trainable=roles.py:Alone", "--set", "space.index={grid_search: [0, 2]}"]
    tune("run", sweep, "--name", "alone", *alone)
    assert list(tune.values("alone").values()) == curves[:2]
    assert len(set(pids(tune, "alone"))) == 2, "the trainable asks for fresh processes"


def test_trials_start_no_process_of_ray_tune(tune: Tune, sweep: Path, joined: Cluster) -> None:
    before = Counter(joined.began())
    short = ["trainable=roles.py:Short", "resources.workers=1", "budget={trials: 60}"]
    short += ["space.index={randint: [0, 9]}"]
    out = tune("run", sweep, *(f"--set={s}" for s in short))
    began = Counter(joined.began()) - before
    assert began["Broker"] == 1
    assert not [n for n in began if any(k in n for k in ("Trainable", "Attempt", "Sync"))], began
    first, *others = tune.trials("lanes")
    assert first.attempts[0].waited > 0.5, "the lane's start is not the trial's time"
    assert median(r.attempts[0].waited for r in others) == 0.0
    assert "\nwaited for workers to start: " in out


def leak_of(record: TrialRecord) -> str:
    return record.attempts[0].leak or ""
