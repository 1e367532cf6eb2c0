"""A resume with other versions of libraries or of this project."""

import json
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records import environment
from results.records.environment import Environment
from results.records.trial import read_trial
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import UserError
from tests.tuning.simulate import finish, make_spec, open_run, outcome, train
from trainables.runtime.provenance import library_versions
from tuning.controller.session import open_sweep
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.folder import SweepState, write_state
from tuning.controller.sweep_dir.repair import version_changes


@pytest.fixture
def paths(tmp_path: Path) -> SweepPaths:
    """A sweep in its third trial; the newest recorded versions are those of the second trial."""
    run = open_run(tmp_path / "s", make_spec())
    for number in range(2):
        job = run.next_trial()
        train(run, job)
        note(run, job.trial_id, "1.0" if number else "0.9")
    train(run, run.next_trial(), upto=1)
    write_state(run.paths, SweepState("key", (0.0,), (5.0,)))
    run.paths.spec.write_text("name: s\n")
    return run.paths


def note(run: SweepController, trial: str, torch: str) -> None:
    ran = Environment(source={}, versions={**dict(library_versions()), "torch": torch}, hardware={})
    environment.write(run.paths.trial(trial), 1, ran)


def resumed(paths: SweepPaths) -> SweepController:
    with open_sweep(paths, make_spec()) as run:
        finish(run)
        return run


def test_resume_reports_changed_library_versions(paths: SweepPaths, tmp_path: Path) -> None:
    whole = open_run(tmp_path / "whole", make_spec())
    finish(whole)
    run = resumed(paths)
    assert outcome(run) == outcome(whole)
    [line] = version_changes(paths, run.records)
    now = dict(library_versions())["torch"]
    assert line.startswith(f"other versions: torch 1.0 then, {now} now; trials continue")
    assert version_changes(paths, {"t0002": run.records["t0002"]}) == []


def change(record: Path, **members: object) -> bytes:
    """Rewrite a record as another version would have written it."""
    raw = json.loads(record.read_bytes())
    del raw["crc32"]
    data = add_json_checksum(json.dumps({**raw, **members})).encode()
    record.write_bytes(data)
    return data


def test_resume_ignores_unknown_keys_of_a_record(paths: SweepPaths) -> None:
    change(paths.trial("t0000").record, colour="green")
    before = read_trial(paths.trial("t0000"))
    assert resumed(paths).repaired == []
    assert read_trial(paths.trial("t0000")) == before


def test_resume_refuses_an_intact_record_of_another_version(paths: SweepPaths) -> None:
    record = paths.trial("t0000").record
    data = change(record, state="hibernating")
    assert json_is_intact(data)
    with pytest.raises(UserError, match="another version of tune wrote it") as e:
        resumed(paths)
    assert e.value.problems[0].startswith(f"{record}: not a readable trial record (")
    assert record.read_bytes() == data
