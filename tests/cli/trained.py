"""A small sweep of digits that really trains, in this process."""

from __future__ import annotations

from typing import Any

from results.paths import SweepPaths
from tests.cli.conftest import Tune
from tests.tuning.simulate import make_spec, open_run
from tests.tuning.trained import train_all

DIGITS = {
    "metric": "accuracy",
    "mode": "max",
    "space": {"learning_rate": {"choice": [0.0001, 0.003, 0.01]}},
    "fixed": {"epochs": 4, "hidden_units": 8, "num_layers": 1},
    "scheduler": {"name": "none", "max_t": 2, "time_attr": "step"},
    "budget": {"trials": 3},
    "search": {"name": "random"},
    "resources": {"workers": 2},
}


def trained(tune: Tune, trials: int = 3, **more: Any) -> SweepPaths:
    changes: dict[str, Any] = {**DIGITS, "budget": {"trials": trials}, **more}
    paths = tune.sweep("mine", done=False, **changes)
    run = open_run(paths.root, make_spec(name="mine", **changes))
    train_all(run)
    return paths
