"""Loops for Ray Train share processes; those that leave something behind get new ones."""

from __future__ import annotations

import re

import pytest

from results.records.trial import TrialState
from tests.ray.conftest import Tune

pytestmark = pytest.mark.scripts

LOOP = """
import os
import threading

import ray.train
import ray.train.torch
import torch
import torch.distributed as dist

torch.manual_seed(3)
print("pid", os.getpid())


def loop(config):
    kind = config["kind"]
    model = ray.train.torch.prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for epoch in range(1, 4):
        loss = (model(torch.randn(8, 4)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rank = ray.train.get_context().get_world_rank()
        ray.train.report({"loss": loss.item() if rank == 0 else "other", "epoch": epoch})
    torch.set_default_dtype(torch.float64)
    os.chdir("/")
    if kind == "leaks":
        threading.Thread(target=threading.Event().wait, name="server", daemon=True).start()
    if kind == "ends":
        dist.destroy_process_group()

"""

SWEEP = """
name: lanes
trainable: loops.py:loop
metric: loss
space: {{kind: {{grid_search: [{kinds}]}}}}
scheduler: {{name: none, time_attr: epoch}}
resources: {{workers: {workers}, concurrency: 1{more}}}
failure: {{max_retries: 0}}
tracking: {{name: none}}
"""


def run(tune: Tune, name: str, kinds: str, workers: int, more: str = "") -> list[str]:
    """The processes of the trials' first ranks, in order."""
    (tune.cwd / "loops.py").write_text(LOOP)
    text = SWEEP.format(kinds=kinds, workers=workers, more=more).replace("lanes", name, 1)
    (tune.cwd / f"{name}.yaml").write_text(text)
    tune("run", f"{name}.yaml")
    records = tune.trials(name)
    assert {r.state for r in records} == {TrialState.COMPLETED}
    logs = (tune.paths(name).trial(r.id).log(len(r.attempts), 0).read_text() for r in records)
    return [re.findall(r"pid (\d+)", log)[-1] for log in logs]


@pytest.mark.parametrize("workers", [1, 2])
def test_trials_of_one_lane_equal_those_of_fresh_processes(tune: Tune, workers: int) -> None:
    shared = run(tune, "shared", "a, ends, b", workers)
    apart = run(tune, "apart", "a, ends, b", workers, ", isolation: trial")
    assert (len(set(shared)), len(set(apart))) == (1, 3)
    curves = [*tune.values("shared").values(), *tune.values("apart").values()]
    assert len(curves[0]) == 3
    assert all(curve == curves[0] for curve in curves)


def test_loop_that_leaks_gets_fresh_processes_from_then_on(tune: Tune) -> None:
    used = run(tune, "leaking", "leaks, b, c", 1)
    assert len(set(used)) == 3
    [(attempt,)] = [r.attempts for r in tune.trials("leaking") if r.attempts[0].leak]
    assert "thread server" in attempt.leak
    assert "new processes" in attempt.leak
