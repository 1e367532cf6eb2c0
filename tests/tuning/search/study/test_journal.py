"""The journal of a study; `DirectWrites` appends what Optuna writes, without reading it."""

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

from tests.tuning.call_costs import costs
from tuning.search.study.journal import DirectWrites, Journal


def study_in(backend: JournalFileBackend, name: str = "s") -> optuna.Study:
    sampler = optuna.samplers.RandomSampler(seed=0)
    storage = JournalStorage(backend)
    return optuna.create_study(
        storage=storage, study_name=name, load_if_exists=True, sampler=sampler
    )


def a_trial(study: optuna.Study) -> None:
    trial = study.ask()
    for i in range(5):
        trial.suggest_float(f"x{i}", 0, 1)
    for step in range(20):
        trial.report(step / 2, step)
    study.tell(trial, 1.0)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "j")


def seen(study: optuna.Study) -> list[Any]:
    return [(t.number, t.state, t.params, t.intermediate_values, t.value) for t in study.trials]


def test_batch_is_one_sync_and_the_same_study(tmp_path: Path) -> None:
    plain = study_in(JournalFileBackend(str(tmp_path / "plain")))
    journal = Journal(tmp_path / "together")
    study = study_in(journal)
    for each in (plain, study):
        a_trial(each)
    a_trial(plain)
    with costs() as cost, journal.batched():
        a_trial(study)
        assert seen(study) == seen(plain), "the block reads what it writes"
    assert cost.synced == 1
    a_trial(plain)
    a_trial(study)
    assert seen(study) == seen(plain)
    assert seen(study_in(Journal(tmp_path / "together"))) == seen(plain)


def test_nested_batch_is_written_with_the_outer_one(tmp_path: Path, journal: Journal) -> None:
    study = study_in(journal)
    with costs() as cost, journal.batched():
        a_trial(study)
        with journal.batched():
            a_trial(study)
        a_trial(study)
    assert cost.synced == 1
    assert seen(study_in(Journal(tmp_path / "j"))) == seen(study)


def test_batch_is_written_after_an_exception(tmp_path: Path, journal: Journal) -> None:
    study = study_in(journal)
    with pytest.raises(ZeroDivisionError), journal.batched():
        raise ZeroDivisionError(a_trial(study))
    assert seen(study_in(Journal(tmp_path / "j"))) == seen(study)


def test_empty_batch_writes_nothing(tmp_path: Path, journal: Journal) -> None:
    study_in(journal)
    before = (tmp_path / "j").read_bytes()
    with journal.batched():
        pass
    assert (tmp_path / "j").read_bytes() == before


def test_killed_writer_loses_only_the_torn_line(tmp_path: Path) -> None:
    file = tmp_path / "j"
    study = study_in(Journal(file))
    a_trial(study)
    (tmp_path / "j.lock").touch()
    with open(file, "ab") as f:
        f.write(b'{"op_code": 4, "wor')
    again = study_in(Journal(file))
    assert seen(again) == seen(study)
    a_trial(again)
    assert [t.state.name for t in again.trials] == ["COMPLETE", "COMPLETE"]


def test_next_read_starts_at_the_end_and_offsets_of_read_entries_are_dropped(
    tmp_path: Path, journal: Journal
) -> None:
    study = study_in(journal)
    kept = []
    for _ in range(6):
        with journal.batched():
            a_trial(study)
        assert max(journal.offsets.values()) == (tmp_path / "j").stat().st_size
        kept.append(len(journal.offsets))
    assert len(set(kept[1:])) == 1, kept
    assert len(study_in(Journal(tmp_path / "j")).trials) == 6


SAMPLED = {
    "x": (0.25, FloatDistribution(0, 1)),
    "n": (4, IntDistribution(2, 8, step=2)),
    "c": (True, CategoricalDistribution((None, True, "a"))),
}
REPORTS = [(1, 0.5), (2, float("inf"))]
TIMES = ("datetime_start", "datetime_complete", "worker_id")


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
