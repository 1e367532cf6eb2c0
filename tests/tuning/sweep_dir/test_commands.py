"""Commands to a running sweep are carried out exactly once, even if the driver is killed."""

import os
import time
from dataclasses import replace

import pytest

from results.records.trial import TrialState, read_reports, read_trial
from results.sweep_folder.folder import read_state, write_state
from tests.tuning.simulate import finish, make_spec, new_sweep, open_run, run_sweep, train
from tuning.controller.commands import CommandHandler, pending_commands, send, stop_trials
from tuning.controller.session import asked_session
from tuning.search.schedulers import Decision
from tuning.search.study.study import SweepStudy

DAY = 86400.0
GIVEN = {"x": 0.25, "opt.k": 2}
POINT = {"x": 0.25, "opt": {"k": 2}}


def reopen(run):
    """The next session, after the driver was killed."""
    earlier = pending_commands(run.paths)
    again = open_run(run.paths.root, run.spec)
    CommandHandler(again).begin(earlier)
    return again


def added(run):
    return [r for r in run.records.values() if r.params["x"] == 0.25]


def test_added_configuration_is_the_next_trial(run):
    train(run, run.next_trial())
    send(run.paths, "add", params=GIVEN)
    CommandHandler(run)()
    job = run.next_trial()
    assert job.trial_id == "t0001"
    assert run.records["t0001"].config == POINT
    assert pending_commands(run.paths) == []
    train(run, job)
    finish(run)
    assert len(run.records) == 6  # it counts as one of the budget


def test_searcher_proposes_missing_parameters_of_an_added_configuration(run):
    send(run.paths, "add", params={"x": 0.25})
    send(run.paths, "add", params={"opt.k": 2})
    CommandHandler(run).begin()
    first, second = run.next_trial(), run.next_trial()
    assert first.config["x"] == 0.25
    assert first.config["opt"]["k"] in (1, 2)
    assert second.config["opt"]["k"] == 2
    assert -1 <= second.config["x"] <= 1


def test_add_extends_a_finished_sweep(tmp_path):
    run = run_sweep(tmp_path / "s")
    send(run.paths, "add", params=GIVEN)
    again = reopen(run)
    assert not again.finished
    finish(again)
    assert [r.id for r in again.records.values()] == [f"t{i:04d}" for i in range(7)]
    assert again.records["t0006"].config == POINT
    assert reopen(again).finished


def test_added_configuration_takes_no_point_from_a_grid(tmp_path):
    space = {"x": {"uniform": [-1.0, 1.0]}, "opt": {"k": {"grid_search": [1, 2, 3]}}}
    run = open_run(tmp_path / "s", make_spec(space=space, budget={"trials": 4}))
    train(run, run.next_trial())
    send(run.paths, "add", params={"x": 0.25, "opt.k": 3})
    CommandHandler(run)()
    train(run, run.next_trial())
    finish(run)
    assert [r.params["opt.k"] for r in run.records.values()] == [1, 3, 2, 1]


@pytest.mark.parametrize("killed", ["enqueued", "asked", "recorded", "begun", "finished"])
def test_add_is_carried_out_once_if_the_driver_is_killed(run, killed):
    train(run, run.next_trial())
    command = send(run.paths, "add", params=GIVEN)
    study = SweepStudy(run.paths.study, run.spec.name, run.spec)
    study.enqueue(GIVEN, command.id)
    if killed == "asked":
        study.ask()
    if killed in ("recorded", "begun", "finished"):
        run.add(GIVEN, command.id)
    if killed in ("begun", "finished"):
        job = run.next_trial()
        train(run, job, upto=3 if killed == "begun" else 9)
    again = reopen(run)
    assert pending_commands(run.paths) == []
    finish(again)
    assert [r.number for r in added(again)] == [1]
    assert len(again.records) == 6


def test_add_refuses_a_configuration_that_no_longer_fits(run):
    send(run.paths, "add", params={"x": 5.0})
    send(run.paths, "add", params={"y": 5.0})
    again = reopen(run)
    assert again.records == {}
    assert pending_commands(run.paths) == []
    assert again.problem == (
        "an added configuration no longer fits: x: must be of uniform [-1.0, 1.0], got 5.0\n"
        "an added configuration no longer fits: y: not in the space (valid: opt.k, x)"
    )


def test_stopped_trial_ends_at_its_next_report(run):
    first, second = run.next_trial(), run.next_trial()
    assert train(run, first, upto=2) is Decision.CONTINUE
    send(run.paths, "stop", trial=first.trial_id)
    CommandHandler(run)()
    assert pending_commands(run.paths)  # until the trial has stopped
    assert train(run, second, upto=2, value=lambda c, s: 0.0) is Decision.CONTINUE
    assert train(run, first, value=lambda c, s: 0.0) is Decision.STOP
    record = run.records[first.trial_id]
    assert (record.state, record.reason) == (TrialState.STOPPED, "by hand at step 3")
    CommandHandler(run)()
    assert not pending_commands(run.paths)
    assert not run.finished
    assert run.limit is None


