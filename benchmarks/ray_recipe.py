"""The same sweep as a plain script, by the recipe and with the settings of Ray's own guide.

https://docs.ray.io/en/latest/train/user-guides/hyperparameter-optimization.html: a Tune function
runs a `TorchTrainer` with `TuneReportCallback` and `max_concurrent_trials`. Tune's functions use a
resource of their own, so that the workers have all cores.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import pandas
import ray
import ray.train
import ray.train.torch
import ray.tune
from ray import PlacementGroupID
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.experiment import Trial
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from ray.util.placement_group import PlacementGroup

from benchmarks.loop import train_fn_per_worker, tune_function
from benchmarks.work import (
    LEARNING_RATE,
    REDUCTION_FACTOR,
    TrialTimes,
    Workload,
    X,
    write_times,
)

DRIVER = "TRAIN_DRIVER_RESOURCE"


class FreeWorkers(ray.tune.Callback):
    """Frees the workers' resources when a trial ends.

    This is not in the guide. In Ray, a process that asks the dashboard every second frees the
    resources of a stopped trial. Without `ray[default]` it gets no answer, and the sweep hangs.
    """

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Remove the placement group, which may be removed already."""
        _, _, group = trial.last_result["group"].partition(" ")
        ray.util.remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(group))))


def train_driver_fn(config: dict[str, Any], job: str, folder: str) -> None:
    """Run a trial."""
    size = Workload.loads(job)
    ray.train.torch.TorchTrainer(
        train_fn_per_worker,
        train_loop_config={**config, "job": job},
        scaling_config=ray.train.ScalingConfig(
            num_workers=size.workers, resources_per_worker={"CPU": size.cpus_per_worker}
        ),
        run_config=ray.train.RunConfig(
            name=f"train-trial_id={ray.tune.get_context().get_trial_id()}",
            storage_path=folder,
            callbacks=[TuneReportCallback()],  # type: ignore[list-item]  # ray types V1 here
        ),
    ).fit()


def sweep(job: Workload, folder: Path, *, is_function: bool) -> ray.tune.ResultGrid:
    """Run the sweep, with all its files in a folder.

    Args:
        job: its size.
        folder: for its files.
        is_function: whether a trial is a function for Ray Tune, without Ray Train.
    """
    driver = ray.tune.with_parameters(train_driver_fn, job=job.dumps(), folder=str(folder))
    trainable = ray.tune.with_resources(driver, {DRIVER: 0.01})
    if is_function:
        trainable = ray.tune.with_resources(tune_function, {"CPU": job.cpus_per_worker})
    return ray.tune.Tuner(
        trainable,
        param_space={
            **({"job": job.dumps()} if is_function else {}),
            "x": ray.tune.uniform(*X),
            "learning_rate": ray.tune.loguniform(*LEARNING_RATE),
        },
        tune_config=ray.tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=OptunaSearch(seed=job.seed),
            scheduler=ASHAScheduler(
                max_t=job.reports,
                grace_period=job.grace_period,
                reduction_factor=REDUCTION_FACTOR,
            ),
            num_samples=job.trials,
            max_concurrent_trials=job.at_once,
        ),
        run_config=ray.tune.RunConfig(
            name="sweep",
            storage_path=str(folder),
            callbacks=[
                MLflowLoggerCallback(f"sqlite:///{folder}/mlflow.db", experiment_name="overhead"),
                *([] if is_function else [FreeWorkers()]),
            ],
        ),
    ).fit()


def start_ray() -> None:
    """Start Ray with a fixed address, so that its processes find it beside other Ray clusters.

    Without an address, the process that frees the workers of a stopped trial finds two clusters and
    gives up, and the sweep hangs.
    """
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    os.environ["RAY_GCS_SERVER_PORT"] = str(port)
    os.environ["RAY_ADDRESS"] = f"{ray.util.get_node_ip_address()}:{port}"
    ray.init("local", resources={DRIVER: 1})


def _first(frame: pandas.DataFrame, column: str) -> float | None:
    return float(frame[column].iloc[0]) if column in frame else None


def main() -> None:
    """Arguments: the job, a folder, the file to write the trials' times to, and perhaps
    `function`.
    """
    job, folder, out = Workload.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    start_ray()
    results = sweep(job, folder, is_function="function" in sys.argv[4:])
    if results.errors:
        raise SystemExit(f"{len(results.errors)} trials failed: {results.errors[0]}")
    frames = (results[i].metrics_dataframe for i in range(len(results)))
    curves = [
        (tuple(map(float, frame["reported_at"])), _first(frame, "began_at"))
        for frame in frames
        if frame is not None
    ]
    write_times(out, [TrialTimes(curve, curve[-1], began) for curve, began in curves])
    ray.shutdown()


if __name__ == "__main__":
    main()
