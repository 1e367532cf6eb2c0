"""A resume repairs a damaged sweep folder, and keeps the damaged files."""

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import JournalStorage

from results.paths import Storage, SweepPaths
from results.records import environment
from results.records.environment import Environment, version_changes
from results.records.integrity import check_records
from results.records.record_log import write_logged
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, TrialState, read_reports, read_trial, write_trial
from results.sweep_folder.folder import read_state
from results.sweep_folder.repair import repair_spec
from search_spaces.checksum import (
    add_json_checksum,
    add_yaml_checksum,
    json_is_intact,
    yaml_is_intact,
)
from search_spaces.errors import DamagedRecordsError, UserError
from search_spaces.loading.sweep_file import dump_sweep, load_sweep
from tests.tuning.simulate import (
    STEPS,
    finish,
    make_spec,
    new_sweep,
    open_run,
    outcome,
    run_trials,
    train,
)
from trainables.runtime.provenance import library_versions
from tuning.controller.session import open_sweep
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.study import open_study


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    """A sweep with three finished trials, one unfinished trial, and two to come."""
    paths = new_sweep(make_spec(), tmp_path)
    run = run_trials(paths.root, count=3)
    train(run, run.next_trial(), upto=1)
    assert repair_spec(paths) == []
    return paths


def resumed(paths: SweepPaths, accept_damage: bool = False) -> SweepController:
    with open_sweep(paths, make_spec(), accept_damage=accept_damage) as run:
        finish(run)
        return run


def essence(run: SweepController) -> list[tuple[object, ...]]:
    """What must be as without damage. The reason is not: a rebuilt record lacks it."""
    rows = [(r.id, r.params, r.config, r.seed, r.state) for r in run.records.values()]
    return sorted(rows, key=lambda row: str(row[0]))


def flip(data: bytes, at: int, bit: int = 1) -> bytes:
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]


def damage(file: Path, how: str) -> None:
    data = file.read_bytes()
    if how == "deleted":
        file.unlink()
        return
    middle = len(data) // 2
    damaged = {
        "truncated": data[:middle],
        "cut short": data[:10],
        "emptied": b"",
        "garbage": b"\xff\xfe garbage\n" * 5,
        "middle": data[:middle] + data[middle + 30 :],
        "flipped": flip(data, random.Random(0).randrange(10, middle)),
    }
    file.write_bytes(damaged[how])


@pytest.mark.parametrize("trial", ["t0000", "t0003"])
@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_lost_record_is_rebuilt(
    paths: SweepPaths, uninterrupted: SweepController, trial: str, how: str
) -> None:
    record = paths.trial(trial).record
    before = read_trial(paths.trial(trial))
    damage(record, how)
    run = resumed(paths)
    assert essence(run) == essence(uninterrupted)
    assert len(run.repaired) == 1
    assert run.repaired[0].startswith(f"repaired: {record}: ")
    assert (record.with_name("trial.json.damaged")).exists() == (how != "deleted")
    after = read_trial(paths.trial(trial))
    assert after.end_step == uninterrupted.records[trial].end_step
    assert len(after.attempts) >= len(before.attempts)
    assert resumed(paths).repaired == []


@pytest.mark.parametrize("how", ["truncated", "deleted"])
def test_lost_record_of_a_replicate_is_rebuilt(tmp_path: Path, how: str) -> None:
    spec = make_spec(replicates=3, scheduler={"name": "none", "max_t": STEPS})
    paths = new_sweep(spec, tmp_path)
    before = run_trials(paths.root, spec, count=4)
    damage(paths.trial("t0000-2").record, how)
    with open_sweep(paths, spec) as run:
        finish(run)
    assert len(run.repaired) == 1
    assert essence(run)[:3] == essence(before)[:3]
    assert [r.replicate for r in run.records.values()] == [0, 1, 2, 0, 1, 2]


