from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tests.tuning.call_costs import costs
from tuning.search.study.journal import Journal


def study_in(backend: JournalFileBackend) -> optuna.Study:
    return optuna.create_study(
        storage=JournalStorage(backend),
        study_name="s",
        load_if_exists=True,
        sampler=optuna.samplers.RandomSampler(seed=0),
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
