from functools import partial

import torch
from ray import tune
from ray.tune import Checkpoint
from ray.tune.schedulers import ASHAScheduler


def train_cifar(config, data_dir=None):
    for _ in range(10):
        tune.report({"loss": config["lr"]}, checkpoint=Checkpoint.from_directory("."))


def main(num_samples=10, max_num_epochs=10):
    config = {
        "l1": tune.choice([2**i for i in range(9)]),
        "lr": tune.loguniform(1e-4, 1e-1),
        "batch_size": tune.choice([2, 4, 8, 16]),
    }
    scheduler = ASHAScheduler(max_t=max_num_epochs, grace_period=1, reduction_factor=2)
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(train_cifar, data_dir="x"), {"cpu": 2}),
        tune_config=tune.TuneConfig(
            metric="loss", mode="min", scheduler=scheduler, num_samples=num_samples
        ),
        param_space=config,
    )
    print(tuner.fit().get_best_result("loss", "min"))


# is trainable: "?"
# is metric: loss
# is mode: min
# is space: {l1: "?", lr: {loguniform: [0.0001, 0.1]}, batch_size: {choice: [2, 4, 8, 16]}}
# is scheduler: {name: asha, max_t: "?", grace_period: 1, reduction_factor: 2}
# is search.name: random
# is budget.trials: "?"
# says max_t=max_num_epochs
# says num_samples=num_samples
# says with_parameters
# says l1: tune.choice
