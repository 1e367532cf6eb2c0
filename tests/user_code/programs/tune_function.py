"""Ray Tune, function API: reports with checkpoints, and restores by `tune.get_checkpoint`."""

import os
import tempfile

import torch
from ray import tune
from sklearn.datasets import load_digits


def train_digits(config):
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    inputs, targets = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    model = torch.nn.Linear(64, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], momentum=config["momentum"])
    start = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "checkpoint.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1

    for epoch in range(start, 9):
        for _ in range(200):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = (model(inputs).argmax(1) == targets).float().mean().item()
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "epoch": epoch}, os.path.join(folder, "checkpoint.pt"))
            checkpoint = tune.Checkpoint.from_directory(folder)
            tune.report({"loss": loss.item(), "accuracy": accuracy}, checkpoint=checkpoint)


if __name__ == "__main__":
    space = {"lr": tune.loguniform(1e-4, 1e-1), "momentum": tune.uniform(0.1, 0.9)}
    tuner = tune.Tuner(
        train_digits,
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4),
    )
    print(tuner.fit().get_best_result().config)
