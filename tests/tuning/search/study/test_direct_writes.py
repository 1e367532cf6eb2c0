"""`DirectWrites` writes what Optuna writes, without reading it back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from tuning.search.study.journal import DirectWrites, Journal

SAMPLED = {
    "x": (0.25, FloatDistribution(0, 1)),
    "n": (4, IntDistribution(2, 8, step=2)),
    "c": (True, CategoricalDistribution((None, True, "a"))),
}
REPORTS = [(1, 0.5), (2, float("inf"))]
TIMES = ("datetime_start", "datetime_complete", "worker_id")


def study_in(backend: JournalFileBackend, name: str = "s") -> optuna.Study:
    storage = JournalStorage(backend)
    return optuna.create_study(storage=storage, study_name=name, load_if_exists=True)


def entries(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_bytes().splitlines()]
    return [{k: v if k not in TIMES else bool(v) for k, v in e.items()} for e in found]


def write_with_optuna(file: Path, others: int) -> None:
    backend = JournalFileBackend(str(file))
    study = other_studies(backend, others)
    values = {k: v for k, (v, _) in SAMPLED.items()}
    dists = {k: d for k, (_, d) in SAMPLED.items()}
    for number in range(2):
        study.add_trial(create_trial(state=TrialState.RUNNING, params=values, distributions=dists))
        trial = optuna.Trial(study, study.trials[number]._trial_id)
        for step, value in REPORTS:
            trial.report(value, step)
        study._storage.set_trial_state_values(trial._trial_id, TrialState.COMPLETE, [0.5])


def other_studies(backend: JournalFileBackend, trials: int) -> optuna.Study:
    """A study whose journal has another one, which has trials."""
    if trials:
        other = study_in(backend, "before")
        for _ in range(trials):
            other.add_trial(create_trial(state=TrialState.FAIL))
    return study_in(backend)


@pytest.mark.parametrize("others", [0, 3])
def test_entries_are_those_of_optuna(tmp_path: Path, others: int) -> None:
    write_with_optuna(tmp_path / "theirs", others)
    journal = Journal(tmp_path / "ours")
    study = other_studies(journal, others)
    unread = DirectWrites(journal, study._storage, study._study_id)
    for number in range(2):
        unread.add(number, SAMPLED)
        assert unread.take(number)
        assert not unread.take(number)
        unread.end(number, REPORTS, TrialState.COMPLETE, [0.5])
    assert entries(tmp_path / "ours") == entries(tmp_path / "theirs")


def test_storage_reads_them_when_it_is_asked(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    study = study_in(journal)
    unread = DirectWrites(journal, study._storage, study._study_id)
    for number in range(0, 12, 3):  # unread in the file, read in a batch, unread after that
        unread.add(number, SAMPLED)
        with journal.batched():
            unread.add(number + 1, SAMPLED)
            if number:
                assert len(study.trials) == number + 2
                study.tell(number + 1, 1.0)
            unread.end(number, REPORTS, TrialState.PRUNED, [0.5])
            unread.add(number + 2, SAMPLED)
        assert max(journal.offsets.values()) <= (tmp_path / "j").stat().st_size
    states = [t.state.name for t in study.trials]
    assert states == ["PRUNED", "RUNNING", "RUNNING"] + ["PRUNED", "COMPLETE", "RUNNING"] * 3
    again = study_in(Journal(tmp_path / "j"))
    assert [t.params for t in again.trials] == [{"x": 0.25, "n": 4, "c": True}] * 12
    assert again.trials[0].intermediate_values == dict(REPORTS)
