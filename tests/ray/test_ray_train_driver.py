"""A function that builds a trainer of Ray Train runs unchanged as a trial."""

from __future__ import annotations

import pytest

from results.checkpoints.commit import newest_intact
from results.records.trial import TrialState
from tests.ray.conftest import Tune

pytestmark = pytest.mark.scripts

DRIVER = """
import os
import tempfile

import ray.data
import ray.train
import torch
from helper import square
from ray.train.torch import TorchConfig, TorchTrainer


def loop(config):
    start, checkpoint = 1, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = int(open(os.path.join(folder, "epoch")).read()) + 1
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(start, config["epochs"] + 1):
        if epoch == 3 and not os.path.exists("failed"):
            open("failed", "w").close()
            raise ConnectionError("once")
        total = sum(float(b["id"].sum()) for b in shard.iter_torch_batches(batch_size=4))
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "epoch"), "w") as f:
                f.write(str(epoch))
            saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": square(config["lr"]) / epoch, "total": total}, saved)


def main(config):
    trainer = TorchTrainer(
        loop,
        train_loop_config={**config, "epochs": 4},
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=ray.train.ScalingConfig(num_workers=64, use_gpu=True),
        run_config=ray.train.RunConfig(storage_path="/nowhere", name="shared"),
        datasets={"train": ray.data.range(8)},
    )
    print("best", trainer.fit().metrics)


if __name__ == "__main__":
    main({"lr": 0.1})
"""


def test_function_that_builds_a_trainer_with_datasets(tune: Tune) -> None:
    (tune.cwd / "helper.py").write_text("def square(x):\n    return x * x\n")
    (tune.cwd / "driver.py").write_text(DRIVER)
    (tune.cwd / "driver.yaml").write_text(
        "name: driver\ntrainable: driver.py:main\nmetric: loss\n"
        "space: {lr: {uniform: [1, 2]}}\nscheduler: {name: none}\nbudget: {trials: 1}\n"
        "resources: {concurrency: 1}\ntracking: {name: none}\n"
    )
    tune("run", "driver.yaml")
    (record,) = tune.trials("driver")
    assert (record.state, len(record.attempts)) == (TrialState.COMPLETED, 2)
    curve = tune.curve("driver", "t0000")
    assert [(r.step, r.attempt, r.metrics["total"]) for r in curve] == [
        (1, 1, 28.0),
        (2, 1, 28.0),
        (3, 2, 28.0),
        (4, 2, 28.0),
    ]
    assert [r.metrics["loss"] for r in curve] == [record.params["lr"] ** 2 / s for s in range(1, 5)]
    trial = tune.paths("driver").trial("t0000")
    assert "best {" in (trial.attempt(2) / "driver.log").read_text()
    assert newest_intact(trial).step == 4
