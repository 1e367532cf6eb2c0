"""Whether the order at the rungs agrees with the final order, from a sweep's reports."""

import pytest

from results.analysis.confirmation import Confirmation, ConfirmedTrial, Remeasurement
from results.analysis.rungs import RungEvidence, rung_evidence, rung_trials
from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.trial import TrialState, read_trials_with_reports
from search_spaces.spec.sweep import SweepSpec
from tests.results.written import add_trial

SPEC = {
    "name": "s",
    "trainable": "digits",
    "metric": "loss",
    "mode": "min",
    "space": {"x": {"uniform": [0, 1]}},
    "scheduler": {"name": "asha", "max_t": 9},
    "budget": {"trials": 9},
}


def evidence(sweep: SweepPaths, **settings: object) -> RungEvidence | None:
    spec = SweepSpec.model_validate({**SPEC, **settings})
    found = rung_evidence(spec, list(read_trials_with_reports(sweep)))
    assert rung_evidence(spec, rung_trials(spec, check_records(sweep, keep=True))) == found
    return found


def told(sweep: SweepPaths) -> str:
    found = evidence(sweep)
    assert found is not None
    return found.advice("folder/s")


def stopped(sweep: SweepPaths, numbers: range, losses: dict[int, float]) -> None:
    for number in numbers:
        add_trial(sweep, number, losses, TrialState.STOPPED)


def completed(sweep: SweepPaths, numbers: range, losses: dict[int, float]) -> None:
    for number in numbers:
        add_trial(sweep, number, losses, TrialState.COMPLETED)


def test_a_winner_that_a_rung_would_stop(sweep: SweepPaths) -> None:
    stopped(sweep, range(4), {1: 0.5})
    add_trial(sweep, 4, {1: 0.9, 3: 0.3, 9: 0.1}, TrialState.COMPLETED)
    add_trial(sweep, 5, {1: 0.4, 3: 0.35, 9: 0.2}, TrialState.COMPLETED)
    add_trial(sweep, 8, {}, TrialState.RUNNING)
    stopped(sweep, range(6, 8), {1: 0.5, 3: 0.4})
    assert "unknown" in told(sweep)  # two complete trials may change places by chance
    completed(sweep, range(9, 12), {1: 0.95, 9: 0.95})
    text = told(sweep)
    assert "mislead" in text
    assert "t0004" in text
    assert "8th of 11 at step 1 and 1st of 7 at step 3" in text
    assert "tune resume folder/s --set scheduler.grace_period=3" in text


def test_no_rung_keeps_the_winner(sweep: SweepPaths) -> None:
    stopped(sweep, range(4), {1: 0.5, 3: 0.4})
    add_trial(sweep, 4, {1: 0.9, 3: 0.8, 9: 0.1}, TrialState.COMPLETED)
    add_trial(sweep, 5, {1: 0.1, 3: 0.1, 9: 0.2}, TrialState.COMPLETED)
    completed(sweep, range(6, 9), {1: 0.95, 9: 0.95})
    assert "scheduler none" in told(sweep)


def test_rungs_agree_when_a_trial_that_they_would_stop_ends_worse(sweep: SweepPaths) -> None:
    stopped(sweep, range(4), {1: 0.5})
    add_trial(sweep, 4, {1: 0.1, 3: 0.1, 9: 0.1}, TrialState.COMPLETED)
    completed(sweep, range(5, 9), {1: 0.9, 3: 0.9, 9: 0.9})
    assert told(sweep).endswith("the rungs agree")


def test_trials_that_the_rungs_keep_prove_nothing(sweep: SweepPaths) -> None:
    stopped(sweep, range(10), {1: 0.5})
    for number in range(10, 15):
        add_trial(sweep, number, {1: 0.1, 9: number / 100}, TrialState.COMPLETED)
    assert evidence(sweep, scheduler={"name": "asha", "max_t": 9, "grace_period": 1}).tested
    found = evidence(sweep, scheduler={"name": "asha", "max_t": 3})  # one rung, which keeps all
    assert found is not None
    assert (found.complete, found.tested) == (5, 0)
    assert "unknown" in found.advice("s")


def test_a_confirmed_winner_counts_where_it_is_complete(sweep: SweepPaths) -> None:
    stopped(sweep, range(4), {1: 0.5})
    add_trial(sweep, 4, {1: 0.1, 9: 0.10}, TrialState.COMPLETED)
    add_trial(sweep, 5, {1: 0.9, 9: 0.11}, TrialState.COMPLETED)
    completed(sweep, range(6, 9), {1: 0.95, 9: 0.95})
    spec, trials = SweepSpec.model_validate(SPEC), list(read_trials_with_reports(sweep))

    def winner(*means: tuple[str, float]) -> tuple[str, bool, bool]:
        measured = (
            ConfirmedTrial(trial=t, series={"loss": Remeasurement(search=0.1, test=(m,))})
            for t, m in means
        )
        made = Confirmation(modes={"loss": "min"}, seeds=(1,), trials=tuple(measured))
        found = rung_evidence(spec, trials, made)
        assert found is not None
        return found.winner, found.confirmed, found.misleading

    assert winner(("t0004", 0.3), ("t0005", 0.2)) == ("t0005", True, True)
    assert winner(("t0000", 0.1), ("t0005", 0.2)) == ("t0004", False, False)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_too_few_complete_trials(sweep: SweepPaths, count: int) -> None:
    stopped(sweep, range(2), {1: 0.5})
    completed(sweep, range(2, 2 + count), {1: 0.9, 9: 0.1})
    text = told(sweep)
    assert "unknown" in text
    assert f"{count} of" in text


def test_uses_the_clock_of_the_scheduler_and_the_mode(sweep: SweepPaths) -> None:
    stopped(sweep, range(4), {1: 0.5})
    add_trial(sweep, 4, {1: 0.9, 9: 0.9}, TrialState.COMPLETED)
    completed(sweep, range(5, 9), {1: 0.1, 9: 0.1})
    found = evidence(sweep, mode="max")
    assert found is not None
    assert found.winner == "t0004"
    assert not found.misleading


@pytest.mark.parametrize(
    "settings",
    [
        {"scheduler": {"name": "none"}},
        {"scheduler": {"name": "pbt", "max_t": 9}},
        {"metric": ["loss", "size"], "scheduler": {"name": "asha", "max_t": 9}},
    ],
)
def test_sweeps_without_comparable_rungs_say_nothing(
    sweep: SweepPaths, settings: dict[str, object]
) -> None:
    add_trial(sweep, 0, {1: 0.1, 9: 0.1}, TrialState.COMPLETED)
    assert evidence(sweep, **settings) is None
