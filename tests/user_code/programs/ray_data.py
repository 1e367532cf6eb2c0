"""Ray Data feeds Ray Train: a data set with a preprocessing step, split over the workers."""

import os
import tempfile

import numpy as np
import ray.data
import ray.train
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model


def normalize(batch):
    return {"x": batch["id"].astype(np.float32) / 255}


def train_func(config):
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    start = 1
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(start, config["epochs"] + 1):
        x = torch.cat([batch["x"] for batch in shard.iter_torch_batches(batch_size=32)])[:, None]
        loss = ((model(x) - (3 * x + 1)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics = {"loss": (model.module.weight - 3).abs().item(), "epoch": epoch, "rows": len(x)}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if ray.train.get_context().get_world_rank() == 0:
                state = {"model": model.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(folder, "state.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


def main(config):
    dataset = ray.data.range(256).map_batches(normalize)
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"lr": config["lr"], "epochs": 6},
        datasets={"train": dataset},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="ray_data_example", storage_path="/tmp/ray_results"),
    )
    result = trainer.fit()
    print("final loss", result.metrics["loss"])


if __name__ == "__main__":
    main({"lr": 0.1})
