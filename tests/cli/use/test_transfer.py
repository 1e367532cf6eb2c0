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
        sizes: dict[str, list[Any]],
        trials: int = 36,
        loss: Law = law,
        rate: dict[str, Any] = RATE,
        **fixed: Any,
    ) -> SweepPaths:
        grids = {name: {"grid_search": values} for name, values in sizes.items()}
        spec = make_spec(
            name="small",
            trainable="causal_lm",
            metric="eval_loss",
            mode="min",
            space={**grids, "learning_rate": rate},
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
    options = ("--html", "page.html", "--set", "fixed.vocab_size=1024")
    out = tune("transfer", "small", "--to", "big.yaml", *options).out
    assert "vocab_size 512 → 1024" in out
    assert "--set=fixed.vocab_size=1024 --set=space.learning_rate=0.00" in out
    assert "Best learning_rate by hidden_size" in (tune.cwd / "page.html").read_text()


def test_constant_under_mup(tune: Tune, small: Callable[..., SweepPaths]) -> None:
    def flat(config: dict[str, Any]) -> float:
        return law({**config, "learning_rate": config["learning_rate"] * best_rate(config) / 0.01})

    small({"hidden_size": [32, 64]}, 24, flat, parametrization="mup")
    (rule,) = found(tune, "--set", "fixed.parametrization=mup")["rules"]
    assert rule["follows"] == []
    assert rule["value"]["low"] < 0.01 < rule["value"]["high"]
    refused = tune.refused("transfer", "small", "--to", "big.yaml")
    assert "parametrization 'mup' → 'standard'" in refused


def test_loss_is_extrapolated_with_an_interval(
    tune: Tune, small: Callable[..., SweepPaths]
) -> None:
    small({"hidden_size": [32, 64, 96, 128, 192]}, 60)
    near = found(tune, "--set", "fixed.hidden_size=384")["loss"]["loss"]
    assert near["low"] < 2 + 2 * 6**-0.5 < near["high"]
    far = found(tune, "--set", "fixed.hidden_size=1536")
    assert far["loss"] is None
    assert any("--beyond" in note for note in far["notes"])
    assert found(tune, "--set", "fixed.hidden_size=1536", "--beyond")["loss"] is not None
    assert "10 at most" in tune.refused(
        "transfer", "small", "--to", "big.yaml", "--set", "fixed.hidden_size=2048"
    )


def test_size_with_too_few_trials_is_named(tune: Tune, small: Callable[..., SweepPaths]) -> None:
    small({"hidden_size": [32, 64, 128, 256]}, 15)
    assert "hidden_size 256 has 3" in tune.refused("transfer", "small", "--to", "big.yaml")


@pytest.mark.parametrize(
    ("sizes", "trials", "change", "word"),
    [
        ({"hidden_size": [32, 64]}, 16, "fixed.max_steps=120", "3 values"),
        ({"hidden_size": [32, 64, 128]}, 6, "fixed.max_steps=120", "needed 4"),
        ({"hidden_size": [32, 64]}, 8, "space.hidden_size={choice: [512]}", "no size"),
        ({"optimizer": ["adamw", "lion"]}, 8, "fixed.max_steps=120", "optimizer"),
        ({"hidden_size": [32, 64]}, 8, "metric=perplexity", "differ"),
    ],
)
def test_what_cannot_be_transferred_is_refused(
    tune: Tune,
    small: Callable[..., SweepPaths],
    sizes: dict[str, list[Any]],
    trials: int,
    change: str,
    word: str,
) -> None:
    small(sizes, trials, lambda config: law({"hidden_size": 64, **config}))
    assert word in tune.refused("transfer", "small", "--to", "big.yaml", "--set", change)


def test_verification_that_compares_nothing_is_refused(
    tune: Tune, small: Callable[..., SweepPaths]
) -> None:
    def flat(config: dict[str, Any]) -> float:
        return float(2 + 1000 * (config["learning_rate"] - 0.05) ** 2)

    small({"hidden_size": [32, 64, 128]}, 24, flat, rate={"uniform": [0, 0.1]})
    given = ("transfer", "small", "--to", "big.yaml", "--verify")
    assert "equal to 2" in tune(*given, "1", code=2).err
    assert "learning_rate may be 0" in tune.refused(*given, "3")


def test_verification_is_beyond_both_ends_of_the_band(
    tune: Tune, small: Callable[..., SweepPaths]
) -> None:
    def flat(config: dict[str, Any]) -> float:
        noise = random.Random(str(config)).gauss(0, 0.02)
        return 2 + 0.05 * math.log(config["learning_rate"] / 2) ** 2 + noise

    whole = {"lograndint": [1, 100]}
    small({"hidden_size": [32, 64, 128]}, 36, flat, rate=whole)
    tune.write("big.yaml", TARGET.replace("{loguniform: [1.0e-5, 1.0e-1]}", str(whole)))
    band = found(tune)["rules"][0]["value"]
    refused = tune.refused("transfer", "small", "--to", "big.yaml", "--verify", "5")
    factor = float(refused.partition("by factors of ")[2].split()[0])
    assert factor == pytest.approx(band["value"] / band["low"], rel=0.01)


def test_target_that_fixes_what_is_to_be_predicted(
    tune: Tune, small: Callable[..., SweepPaths]
) -> None:
    small({"hidden_size": [32, 64, 128]}, 12)
    fixed = TARGET.replace("space: {learning_rate", "space: {weight_decay")
    tune.write("big.yaml", f"{fixed}".replace("{hidden_size", "{learning_rate: 0.1, hidden_size"))
    assert "fixes learning_rate" in tune.refused("transfer", "small", "--to", "big.yaml")
