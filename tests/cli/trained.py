"""Sweeps of digits that are really trained, in this process and without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from search_spaces.spec.sweep import SweepSpec
from tests.tuning.simulate import new_sweep, open_run
from tests.tuning.trained import train_all

DIGITS: dict[str, Any] = {
    "name": "mine",
    "trainable": "digits",
    "metric": "accuracy",
    "mode": "max",
    "space": {"learning_rate": {"choice": [0.0001, 0.003, 0.01]}},
    "fixed": {"epochs": 4, "hidden_units": 8, "num_layers": 1},
    "scheduler": {"name": "none", "max_t": 2, "time_attr": "step"},
    "budget": {"trials": 3},
    "search": {"name": "random"},
    "resources": {"workers": 2},
    "tracking": {"name": "none"},
    "seed": 3,
}
BATCH_NORM: dict[str, Any] = {
    **{key: DIGITS[key] for key in ("trainable", "metric", "mode", "budget", "tracking", "seed")},
    "name": "trained",
    "space": {"learning_rate": {"loguniform": [3e-3, 3e-2]}},
    "fixed": {"hidden_units": 16, "num_layers": 1, "epochs": 4, "batch_norm": True},
    "scheduler": {"name": "none", "max_t": 4},
    "checkpoint": {"every": 1, "keep": 3},
    "search": {"startup_trials": 3},
}


def trained(sweep: dict[str, Any], storage: Path | None = None, **changes: Any) -> SweepPaths:
    """A sweep, trained to its end, in ./sweeps or another storage."""
    spec = SweepSpec.model_validate({**sweep, **changes})
    paths = new_sweep(spec, storage)
    train_all(open_run(paths.root, spec))
    return paths
