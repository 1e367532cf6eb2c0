"""Defaults of new sweeps, beside those of sweeps that began before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from results.records.spec_file import read_spec
from search_spaces.spec.sweep import SweepSpec
from tests.tuning.simulate import new_sweep
from trainables.registry import resolve
from tuning.controller.trial_jobs import make_job

SWEEP: dict[str, Any] = {
    "name": "wide",
    "trainable": "causal_lm",
    "metric": "eval_loss",
    "space": {"learning_rate": {"loguniform": [1e-3, 1e-2]}},
    "fixed": {"hidden_size": 512},
    "scheduler": {"name": "none", "max_t": 6},
    "budget": {"trials": 1},
    "tracking": {"name": "none"},
}


def heads(spec: SweepSpec) -> int:
    """Of the model of a trial."""
    config = spec.nest({"learning_rate": 0.001})
    job = make_job(spec, Path("t0000"), config, 0, "cache")
    found: int = resolve(spec.trainable).Config.model_validate(job.config).heads
    return found


def test_new_sweeps_store_wide_heads_and_begun_ones_keep_theirs(tmp_path: Path) -> None:
    spec = SweepSpec.model_validate(SWEEP)
    frozen = read_spec(new_sweep(spec, tmp_path))
    assert frozen.fixed["head_width"] == "auto"
    assert heads(frozen) == 8
    assert heads(spec) == 32  # as a file that an older version has frozen


@pytest.mark.parametrize(
    ("space", "fixed"),
    [
        ({}, {"num_heads": 4}),
        ({}, {"head_width": 16}),
        ({"head_width": {"choice": [32, 64]}}, {}),
    ],
)
def test_given_heads_stay(tmp_path: Path, space: dict[str, Any], fixed: dict[str, Any]) -> None:
    given = {
        **SWEEP,
        "space": {**SWEEP["space"], **space},
        "fixed": {**SWEEP["fixed"], **fixed},
    }
    frozen = read_spec(new_sweep(SweepSpec.model_validate(given), tmp_path))
    assert frozen.fixed == given["fixed"]


def test_clients_of_a_new_sweep_have_wide_heads(tmp_path: Path) -> None:
    fixed = {"task": "causal_lm", "client": {"hidden_size": 512}, "by": "source"}
    changes = {"trainable": "federated", "fixed": fixed, "space": {"local_steps": {"choice": [1]}}}
    frozen = read_spec(new_sweep(SweepSpec.model_validate({**SWEEP, **changes}), tmp_path))
    assert frozen.fixed["client"] == {"hidden_size": 512, "head_width": "auto"}
