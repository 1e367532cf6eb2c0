"""Machines leave and join while a trial runs; the trial continues with the workers that fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import TrialState, read_reports
from tests.ray.conftest import LONGEST_S, Tune
from tests.ray.machines import Machines
from tests.trainables.local import run_trial
from tests.waiting import wait_for

DIGITS = {"hidden_units": 16, "num_layers": 1, "optimizer": "sgd", "epochs": 90, "batch_size": 128}
SWEEP = """
name: elastic
trainable: tests.ray.stepping:Gated
metric: loss
space: {learning_rate: {choice: [0.01]}}
fixed: {gate: GATE, hidden_units: 16, num_layers: 1, optimizer: sgd, epochs: 90, batch_size: 128}
scheduler: {name: none}
budget: {trials: 1}
resources: {workers: {min: 1, max: 2, grow_after: 1}}
checkpoint: {every: 2}
tracking: {name: none}
"""

SICK = """
name: sick
trainable: tests.ray.stepping:Sick
metric: loss
space: {index: {grid_search: [0]}}
scheduler: {name: none}
failure: {on_log: {"ECC error": retry_elsewhere}}
tracking: {name: none}
"""


def test_elastic_trial_shrinks_and_grows(
    machines: Machines, tmp_path: Path, survived: Callable[[SweepPaths], None]
) -> None:
    machines.require(2)
    tune = Tune(tmp_path, machines.address)
    gate = tmp_path / "gate"
    (tmp_path / "elastic.yaml").write_text(SWEEP.replace("GATE", str(gate)))
    files = tune.paths("elastic").trial("t0000")

    def has_reached(step: int) -> bool:
        return max((r.step for r in read_reports(files)), default=0) >= step

    process = tune.start("run", "elastic.yaml")
    wait_for(lambda: has_reached(3), process)
    machines.remove()
    wait_for(lambda: has_reached(6), process)
    machines.add()
    gate.touch()
    out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, f"{out}\n{err}"

    (record,) = tune.trials("elastic")
    assert record.state is TrialState.COMPLETED
    assert [a.workers for a in record.attempts] == [2, 1, 2], record
    lost, moved, _ = record.attempts
    assert (lost.remedy, lost.cause) == ("retry", "infrastructure"), lost.error
    assert (moved.error, moved.remedy) == (None, None)
    assert "t0000 continues with more workers" in out
    assert "with 1 worker" in tune("show", "elastic", "t0000")

    told = Counter(r.step for r in tune.curve("elastic", "t0000"))
    assert told == Counter(range(1, 91)), "each step counts once"
    config = {**DIGITS, **record.config, "gate": ""}
    del config["gate"]
    alone = run_trial(tmp_path / "alone", "digits", config, seed=record.seed)
    assert [r.metrics["loss"] for r in tune.curve("elastic", "t0000")] == pytest.approx(
        [r.metrics["loss"] for r in alone.reports], rel=1e-4
    )
    survived(tune.paths("elastic"))


@pytest.mark.cluster
def test_retry_elsewhere_takes_another_machine(
    machines: Machines, tmp_path: Path, survived: Callable[[SweepPaths], None]
) -> None:
    machines.require(2)
    tune = Tune(tmp_path, machines.address)
    (tmp_path / "sick.yaml").write_text(SICK)
    out = tune("run", "sick.yaml")
    (record,) = tune.trials("sick")
    first, second, third = record.attempts
    files = tune.paths("sick").trial("t0000")
    ran_on = [re.findall(r"^on (\w+)", files.log(n, 0).read_text(), re.M)[0] for n in (1, 2, 3)]
    assert [m.id for m in first.blamed] == ran_on[:1]
    assert ran_on[1] != ran_on[0]
    assert second.kept_off == first.blamed
    assert (third.in_place, third.kept_off) == (True, first.blamed + second.blamed)
    assert "no machine other than " in out
    assert record.state is TrialState.COMPLETED
    survived(tune.paths("sick"))
