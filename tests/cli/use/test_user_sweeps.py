"""Sweeps over a function and a class for Ray Tune and over a program, really trained: paused,
continued from another trial's checkpoint, confirmed and reproduced.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from results.analysis.confirmation import read
from results.records.trial import TrialRecord, TrialState, read_reports, read_trials
from tests.cli.conftest import Tune
from tests.cli.trained import trained
from tests.user_code.conftest import PROGRAMS

RATES = (0.1, 0.0, 0.2, 0.3)
KINDS = pytest.mark.parametrize("kind", ["train_fn", "Line", "program.py"])
PROGRAM = """
import os, sys
from tune_report import checkpoint_dir, report

rate, weight, epoch = float(sys.argv[1]), 0.0, 0
if folder := checkpoint_dir():
    weight, epoch = map(float, open(os.path.join(folder, "state")).read().split())
while epoch < 4:
    epoch += 1
    weight -= rate * 2 * (weight - 3)
    os.makedirs("checkpoint", exist_ok=True)
    with open("checkpoint/state", "w") as file:
        print(repr(weight), epoch, file=file)
    report(step=epoch, loss=(weight - 3) ** 2, checkpoint="checkpoint")
"""


def sweep(tune: Tune, kind: str, **scheduler: Any) -> dict[str, Any]:
    code: dict[str, Any] = {"trainable": f"{PROGRAMS / 'ray_tune.py'}:{kind}"}
    if kind == "program.py":
        code = {"command": [sys.executable, str(tune.write(kind, PROGRAM)), "{rate}", "{seed}"]}
    return {
        **code,
        "name": "mine",
        "metric": "loss",
        "space": {"rate": {"uniform": [0.0, 0.5]}},
        "points": [{"rate": rate} for rate in RATES],
        "fixed": {"epochs": 4},
        "scheduler": {"time_attr": "step", "max_t": 4, **scheduler},
        "checkpoint": {"every": 1},
        "budget": {"trials": len(RATES)},
        "search": {"name": "random"},
        "tracking": {"name": "none"},
    }


def losses(rates: list[float]) -> list[float]:
    """The curve of a trial with these rates, one per step."""
    weight, found = 0.0, []
    for rate in rates:
        weight -= rate * 2 * (weight - 3)
        found.append((weight - 3) ** 2)
    return found


@KINDS
def test_paused_trial_continues_from_its_own_checkpoint(tune: Tune, kind: str) -> None:
    paths = trained(sweep(tune, kind, name="asha_promote", grace_period=1, reduction_factor=2))
    records = read_trials(paths)
    assert max(len(record.attempts) for record in records) >= 2
    assert {r.state for r in records} == {TrialState.COMPLETED, TrialState.PAUSED}
    for record in records:
        reports = read_reports(paths.trial(record.id))
        assert [r.step for r in reports] == list(range(1, len(reports) + 1))
        rates = [record.params["rate"]] * len(reports)
        assert [r.metrics["loss"] for r in reports] == losses(rates)
        lines = paths.trial(record.id).reports.read_text().splitlines()
        assert len(lines) == len(reports), "no step is done twice"


@KINDS
def test_pbt_continues_from_the_checkpoint_of_a_better_trial(tune: Tune, kind: str) -> None:
    paths = trained(sweep(tune, kind, name="pbt", interval=2))
    records = {record.id: record for record in read_trials(paths)}
    assert any(record.lineage for record in records.values())
    for record in records.values():
        curve = [r.metrics["loss"] for r in read_reports(paths.trial(record.id))]
        assert curve[2:] == losses(rates_of(record, records))[2:]


def rates_of(record: TrialRecord, records: dict[str, TrialRecord]) -> list[float]:
    """The rates of the steps that led to a trial's weights."""
    if not record.lineage:
        return [record.params["rate"]] * 4
    (copied,) = record.lineage
    donor = records[copied.donor]
    assert (copied.step, copied.donor_step, donor.lineage) == (2, 2, ())
    return [donor.params["rate"]] * 2 + [copied.after["rate"]] * 2


@KINDS
def test_confirmation_trains_it_again(tune: Tune, kind: str) -> None:
    paths = trained(sweep(tune, kind, name="none"))
    tune("best", "mine", "--confirm", "1", "--seeds", "2")
    made = read(paths)
    assert made is not None
    for seed in made.seeds:
        again = read_reports(paths.retrained(made.trials[0].trial, seed))
        assert [r.metrics["loss"] for r in again] == losses([0.3] * 4)


@pytest.mark.slow
@KINDS
def test_it_is_reproduced(tune: Tune, kind: str) -> None:
    trained(sweep(tune, kind, name="none"), budget={"trials": 1}, points=[{"rate": 0.1}])
    assert tune("reproduce", "mine", "t0000").out == ("t0000: bit-identical in all of 4 reports\n")
