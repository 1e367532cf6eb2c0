"""A resume repairs a damaged sweep folder, and keeps the damaged files."""

import random
from pathlib import Path

import pytest

from results.paths import Storage, SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, TrialState, read_reports, read_trial, read_trials
from search_spaces.checksum import (
    add_json_checksum,
    add_yaml_checksum,
    json_is_intact,
    yaml_is_intact,
)
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import dump_sweep, load_sweep
from tests.tuning.simulate import finish, make_spec, open_run, outcome, train
from tuning.controller.session import open_sweep
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.folder import SweepState, read_state, write_state
from tuning.controller.sweep_dir.repair import open_study, repair_spec


def started(root: Path) -> SweepPaths:
    """A sweep with three finished trials, one unfinished trial, and two to come."""
    run = open_run(root, make_spec())
    for _ in range(3):
        train(run, run.next_trial())
    train(run, run.next_trial(), upto=1)
    write_state(run.paths, SweepState("key", (0.0,), (5.0,)))
    run.paths.spec.write_text(add_yaml_checksum("# frozen\n" + dump_sweep(make_spec())))
    assert repair_spec(run.paths) == []
    return run.paths


def resumed(paths: SweepPaths) -> SweepController:
    with open_sweep(paths, make_spec()) as run:
        finish(run)
        return run


