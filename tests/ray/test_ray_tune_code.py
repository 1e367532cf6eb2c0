"""A function and a class for Ray Tune run as trials under ASHA: killed, stopped, resumed equal."""

from __future__ import annotations

import subprocess

import pytest

from results.checkpoints.commit import newest_intact
from results.records.trial import TrialState
from tests.ray.conftest import LONGEST_S, Tune, end
from tests.user_code.conftest import PROGRAMS
from tests.waiting import wait_for

pytestmark = pytest.mark.scripts

NAMES = ("train_fn", "Line")
SWEEP = """
name: NAME
trainable: ray_tune.py:NAME
metric: loss
space: {rate: {grid_search: [0.1, 0.0, 0.2]}}
fixed: {epochs: 4, gate: GATE, fail_at: 4}
scheduler: {name: asha, time_attr: training_iteration, grace_period: 2, max_t: 4,
            reduction_factor: 2}
checkpoint: {every: 1}
resources: {concurrency: 1}
tracking: {name: none}
"""
"""The second trial learns nothing, so the scheduler stops it."""


def losses(rate: float) -> list[float]:
    """The curve without interruption."""
    weight, found = 0.0, []
    for _ in range(4):
        weight -= rate * 2 * (weight - 3)
        found.append((weight - 3) ** 2)
    return found


def test_tune_function_and_class_are_killed_resumed_and_stopped(tune: Tune) -> None:
    (tune.cwd / "ray_tune.py").write_text((PROGRAMS / "ray_tune.py").read_text())
    gate = tune.cwd / "gate"
    runs: dict[str, subprocess.Popen[str]] = {}
    for name in NAMES:
        file = tune.cwd / f"{name}.yaml"
        file.write_text(SWEEP.replace("NAME", name).replace("GATE", str(gate)))
        runs[name] = tune.start("run", file)
    for name, run in runs.items():
        wait_for(lambda name=name: _saved(tune, name) == 2, run)  # type: ignore[misc]
        end(run)
    gate.touch()
    resumed = {name: tune.start("resume", name) for name in NAMES}
    for name, run in resumed.items():
        out, err = run.communicate(timeout=LONGEST_S)
        assert run.returncode == 0, f"{out}\n{err}"
        first, second, third = tune.trials(name)
        assert [(r.state, r.end_step) for r in (first, second, third)] == [
            (TrialState.COMPLETED, 4),
            (TrialState.STOPPED, 2),
            (TrialState.COMPLETED, 4),
        ]
        assert len(first.attempts) == 3  # killed, failed once, completed
        for record, rate in ((first, 0.1), (third, 0.2)):
            curve = tune.curve(name, record.id)
            assert [p.step for p in curve] == [1, 2, 3, 4]
            assert [p.metrics["loss"] for p in curve] == losses(rate)
    log = tune.paths("train_fn").trial("t0000").log(2, 0).read_text()
    assert "starting at epoch 3" in log


def _saved(tune: Tune, name: str) -> int:
    """The step of the newest checkpoint: a report is on disk before its checkpoint is."""
    found = newest_intact(tune.paths(name).trial("t0000"))
    return found.step if found else 0
