"""Ray Tune, class API: `setup`, `step`, `save_checkpoint`, `load_checkpoint`."""

import os

import torch
from ray import tune
from sklearn.datasets import load_digits


class TrainDigits(tune.Trainable):
    def setup(self, config):
        torch.manual_seed(0)
        images, labels = load_digits(return_X_y=True)
        self.inputs = torch.tensor(images, dtype=torch.float32) / 16
        self.targets = torch.tensor(labels)
        self.model = torch.nn.Linear(64, 10)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"], momentum=0.9)

    def step(self):
        for _ in range(200):
            loss = torch.nn.functional.cross_entropy(self.model(self.inputs), self.targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return {"loss": loss.item(), "done": self.iteration + 1 >= 8}

    def save_checkpoint(self, checkpoint_dir):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, os.path.join(checkpoint_dir, "model.pth"))

    def load_checkpoint(self, checkpoint_dir):
        state = torch.load(os.path.join(checkpoint_dir, "model.pth"))
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


if __name__ == "__main__":
    tuner = tune.Tuner(
        TrainDigits,
        param_space={"lr": tune.loguniform(1e-4, 1e-1)},
        run_config=tune.RunConfig(stop={"training_iteration": 8}),
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=4),
    )
    tuner.fit()