def essence(run: SweepController) -> list[tuple[object, ...]]:
    """What must be as without damage. The reason is not: a rebuilt record lacks it."""
    rows = [(r.id, r.params, r.config, r.seed, r.state) for r in run.records.values()]
    return sorted(rows, key=lambda row: str(row[0]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> SweepController:
    run = open_run(tmp_path_factory.mktemp("whole"), make_spec())
    finish(run)
    return run


@pytest.mark.parametrize("trial", ["t0000", "t0003"])
@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_lost_record_is_rebuilt(
    tmp_path: Path, whole: SweepController, trial: str, how: str
) -> None:
    paths = started(tmp_path / "s")
    record = paths.trial(trial).record
    before = read_trial(paths.trial(trial))
    damage(record, how)
    run = resumed(paths)
    assert essence(run) == essence(whole)
    assert len(run.repaired) == 1
    assert run.repaired[0].startswith(f"repaired: {record}: ")
    assert (record.with_name("trial.json.damaged")).exists() == (how != "deleted")
    after = read_trial(paths.trial(trial))
    assert after.end_step == next(r for r in read_trials(whole.paths) if r.id == trial).end_step
    assert len(after.attempts) >= len(before.attempts)
    assert resumed(paths).repaired == []


@pytest.mark.parametrize("how", ["middle", "flipped", "deleted", "garbage"])
def test_lost_study_is_rebuilt(tmp_path: Path, whole: SweepController, how: str) -> None:
    paths = started(tmp_path / "s")
    text = paths.study.read_bytes()
    if how == "deleted":
        paths.study.unlink()
    elif how == "garbage":
        paths.study.write_bytes(b"\xff\xfe garbage\n" * 5)
    elif how == "middle":
        paths.study.write_bytes(text[: len(text) // 2] + text[len(text) // 2 + 30 :])
    else:  # a digit of a proposed value: readable, but wrong
        at = text.index(b'"param_value_internal":') + len(b'"param_value_internal":') + 6
        digit = b"7" if text[at : at + 1] != b"7" else b"3"
        paths.study.write_bytes(text[:at] + digit + text[at + 1 :])
    run = resumed(paths)
    assert outcome(run) == outcome(whole)
    assert len(run.repaired) == (how != "deleted")
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


def test_trial_is_quarantined_if_record_and_study_are_lost(tmp_path: Path) -> None:
    """Its number is not used again."""
    paths = started(tmp_path / "s")
    reports = paths.trial("t0001").reports.read_bytes()
    paths.trial("t0001").record.write_bytes(b"{")
    paths.study.unlink()
    run = resumed(paths)
    assert "t0001" not in run.records
    assert (paths.trials / "t0001.damaged" / "reports.jsonl").read_bytes() == reports
    assert sorted(run.records) == ["t0000", "t0002", "t0003", "t0004", "t0005", "t0006"]


def test_trial_stays_finished_if_reports_and_study_are_lost(tmp_path: Path) -> None:
    paths = started(tmp_path / "s")
    paths.trial("t0000").reports.unlink()
    paths.study.unlink()
    before = read_trial(paths.trial("t0000"))
    assert before.state is TrialState.COMPLETED
    run = resumed(paths)
    assert read_trial(paths.trial("t0000")) == before
    assert len(run.records) == 6


@pytest.mark.parametrize("how", ["truncated", "flipped", "deleted"])
def test_lost_state_is_rebuilt(tmp_path: Path, how: str) -> None:
    paths = started(tmp_path / "s")
    damage(paths.state, how)
    with pytest.raises(UserError, match=r"state\.json: not readable"):
        read_state(paths)
    run = resumed(paths)
    assert "MLflow gets new runs" in run.repaired[0]
    spent = read_state(paths).spent
    assert len(spent) == 2
    assert all(s is not None and s >= 0 for s in spent)


def test_flipped_bit_in_a_report_loses_that_line_only(tmp_path: Path) -> None:
    paths = started(tmp_path / "s").trial("t0003")
    train_steps = [r.step for r in read_reports(paths)]
    lines = paths.reports.read_bytes()
    at = lines.index(b'"loss":') + 9
    paths.reports.write_bytes(lines[:at] + bytes([lines[at] ^ 1]) + lines[at + 1 :])
    assert [r.step for r in read_reports(paths)] == train_steps[1:]


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
    tmp_path: Path, whole: SweepController, how: str
) -> None:
    paths = started(tmp_path / "s")
    before = paths.spec.read_bytes()
    if how in ("emptied", "cut short"):
        paths.spec.write_bytes(before[: 10 * (how == "cut short")])
    elif how == "garbage":
        paths.spec.write_bytes(b"\xff\xfe\x00" * 9)
    else:
        damage(paths.spec, how)
    assert read_spec(paths) == make_spec()
    assert [p.name for p in Storage(tmp_path).sweeps()] == ["s"]
    run = resumed(paths)
    assert outcome(run) == outcome(whole)
    assert run.repaired[0].startswith(f"repaired: {paths.spec}: ")
    assert paths.spec.read_bytes() == before
    assert (paths.root / "sweep.yaml.damaged").exists() == (how != "deleted")
    assert resumed(paths).repaired == []


def test_spec_file_with_an_invalid_edit_is_refused(tmp_path: Path) -> None:
    paths = started(tmp_path / "s")
    text = paths.spec.read_text().partition("\n")[2]
    paths.spec.write_text(text.replace("trials: 6", "trials: -6"))
    with pytest.raises(UserError, match=r"s/sweep\.yaml:\d+: budget\.trials: "):
        read_spec(paths)
    paths.spec.write_text(text.replace("trials: 6", "trials: 7"))
    assert read_spec(paths).budget.trials == 7


def test_damaged_copy_of_the_spec_file_is_replaced(tmp_path: Path) -> None:
    paths = started(tmp_path / "s")
    for damaged in (b"", b"\xff"):
        paths.spec_copy.write_bytes(damaged)
        assert resumed(paths).repaired == []
        assert paths.spec_copy.read_bytes() == paths.spec.read_bytes()
    for file in (paths.spec, paths.spec_copy):
        damage(file, "truncated")
    with pytest.raises(UserError, match=r"sweep\.yaml:1: does not match its checksum"):
        read_spec(paths)


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path: Path) -> None:
    record = read_trial(started(tmp_path / "s").trial("t0000"))
    data = add_json_checksum(record.model_dump_json(indent=1)).encode()
    assert json_is_intact(data)
    assert TrialRecord.model_validate_json(data) == record
    for at in range(len(data)):
        flipped = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        if json_is_intact(flipped):  # the bit was in the checksum's own key
            try:
                assert TrialRecord.model_validate_json(flipped) == record
            except ValueError:
                continue
    assert not yaml_is_intact(add_yaml_checksum("a: 1\n").replace("a: 1", "a: 3").encode())


def damage(file: Path, how: str) -> None:
    data = file.read_bytes()
    if how == "deleted":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(data[: len(data) // 2])
    else:
        at = random.Random(0).randrange(10, len(data) // 2)
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
