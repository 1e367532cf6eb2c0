"""Sweeps whose trials were really trained, in this process and without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results.paths import SweepPaths
from search_spaces.loading.sweep_file import LoadedSweep, Source
from tests.tuning.simulate import make_spec, open_run
from tests.tuning.trained import train_all
from tuning.controller.sweep_dir.folder import create_sweep

DIGITS: dict[str, Any] = {
    "name": "trained",
    "trainable": "digits",
    "metric": "accuracy",
    "mode": "max",
    "space": {"learning_rate": {"loguniform": [3e-3, 3e-2]}},
    "fixed": {"hidden_units": 16, "num_layers": 1, "epochs": 4, "batch_norm": True},
    "scheduler": {"name": "none", "max_t": 4},
    "budget": {"trials": 3},
    "checkpoint": {"every": 1, "keep": 3},
    "tracking": {"name": "none"},
}


def trained(**changes: Any) -> SweepPaths:
    """A sweep in ./sweeps, trained to its end."""
    spec = make_spec(**{**DIGITS, **changes})
    paths = create_sweep(LoadedSweep(spec, Source("s.yaml"), Path("s.yaml"), ()), None, None)
    run = open_run(paths.root, spec)
    train_all(run)
    return paths
