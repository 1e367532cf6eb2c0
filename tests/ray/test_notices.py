"""A cloud takes a machine away: all ranks of its trial save in time, and go on elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.records.failures import Cause
from tests.metadata_server import metadata_server
from tests.ray.conftest import LONGEST_S, Tune
from tests.ray.machines import machines
from tests.waiting import wait_for

LOOP = """
# Saves nothing but at a notice, as Ray Train documents it.
import json
import os
import tempfile
import time

import ray.train
import ray.train.collective


def train(config):
    step, found = 0, ray.train.get_checkpoint()
    if found:
        with found.as_directory() as folder:
            step = json.load(open(os.path.join(folder, "step.json")))
    rank, over = ray.train.get_context().get_world_rank(), False
    while not over:
        time.sleep(1.0)
        step += 1
        notice = ray.train.get_preemption_info()
        with tempfile.TemporaryDirectory() as folder:
            json.dump(step, open(os.path.join(folder, "step.json"), "w"))
            saves = notice is not None and rank == 0
            saved = ray.train.Checkpoint.from_directory(folder) if saves else None
            ray.train.report({"loss": (1.0 + config["x"]) / step, "step": step}, checkpoint=saved)
        over = ray.train.collective.broadcast_from_rank_zero(os.path.exists(config["end"]))


def build(config):
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    two = ScalingConfig(num_workers=2)
    TorchTrainer(train, train_loop_config=config, scaling_config=two).fit()
"""

SWEEP = """
name: noticed
trainable: {trainable}
metric: loss
space: {{x: {{grid_search: [0]}}}}
fixed: {{end: {end}}}
scheduler: {{name: none}}
resources: {{workers: 2}}
{checkpoint}
failure: {{preemption_notices: aws}}
tracking: {{name: none}}
"""


@pytest.mark.parametrize(
    "trainable",
    [
        "tests.ray.stepping:Endless",
        *(pytest.param(f"noticed.py:{f}", marks=pytest.mark.scripts) for f in ("train", "build")),
    ],
)
def test_no_step_is_lost_after_a_notice(tmp_path: Path, trainable: str) -> None:
    end, ours = tmp_path / "end", trainable.startswith("tests.")
    every = "checkpoint: {every: 1000}" if ours else ""  # a loop saves when it likes
    (tmp_path / "noticed.py").write_text(LOOP)
    text = SWEEP.format(end=end, trainable=trainable, checkpoint=every)
    (tmp_path / "noticed.yaml").write_text(text)
    with metadata_server() as cloud, machines() as cluster:
        cluster.add(AWS_EC2_METADATA_SERVICE_ENDPOINT=cloud.url, RAY_NODE_MARKET_TYPE="spot")
        tune = Tune(tmp_path, cluster.address)
        sweep = tune.start("run", "noticed.yaml")
        curve = tune.paths("noticed").trial("t0000").reports
        wait_for(lambda: curve.exists() and len(tune.curve("noticed", "t0000")) >= 3, sweep)
        cluster.add()
        cloud.is_over = True
        wait_for(lambda: tune.curve("noticed", "t0000")[-1].attempt > 1, sweep)
        end.touch()
        out, err = sweep.communicate(timeout=LONGEST_S)
        assert sweep.returncode == 0, f"{out}\n{err}"

    [trial] = tune.trials("noticed")
    first, *others = trial.attempts
    assert first.cause is Cause.PREEMPTION
    assert "machine is taken away" in str(first.error)
    markets = {first.spot, others[-1].spot}  # rank 0 may be on either machine
    assert markets <= {True, None}, "the record says which price counts"
    assert not any(attempt.error for attempt in others)
    steps = [report.step for report in tune.curve("noticed", "t0000")]
    assert steps == list(range(1, len(steps) + 1)), "none is lost, none is done twice"
