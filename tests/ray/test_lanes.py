"""A trial cannot tell whether it is the first of its processes, nor what ran in them before it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from results.records.trial import TrialRecord, TrialState
from tests.chaos.cluster import Cluster
from tests.ray.conftest import Tune

CODE = """
import logging, os
import torch
from pydantic import Field
from torch import nn
from torch.nn.modules.module import register_module_forward_hook
from trainables.base import Trainable, TrainableConfig
from trainables.common.training import data_parallel
from trainables.job import Answer

kept = []
ROLES = {roles}

class Config(TrainableConfig):
    index: int = Field(description="of its role")

class Tidy(Trainable):
    Config = Config

    def train(self, config, worker):
        print("pid", os.getpid())
        getattr(self, ROLES[config.index])(worker)

    def plain(self, worker):
        torch.manual_seed(7)  # not the trial's: the same trial, again and again
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

    def untidy(self, worker):
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

class Short(Tidy):
    def train(self, config, worker):
        worker.report(step=1, metrics={"loss": 0.0}, final=True)

class Alone(Tidy):
    isolation = "trial"
"""

SWEEP = """
name: tidy
trainable: tidy.py:Tidy
metric: loss
space: {index: {grid_search: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}}
scheduler: {name: none}
resources: {workers: 2, max_lane_growth: 64}
failure: {max_retries: 0}
tracking: {name: none}
"""
ROLES = [
    *("plain", "failing", "plain", "untidy", "untidy", "untidy"),
    *("untidy", "failing", "untidy", "plain", "leaking", "plain"),
]
PLAIN = [i for i, role in enumerate(ROLES) if role == "plain"]
LEAKING = ROLES.index("leaking")
TUNE_ACTOR, CPUS = "with_resources.<locals>.ResourceTrainable", 2


@pytest.fixture
def sweep(tune: Tune) -> Path:
    (tune.cwd / "tidy.py").write_text(CODE.replace("{roles}", repr(ROLES)))
    file = tune.cwd / "tidy.yaml"
    file.write_text(SWEEP)
    return file


def pids(tune: Tune, name: str) -> list[str]:
    """The process of each trial's rank 1, in its last attempt."""
    trials = [(tune.paths(name).trial(r.id), len(r.attempts)) for r in tune.trials(name)]
    logs = [paths.log(attempts, 1).read_text() for paths, attempts in trials]
    return [re.match(r"pid (\d+)", log).group(1) for log in logs]


def test_a_trial_is_the_same_first_later_after_failures_and_alone(tune: Tune, sweep: Path) -> None:
    out = tune("run", sweep)
    records = tune.trials("tidy")
    failed = [r.params["index"] for r in records if r.state is TrialState.FAILED]
    assert failed == [i for i, role in enumerate(ROLES) if role == "failing"]
    curves = [tune.values("tidy")[records[i].id] for i in PLAIN]
    assert len(curves[0]) == 5
    assert all(curve == curves[0] for curve in curves)

    processes = pids(tune, "tidy")
    assert len(set(processes[: LEAKING + 1])) == 1, "one lane, failures and all"
    assert processes[LEAKING + 1] != processes[0], "the leak cost the lane"
    assert [r.params["index"] for r in records if leak_of(r)] == [LEAKING]
    assert "rank 1: " in leak_of(records[LEAKING])
    assert "MiB of host memory beyond the " in leak_of(records[LEAKING])
    assert f"memory leak, lane replaced: {records[LEAKING].id} (rank 1: " in out
    assert "memory leak: rank 1: " in tune("show", "tidy", records[LEAKING].id)

    alone = ["--set", "trainable=tidy.py:Alone", "--set", "space.index={grid_search: [0, 2]}"]
    tune("run", sweep, "--name", "alone", *alone)
    assert list(tune.values("alone").values()) == curves[:2]
    assert len(set(pids(tune, "alone"))) == 2, "the trainable asked for fresh processes"


def test_trials_shorter_than_the_start_of_a_process_start_no_more_of_them(
    tune: Tune, sweep: Path, joined: Cluster
) -> None:
    before = Counter(joined.began())
    short = ["trainable=tidy.py:Short", "resources.workers=1", "budget={trials: 60}"]
    short += ["space.index={randint: [0, 9]}"]
    tune("run", sweep, *(f"--set={s}" for s in short))
    began = Counter(joined.began()) - before
    assert 0 < began[TUNE_ACTOR] <= CPUS, began


def leak_of(record: TrialRecord) -> str:
    return record.attempts[0].leak or ""
