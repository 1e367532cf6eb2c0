"""The train loop of the benchmarks, by Ray's public API only."""

from __future__ import annotations

import time
from typing import Any

import ray
import ray.train
import ray.train.torch
import ray.tune

from benchmarks.work import Workload, loss_at, tiny_model, work


def train_fn_per_worker(config: dict[str, Any]) -> None:
    """The train loop of every worker."""
    began = time.time()
    model = ray.train.torch.prepare_model(tiny_model())
    job = Workload.loads(config["job"])
    held = ray.util.get_current_placement_group()
    group = f"id {held.id.hex()}" if held else ""
    for step in range(1, job.reports + 1):
        work(model, job.step_s)
        loss = loss_at(config["x"], config["learning_rate"], step)
        times = {"reported_at": time.time(), "began_at": began}
        ray.train.report({"loss": loss, "step": step, **times, "group": group})


def tune_function(config: dict[str, Any]) -> None:
    """The same loop, as a function for Ray Tune."""
    model, job = tiny_model(), Workload.loads(config["job"])
    for step in range(1, job.reports + 1):
        work(model, job.step_s)
        loss = loss_at(config["x"], config["learning_rate"], step)
        ray.tune.report({"loss": loss, "step": step, "reported_at": time.time()})