def test_study_is_compared_with_the_records_in_one_pass(
    paths: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, whole = [], JournalStorage.get_all_trials

    def get_all_trials(self: JournalStorage, *args: Any, **kwargs: Any) -> Any:
        listed.append(args)
        return whole(self, *args, **kwargs)

    monkeypatch.setattr(JournalStorage, "get_all_trials", get_all_trials)
    assert open_study(paths, make_spec())[1] == []
    assert len(listed) < len(paths.trial_ids()) == 4


@pytest.mark.parametrize("how", ["middle", "wrong value", "deleted", "garbage"])
def test_lost_study_is_rebuilt(paths: SweepPaths, uninterrupted: SweepController, how: str) -> None:
    if how == "wrong value":  # a digit of a proposed value: readable, but wrong
        text = paths.study.read_bytes()
        at = text.index(b'"param_value_internal":') + len(b'"param_value_internal":') + 6
        digit = b"7" if text[at : at + 1] != b"7" else b"3"
        paths.study.write_bytes(text[:at] + digit + text[at + 1 :])
    else:
        damage(paths.study, how)
    run = resumed(paths)
    assert outcome(run) == outcome(uninterrupted)
    assert len(run.repaired) == 1
    assert (paths.root / "study.journal.damaged").exists() == (how != "deleted")


def test_study_agrees_with_records_of_transformed_domains(tmp_path: Path) -> None:
    """The study stores normal and log-quantised values as they were sampled, not as used."""
    space = {"x": {"randn": [0, 1]}, "y": {"qrandn": [0, 1, 0.5]}, "n": {"qlograndint": [8, 64, 8]}}
    run = open_run(tmp_path, make_spec(space=space))
    for _ in range(3):
        train(run, run.next_trial(), value=lambda config, step: float(config["x"]))
    study, repairs = open_study(run.paths, make_spec(space=space))
    assert repairs == []
    known = {r.number: r.params for r in run.records.values()}
    assert [study.recover(i)[0] for i in range(3)] == [known[i] for i in range(3)]  # type: ignore[index]


def test_trial_is_quarantined_if_record_and_study_are_lost(paths: SweepPaths) -> None:
    """Its number is not used again."""
    reports = paths.trial("t0001").reports.read_bytes()
    paths.trial("t0001").record.write_bytes(b"{")
    paths.study.unlink()
    with pytest.raises(DamagedRecordsError, match=r"missing: t0001/trial\.json, which"):
        resumed(paths)
    run = resumed(paths, accept_damage=True)
    assert "t0001" not in run.records
    assert (paths.trials / "t0001.damaged" / "reports.jsonl").read_bytes() == reports
    assert sorted(run.records) == ["t0000", "t0002", "t0003", "t0004", "t0005", "t0006"]


def test_trial_stays_finished_if_reports_and_study_are_lost(paths: SweepPaths) -> None:
    paths.trial("t0000").reports.unlink()
    paths.study.unlink()
    before = read_trial(paths.trial("t0000"))
    assert before.state is TrialState.COMPLETED
    with pytest.raises(DamagedRecordsError, match="has no report, its record says 9"):
        resumed(paths)
    run = resumed(paths, accept_damage=True)
    assert read_trial(paths.trial("t0000")) == before
    assert len(run.records) == 6


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_lost_state_is_rebuilt(paths: SweepPaths, how: str) -> None:
    damage(paths.state, how)
    with pytest.raises(UserError, match=r"state\.json: not readable"):
        read_state(paths)
    run = resumed(paths)
    assert "MLflow gets new runs" in run.repaired[0]
    spent = read_state(paths).spent
    assert len(spent) == 2
    assert all(s is not None and s >= 0 for s in spent)


def test_flipped_bit_in_a_report_loses_that_line_only(paths: SweepPaths) -> None:
    trial = paths.trial("t0003")
    steps = [r.step for r in read_reports(trial)]
    lines = trial.reports.read_bytes()
    trial.reports.write_bytes(flip(lines, lines.index(b'"loss":') + 9))
    assert [r.step for r in read_reports(trial)] == steps[1:]


def test_flipped_bit_in_a_sweep_file_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    text = add_yaml_checksum("# frozen\n" + dump_sweep(make_spec()))
    file.write_text(text)
    assert load_sweep(file).spec == make_spec()
    file.write_text(text.replace("trials: 6", "trials: 7"))
    with pytest.raises(UserError, match="if you edited it, delete line 1"):
        load_sweep(file)
    file.write_text(text.replace("trials: 6", "trials: 7").partition("\n")[2])
    assert load_sweep(file).spec.budget.trials == 7


@pytest.mark.parametrize(
    "how", ["truncated", "cut short", "emptied", "flipped", "deleted", "garbage"]
)
def test_damaged_spec_file_is_restored_from_its_copy(
    paths: SweepPaths, uninterrupted: SweepController, how: str
) -> None:
    before = paths.spec.read_bytes()
    damage(paths.spec, how)
    assert read_spec(paths) == make_spec()
    assert list(Storage(paths.root.parent).sweeps()) == [paths]
    run = resumed(paths)
    assert outcome(run) == outcome(uninterrupted)
    assert run.repaired[0].startswith(f"repaired: {paths.spec}: ")
    assert paths.spec.read_bytes() == before
    assert (paths.root / "sweep.yaml.damaged").exists() == (how != "deleted")
    assert resumed(paths).repaired == []


def test_spec_file_with_an_invalid_edit_is_refused(paths: SweepPaths) -> None:
    text = paths.spec.read_text().partition("\n")[2]
    paths.spec.write_text(text.replace("trials: 6", "trials: -6"))
    with pytest.raises(UserError, match=r"/sweep\.yaml:\d+: budget\.trials: "):
        read_spec(paths)
    paths.spec.write_text(text.replace("trials: 6", "trials: 7"))
    assert read_spec(paths).budget.trials == 7


def test_damaged_copy_of_the_spec_file_is_replaced(paths: SweepPaths) -> None:
    for damaged in (b"", b"\xff"):
        paths.spec_copy.write_bytes(damaged)
        assert resumed(paths).repaired == []
        assert paths.spec_copy.read_bytes() == paths.spec.read_bytes()
    for file in (paths.spec, paths.spec_copy):
        damage(file, "truncated")
    with pytest.raises(UserError, match=r"sweep\.yaml:1: does not match its checksum"):
        read_spec(paths)


def test_every_flipped_bit_is_noticed_or_harmless(paths: SweepPaths) -> None:
    record = read_trial(paths.trial("t0000"))
    data = paths.trial("t0000").record.read_bytes()
    assert json_is_intact(data)
    for at in range(len(data)):
        flipped = flip(data, at, bit=4)
        if json_is_intact(flipped):  # the bit was in the checksum's own key
            with contextlib.suppress(ValueError):
                assert TrialRecord.model_validate_json(flipped) == record
    assert not yaml_is_intact(add_yaml_checksum("a: 1\n").replace("a: 1", "a: 3").encode())


def note_torch(paths: SweepPaths, trial: str, version: str) -> None:
    versions = {**dict(library_versions()), "torch": version}
    ran = Environment(source={}, versions=versions, hardware={})
    environment.write(paths.trial(trial), 1, ran)


def test_resume_reports_library_versions_that_changed_since_the_newest_record(
    paths: SweepPaths, uninterrupted: SweepController
) -> None:
    note_torch(paths, "t0000", "0.9")
    note_torch(paths, "t0001", "1.0")
    run = resumed(paths)
    assert outcome(run) == outcome(uninterrupted)
    [line] = version_changes(paths, run.records, dict(library_versions()))
    now = dict(library_versions())["torch"]
    assert line.startswith(f"other versions: torch 1.0 then, {now} now; trials continue")
    assert version_changes(paths, {"t0002": run.records["t0002"]}, dict(library_versions())) == []


def change(record: Path, **members: object) -> bytes:
    """Rewrite a record as another version would have written it."""
    raw = json.loads(record.read_bytes())
    del raw["crc32"]
    data = add_json_checksum(json.dumps({**raw, **members})).encode()
    write_logged(SweepPaths(record.parents[2]), record, data)
    return data


@pytest.mark.parametrize("first", [False, True])
def test_record_that_could_not_be_written_is_no_damage(paths: SweepPaths, first: bool) -> None:
    record = paths.trial("t0009" if first else "t0000").record
    for _ in range(2):
        blocked = record.with_name(f".{record.name}.{os.getpid()}.tmp")
        blocked.mkdir(parents=True)
        with pytest.raises(UserError, match="move the folder away"):
            write_logged(paths, record, b"{}")
        blocked.rmdir()
    change(paths.trial("t0001").record)
    assert check_records(paths).problems == ()


def test_resume_ignores_unknown_keys_of_a_record(paths: SweepPaths) -> None:
    change(paths.trial("t0000").record, colour="green")
    before = read_trial(paths.trial("t0000"))
    assert resumed(paths).repaired == []
    assert read_trial(paths.trial("t0000")) == before


def test_resume_rebuilds_a_record_that_is_older_than_the_last_one(paths: SweepPaths) -> None:
    record = paths.trial("t0000").record
    before, data = read_trial(paths.trial("t0000")), record.read_bytes()
    write_trial(paths.trial("t0000"), before.model_copy(update={"reason": "another"}))
    record.write_bytes(data)
    [line] = resumed(paths).repaired
    assert line.startswith(f"repaired: {record}: older than the one that records.jsonl lists last")
    after = read_trial(paths.trial("t0000"))
    assert (after.state, after.params, after.end_step) == (
        before.state,
        before.params,
        before.end_step,
    )


def test_resume_refuses_an_intact_record_of_another_version(paths: SweepPaths) -> None:
    record = paths.trial("t0000").record
    data = change(record, state="hibernating")
    assert json_is_intact(data)
    with pytest.raises(UserError, match="another version of tune wrote it") as e:
        resumed(paths)
    assert e.value.problems[0].startswith(f"{record}: not readable (")
    assert record.read_bytes() == data
