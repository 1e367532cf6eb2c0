"""What follows failures: retries by cause, smaller micro-batches, divergence, full disks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState as OptunaState

from results.records.failures import Cause, Remedy
from results.records.machines import Machine
from results.records.trial import TrialState, read_trial
from tests.tuning.simulate import make_spec, next_job, open_run, train
from tuning.cli.summary import count_remedies
from tuning.controller.sweep import SweepController
from tuning.search.schedulers import Decision

DIED = "rank 1: ActorDiedError: the actor died"
PREEMPTED = "rank 0: Preempted: SIGTERM"
OOM = "rank 0: OutOfMemoryError: CUDA out of memory"


def fail(run: SweepController, error: str, times: int, upto: int | None = None) -> str:
    """Fail the same trial `times` times, each time one step later if `upto` is given."""
    job = next_job(run)
    for number in range(times):
        if number:
            job = next_job(run)
        if upto is not None:
            train(run, job, upto=upto + number)
        run.on_failed(job.trial_id, error)
    return job.trial_id


def state_of(run: SweepController, trial_id: str) -> TrialState:
    return run.records[trial_id].state


def test_each_cause_has_its_own_retries(tmp_path: Path) -> None:
    limits = {"max_retries": 1, "max_preemptions": 3, "max_infrastructure": 2}
    run = open_run(tmp_path / "s", make_spec(failure=limits, scheduler={"name": "none"}))
    trial = fail(run, PREEMPTED, 3)
    job = next_job(run)
    for step in (2, 3):
        train(run, job, upto=step)
        run.on_failed(trial, DIED)
        job = next_job(run)
    run.on_failed(trial, "rank 0: ValueError: x")
    assert state_of(run, trial) is TrialState.PENDING
    assert run.next_trial() is not None
    run.on_failed(trial, "rank 0: KeyError: 'y'")
    record = run.records[trial]
    assert record.state is TrialState.FAILED
    assert record.reason == "rank 0: KeyError: 'y' (2 attempts failed, bug)"
    causes = [a.cause for a in record.attempts]
    assert causes == [Cause.PREEMPTION] * 3 + [Cause.INFRASTRUCTURE] * 2 + [Cause.BUG] * 2


def test_repeated_loss_at_the_same_step_counts_as_a_bug(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", make_spec(failure={"max_retries": 1}))
    trial = fail(run, DIED, 3)
    assert state_of(run, trial) is TrialState.FAILED
    assert [a.cause for a in run.records[trial].attempts] == [
        Cause.INFRASTRUCTURE,
        Cause.BUG,
        Cause.BUG,
    ]
    other = fail(run, DIED, 4, upto=1)
    assert state_of(run, other) is TrialState.PENDING


def test_shrink_halves_the_micro_batch_down_to_one(tmp_path: Path) -> None:
    spec = make_spec(
        space={"batch_size": {"choice": [8, 12]}},
        resources={"workers": 2},
        failure={"max_retries": 0},
        search={"name": "random"},
    )
    run = open_run(tmp_path / "s", spec)
    job = next_job(run)
    share = job.config["batch_size"] // 2
    sizes: list[Any] = []
    while state_of(run, job.trial_id) is not TrialState.FAILED:
        assert run.on_failed(job.trial_id, OOM) in (Remedy.SHRINK, Remedy.INFEASIBLE)
        if state_of(run, job.trial_id) is TrialState.PENDING:
            run = open_run(tmp_path / "s", spec)  # also over a resume
            again = next_job(run)
            assert again.trial_id == job.trial_id
            assert again.config["batch_size"] == job.config["batch_size"]
            sizes.append(again.config["micro_batch_size"])
    assert sizes == [share // 2, share // 4][: len(sizes)]
    assert sizes[-1] == 1
    record = read_trial(run.paths.trial(job.trial_id))
    assert record.reason == f"infeasible: {OOM}"
    assert "micro_batch_size" not in record.config
    assert record.adjusted == {"micro_batch_size": 1}
    proposal = run.study.trials[0]
    assert (proposal.state, proposal.intermediate_values) == (OptunaState.PRUNED, {})
    assert count_remedies(run.records.values()) == {"shrink": len(sizes), "infeasible": 1}


@pytest.mark.parametrize("policy", ["infeasible", "fail_trial"])
def test_on_oom_chooses_the_remedy(tmp_path: Path, policy: str) -> None:
    run = open_run(tmp_path / "s", make_spec(failure={"on_oom": policy}))
    trial = fail(run, OOM, 1)
    assert state_of(run, trial) is TrialState.FAILED
    assert run.records[trial].attempts[0].remedy == policy


def test_diverged_above_fails_the_trial(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", make_spec(failure={"diverged_above": 50.0}))
    job = next_job(run)
    assert train(run, job, value=lambda c, s: 10.0**s) is Decision.STOP
    record = run.records[job.trial_id]
    assert (record.reason, record.end_step) == ("diverged: loss is 100.0", 2)


def test_full_disk_stops_the_sweep_and_loses_no_trial(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", make_spec(failure={"max_retries": 0}))
    trial = fail(run, "rank 0: OSError: [Errno 28] No space left on device", 1)
    assert run.gave_up
    assert run.problem == f"{trial}: rank 0: OSError: [Errno 28] No space left on device"
    assert run.next_trial() is None
    run.lifecycle.release()
    resumed = open_run(tmp_path / "s", make_spec(failure={"max_retries": 0}))
    again = next_job(resumed)
    assert again.trial_id == trial


def test_on_log_pattern_chooses_the_remedy(tmp_path: Path) -> None:
    failure = {"on_log": {"ECC error": "retry_elsewhere", "no licence": "fail_trial"}}
    run = open_run(tmp_path / "s", make_spec(failure=failure))
    for said, remedy in (("an ECC error", Remedy.RETRY_ELSEWHERE), ("no licence", "fail_trial")):
        job = next_job(run)
        job.paths.log(job.attempt, 1).write_text(f"step 1\n{said}\nbye\n")
        assert run.on_failed(job.trial_id, "rank 0: RuntimeError: x") == remedy
    assert state_of(run, job.trial_id) is TrialState.FAILED


@pytest.mark.parametrize(
    ("error", "logs", "blamed"),
    [
        ("rank 1: RuntimeError: ECC error", {}, ["b"]),
        ("rank 0: RuntimeError: Connection closed by peer", {1: "x\nECC error\n"}, ["b"]),
        ("ActorDiedError", {0: "ECC error", 1: "ECC error"}, ["a", "b"]),
        ("AcceleratorError: CUDA error: unspecified launch failure", {}, ["a", "b"]),
        ("rank 0: ValueError: no", {}, []),
    ],
)
def test_blamed_machine_is_of_the_rank_that_failed(
    tmp_path: Path, error: str, logs: dict[int, str], blamed: list[str]
) -> None:
    run = open_run(tmp_path / "s", make_spec(failure={"on_log": {"ECC error": "retry_elsewhere"}}))
    job = next_job(run)
    for rank, text in logs.items():
        job.paths.log(job.attempt, rank).write_text(text)
    machines = {0: Machine(id="a", name="one"), 1: Machine(id="b", name="two")}
    run.on_failed(job.trial_id, error, machines=machines)
    record = read_trial(job.paths)
    assert [m.id for m in record.excluded_machines] == blamed


DIVERGED = "rank 0: FloatingPointError: inf"
BROKEN = "rank 0: ModuleNotFoundError: No module named 'x' (train.py:3)"


def test_three_trials_that_fail_alike_end_the_session(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s")
    for at in range(3):
        error = f"rank {at % 2}: ValueError: bad value {at} of file_{at} (train.py:9, data.py:7)"
        trial = fail(run, error, 1)
        if at == 0:  # no other trial has failed yet
            assert fail(run, "rank 0: ValueError: x (train.py:9, data.py:8)", 1) == trial
            assert fail(run, error, 1) == trial
    assert [len(r.attempts) for r in run.records.values()] == [3, 1, 1]
    assert {r.state for r in run.records.values()} == {TrialState.FAILED}
    assert run.gave_up
    assert (run.problem or "").startswith("t0000, t0001 and t0002 failed in the same way")
    assert run.next_trial() is None
    again = open_run(tmp_path / "s")  # the code was not mended: one more trial shows it
    again.on_failed(next_job(again).trial_id, error)
    assert again.gave_up


def test_certain_mistake_in_the_code_is_not_tried_again(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s")
    for error in (
        BROKEN,
        "rank 1: TypeError: train() missing 1 required positional argument: 'worker'",
        "rank 0: TypeError: metric loss is 'good' (str), which is not a number (train.py:5)",
    ):
        trial = next_job(run).trial_id
        assert run.on_failed(trial, error) is Remedy.FAIL_TRIAL
        assert run.records[trial].reason == error
    assert not run.gave_up


@pytest.mark.parametrize("error", [DIED, PREEMPTED, OOM, DIVERGED])
def test_failures_of_machines_and_configurations_do_not_end_the_session(
    tmp_path: Path, error: str
) -> None:
    limits = {"max_infrastructure": 0, "on_oom": "infeasible"}
    run = open_run(tmp_path / "s", make_spec(failure=limits))
    started = [next_job(run) for _ in range(4)]
    for job in started:
        run.on_failed(job.trial_id, error)
    assert not run.gave_up


def test_trials_after_the_first_value_do_not_end_the_session(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s")
    started = [next_job(run) for _ in range(5)]
    train(run, started[0], upto=1)
    for job in started[1:]:
        run.on_failed(job.trial_id, BROKEN)
    assert not run.gave_up
    assert run.table.has_result
    assert run.on_failed(started[0].trial_id, BROKEN) is Remedy.FAIL_TRIAL
    assert (run.table.has_value, run.table.has_result) == (True, False)


@pytest.mark.parametrize("never", [0, None])
def test_stop_after_same_can_be_turned_off(tmp_path: Path, never: int | None) -> None:
    run = open_run(tmp_path / "s", make_spec(failure={"stop_after_same": never}))
    for _ in range(5):
        run.on_failed(next_job(run).trial_id, BROKEN)
    assert not run.gave_up
