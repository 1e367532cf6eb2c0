"""`tune transfer`, on sweeps whose losses follow a known law."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import Report
from search_spaces.spec.sweep import SweepSpec
from tests.cli.conftest import Tune
from tests.reports import append_report
from tests.tuning.simulate import make_spec, new_sweep, next_job, open_run

Law = Callable[[dict[str, Any]], float]
RATE = {"loguniform": [1e-4, 1e-1]}
TARGET = """
name: big
trainable: causal_lm
metric: eval_loss
mode: min
space: {learning_rate: {loguniform: [1.0e-5, 1.0e-1]}}
fixed: {hidden_size: 512}
budget: {trials: 4}
"""


def best_rate(config: dict[str, Any]) -> float:
    return float(0.01 * (config["hidden_size"] / 64) ** -0.7)


def law(config: dict[str, Any]) -> float:
    """A parabola around `best_rate`, and the loss of a frontier."""
    away = math.log(config["learning_rate"] / best_rate(config))
    noise = random.Random(str(config)).gauss(0, 0.005)
    return float(2 + 2 * (config["hidden_size"] / 64) ** -0.5 + 0.05 * away**2 + noise)


@pytest.fixture
def small(tune: Tune) -> Callable[..., SweepPaths]:
    """Makes the sweep `small`, with a loss by configuration, and the file of the target."""
    tune.write("big.yaml", TARGET)

    def make(
        sizes: dict[str, list[Any]], trials: int = 36, loss: Law = law, **fixed: Any
    ) -> SweepPaths:
        grids = {name: {"grid_search": values} for name, values in sizes.items()}
        spec = make_spec(
            name="small",
            trainable="causal_lm",
            metric="eval_loss",
            mode="min",
            space={**grids, "learning_rate": RATE},
            fixed=fixed,
            search="random",
            scheduler="none",
            budget={"trials": trials},
            tracking={"name": "none"},
        )
        return run(spec, loss)

    return make


def run(spec: SweepSpec, loss: Law) -> SweepPaths:
    """Run a sweep whose trials report once."""
    paths = new_sweep(spec)
    controller = open_run(paths.root, spec)
    while not controller.finished:
        job = next_job(controller)
        metrics = {"eval_loss": loss(job.config)}
        report = Report(step=1, metrics=metrics, attempt=job.attempt, time=time.time())
        append_report(job.paths, report)
        controller.on_report(job.trial_id, report)
        controller.on_ended(job.trial_id)
    controller.lifecycle.release()
    return paths


def found(tune: Tune, *args: str, code: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        tune("transfer", "small", "--to", "big.yaml", "--json", *args, code=code).out
    )
    return made


def test_power_law_of_the_width(tune: Tune, small: Callable[..., SweepPaths]) -> None:
    small({"hidden_size": [32, 64, 128]})
    (rule,) = found(tune)["rules"]
    truth = best_rate({"hidden_size": 512})
    assert rule["value"]["low"] < truth < rule["value"]["high"]
    assert rule["follows"] == ["hidden_size"]
    exponent = rule["exponents"]["hidden_size"]
    assert exponent["low"] < -0.7 < exponent["high"]
    out = tune("transfer", "small", "--to", "big.yaml", "--html", "page.html").out
    assert "run it: tune run big.yaml --set=space.learning_rate=0.00" in out
    assert "Best learning_rate by hidden_size" in (tune.cwd / "page.html").read_text()
