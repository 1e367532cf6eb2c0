"""A function and a class in the manner of Ray Tune's own documentation."""

import json
import os
import tempfile
import time

from ray import tune
from ray.tune import Checkpoint, Trainable, report


def train_fn(config):
    weight, start = 0.0, 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            with open(os.path.join(folder, "state.json")) as file:
                state = json.load(file)
        weight, start = state["weight"], state["epoch"] + 1
    print("starting at epoch", start)
    for epoch in range(start, config["epochs"] + 1):
        fail_once(config, epoch)
        weight -= config["rate"] * 2 * (weight - 3)
        metrics = {"loss": (weight - 3) ** 2, "epoch": epoch}
        if epoch % config.get("every", 1):
            report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as file:
                json.dump({"weight": weight, "epoch": epoch}, file)
            try:
                tune.report(metrics, checkpoint=Checkpoint.from_directory(folder))
            except Exception:
                print("an end is not to be caught as an error")


class Line(Trainable):
    def setup(self, config):
        self.rate, self.weight, self.epochs = config["rate"], 0.0, config["epochs"]
        self.state = config.get("state", "dict")
        assert not os.path.exists("left.txt")

    def step(self):
        fail_once(self.config, self.iteration + 1)
        self.weight -= self.rate * 2 * (self.weight - 3)
        return {
            "eval": {"loss": (self.weight - 3) ** 2},
            "loss": (self.weight - 3) ** 2,
            "done": self.training_iteration + 1 == self.epochs,
        }

    def save_checkpoint(self, checkpoint_dir):
        if self.state == "dict":
            return {"weight": self.weight}
        with open(os.path.join(checkpoint_dir, "weight"), "w") as file:
            file.write(repr(self.weight))
        return checkpoint_dir if self.state == "folder" else "/elsewhere"

    def load_checkpoint(self, checkpoint):
        if isinstance(checkpoint, dict):
            self.weight = checkpoint["weight"]
        else:
            with open(os.path.join(checkpoint, "weight")) as file:
                self.weight = float(file.read())

    def cleanup(self):
        open("cleaned.txt", "w").close()


class Bare(Line):
    def step(self):
        return 1.0


def fail_once(config, epoch):
    while epoch == 3 and not os.path.exists(config.get("gate", "/")):
        time.sleep(0.05)
    if epoch == config.get("fail_at") and not os.path.exists("failed"):
        open("failed", "w").close()
        raise ConnectionError("once")


def returns(config):
    return {"loss": config["rate"]}


def number(config):
    return config["rate"]


def yields(config):
    for _ in range(3):
        yield {"loss": config["rate"]}


def forgets(config):
    for epoch in range(1, config["epochs"] + 1):
        tune.report({"loss": 1.0 / epoch})


def context(config):
    found = tune.get_context()
    tune.report({"loss": 1.0, "same": found.get_trial_dir() == os.getcwd()})
    print(found.get_trial_id(), found.get_trial_name(), found.get_experiment_name())
    return "text"


def data_of(config, data):
    tune.report({"loss": sum(data)})


with_data = tune.with_resources(tune.with_parameters(data_of, data=[1.0, 2.0]), {"cpu": 1})