def test_stop_is_carried_out_by_the_next_driver(run):
    job = run.next_trial()
    train(run, job, upto=2)
    send(run.paths, "stop", trial=job.trial_id)
    CommandHandler(run)()
    again = reopen(run)
    record = again.records[job.trial_id]
    assert (record.state, record.reason, record.end_step) == (TrialState.STOPPED, "by hand", 2)
    assert pending_commands(run.paths) == []
    assert again.next_trial().trial_id == "t0001"


def test_stop_without_a_driver_ends_what_a_killed_one_ran(tmp_path):
    run = open_run(new_sweep(make_spec(), tmp_path).root)
    job = run.next_trial()
    train(run, job, upto=2)
    state, began = read_state(run.paths), time.time() - DAY
    write_state(run.paths, replace(state, started=(began,), spent=(None,)))
    for file in job.paths.root.glob("*.json*"):
        os.utime(file, (began + 5.0,) * 2)
    assert stop_trials(run.paths, None) == "stopped the sweep; unfinished trials: 1"
    assert read_state(run.paths).spent == (pytest.approx(5.0, abs=0.01),)
    record = read_trial(job.paths)
    assert (record.state, record.end_step) == (TrialState.STOPPED, 2)
    assert record.attempts[-1].ended == read_reports(job.paths)[-1].time
    assert record.attempts[-1].reports == 2


def test_stopped_trial_that_fails_is_not_retried(run):
    job = run.next_trial()
    send(run.paths, "stop", trial=job.trial_id)
    CommandHandler(run)()
    run.on_failed(job.trial_id, "boom")
    assert run.records[job.trial_id].state is TrialState.STOPPED
    assert run.next_trial().trial_id == "t0001"
    CommandHandler(run)()
    assert pending_commands(run.paths) == []


def test_stopped_sweep_can_be_resumed(run):
    jobs = [run.next_trial(), run.next_trial()]
    train(run, jobs[0], upto=2)
    send(run.paths, "stop")
    CommandHandler(run)()
    assert run.next_trial() is None
    assert not run.finished
    for job in jobs:
        assert train(run, job, value=lambda c, s: 0.0) is Decision.STOP
    CommandHandler(run)()
    assert pending_commands(run.paths) == []
    assert run.finished
    assert run.limit.summary == "tune stop"
    assert {r.state for r in run.records.values()} == {TrialState.STOPPED}
    again = reopen(run)
    finish(again)
    assert len(again.records) == 6


def test_stop_that_waits_at_the_end_of_a_session_does_not_end_the_next(run):
    job = run.next_trial()
    send(run.paths, "stop")
    commands = CommandHandler(run)
    commands()
    assert train(run, job, value=lambda c, s: 0.0) is Decision.STOP
    assert run.finished
    commands.end()
    assert pending_commands(run.paths) == []
    assert reopen(run).next_trial().trial_id == "t0001"


def test_pause_ends_this_session_only(run):
    job = run.next_trial()
    train(run, job, upto=2)
    send(run.paths, "pause")
    CommandHandler(run)()
    assert run.interrupted
    assert run.next_trial() is None
    run.lifecycle.release()
    assert run.records[job.trial_id].state is TrialState.PENDING
    assert pending_commands(run.paths) == []
    send(run.paths, "pause")  # arrives after the session has ended
    again = reopen(run)
    assert not again.interrupted
    assert again.next_trial().trial_id == job.trial_id


def test_pause_before_the_first_trial_of_a_session_ends_it(run):
    send(run.paths, "pause")  # the driver owns the sweep, and still reads its records
    CommandHandler(run).begin()
    assert run.interrupted
    assert pending_commands(run.paths) == []


def test_stopped_sweep_whose_session_is_interrupted_has_ended(tmp_path):
    spec = make_spec()
    paths = new_sweep(spec, tmp_path)
    with asked_session(paths, spec) as run:
        train(run, run.next_trial(), upto=2)
        commands = CommandHandler(run)
        for command in ("stop", "pause"):
            send(paths, command)
            commands.carry_out()
        run.lifecycle.release()
        commands.end()
    assert read_state(paths).ended == "tune stop"


def test_inbox_ignores_files_that_are_no_commands(run):
    send(run.paths, "add", params=GIVEN)
    for name, text in (("0.json", "{"), ("1.json", '{"do": "dance"}'), (".2.json.tmp", "")):
        (run.paths.inbox / name).write_text(text)
    again = reopen(run)
    assert len(added(again)) == 1
