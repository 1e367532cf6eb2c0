"""`gpus_per_worker: auto`: what trials measure changes the share of the next ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from results.records.failures import Remedy
from results.records.reports import Report
from results.records.trial import TrialState
from results.records.worker_samples import GPU_NEEDED, GPU_PERCENT, sample_line
from tests.reports import append_report
from tests.tuning.fake_pool import Sweep
from trainables.job import TrialJob

OOM = "rank 0: OutOfMemoryError: CUDA out of memory"
REPORTS = 3


def sweep_of(root: Path, gpus: int = 1, **spec: Any) -> Sweep:
    given = {"scheduler": {"name": "none"}, "budget": {"trials": 40}, **spec}
    return Sweep(root, gpus=gpus, cpus=8, **given)


def report(
    sweep: Sweep, job: TrialJob, rate: float | None, *, gpu: str = "a", busy: float | None = 40.0
) -> None:
    """A sample and a report, as a worker writes them; the clock is in the trial's own steps."""
    step = (sweep.run.table.last_step(job.trial_id) or 0) + 1
    values = {} if busy is None else {GPU_PERCENT: busy, GPU_NEEDED: 20.0}
    file = job.paths.samples(job.attempt, 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as f:
        f.write(sample_line(step, 0.0, values, place={"uuid": gpu}))
    metrics = {"loss": 1.0} if rate is None else {"loss": 1.0, "tokens_per_second": rate}
    said = Report(step=step, metrics=metrics, attempt=job.attempt, time=time.time())
    append_report(job.paths, said)
    sweep.workers.sharing.on_report(job, said)
    sweep.run.on_report(job.trial_id, said)


def begin_all(sweep: Sweep) -> list[TrialJob]:
    found = []
    while sweep.workers.find_allocation() is not None:
        job = sweep.run.next_trial(sweep.workers.find_allocation)
        assert job is not None
        sweep.workers.start(job)
        found.append(job)
    return found


def end(sweep: Sweep, job: TrialJob) -> None:
    sweep.run.on_ended(job.trial_id)
    sweep.workers.release(job, unusable=False)


def round_of(sweep: Sweep, rate: float | None, **given: Any) -> list[float]:
    """Trials side by side, from begin to end; returns the part of a GPU that each has."""
    jobs = begin_all(sweep)
    for _ in range(REPORTS):
        for job in jobs:
            report(sweep, job, rate, **given)
    for job in jobs:
        end(sweep, job)
    return [sweep.run.records[job.trial_id].attempts[0].gpus for job in jobs]


def test_trials_share_a_gpu_while_it_trains_more(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "s")
    assert [round_of(sweep, 100.0) for _ in range(2)] == [[1.0], [1.0]]
    assert (sweep.pool.gpus, round_of(sweep, 90.0)) == (0.5, [0.5, 0.5])
    assert round_of(sweep, 55.0) == [0.33] * 3
    assert round_of(sweep, 90.0) == [0.5, 0.5], "165 tokens/s instead of 180"
    assert round_of(sweep, 10.0) == [0.5, 0.5], "it stays"


def test_no_trial_begins_on_a_gpu_where_one_has_another_part(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "s", gpus=2)
    first, second = begin_all(sweep)
    for _ in range(REPORTS):
        report(sweep, first, 100.0, gpu="a")
        report(sweep, second, 100.0, gpu="b")
    end(sweep, first)
    (third,) = begin_all(sweep)
    for _ in range(REPORTS):
        report(sweep, third, 100.0, gpu="a")
    end(sweep, third)
    assert sweep.pool.gpus == 0.5
    assert len(begin_all(sweep)) == 2, "the other GPU is taken"
    sweep.workers.poll()
    assert sweep.pool.cancelled == 0
    end(sweep, second)
    assert len(begin_all(sweep)) == 2


def test_rates_count_while_a_gpu_is_full(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "s")
    for _ in range(2):
        round_of(sweep, 100.0)
    alone, late = begin_all(sweep)
    for _ in range(9):
        report(sweep, alone, 100.0)  # the other one compiles
    end(sweep, alone)
    report(sweep, late, 90.0)
    end(sweep, late)
    assert round_of(sweep, 52.0) == [0.5, 0.5]
    assert sweep.pool.gpus == 1.0, "104 tokens/s are not a tenth more than 100"


def test_out_of_memory_undoes_the_share_and_repeats_the_trial(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path / "s", failure={"on_oom": "infeasible", "max_retries": 0})
    for _ in range(2):
        round_of(sweep, 100.0)
    job, other = begin_all(sweep)
    assert sweep.run.on_failed(job.trial_id, OOM) is Remedy.LARGER_SHARE
    sweep.workers.release(job, unusable=True)
    assert sweep.workers.find_allocation() is None, "the other one is still there"
    end(sweep, other)
    (again,) = begin_all(sweep)
    assert again.key == f"{job.trial_id}.2"
    assert again.config == job.config
    assert sweep.run.records[job.trial_id].attempts[1].gpus == 1.0
    assert sweep.run.on_failed(job.trial_id, OOM) is Remedy.INFEASIBLE
    assert sweep.run.records[job.trial_id].state is TrialState.FAILED


@pytest.mark.parametrize(
    ("spec", "gpus"),
    [
        ({"resources": {"gpus_per_worker": 1}}, 1),
        ({"resources": {"gpus_per_worker": 0.5}}, 1),
        ({"resources": {"workers": 2}}, 2),
        ({}, 0),
        ({"trainable": None, "command": ["train", "{args}"]}, 1),
    ],
    ids=["whole", "fixed", "several workers", "no GPU", "command"],
)
def test_share_stays_where_it_is_not_for_the_driver(
    tmp_path: Path, spec: dict[str, Any], gpus: int
) -> None:
    sweep = sweep_of(tmp_path / "s", gpus=gpus, **spec)
    held = [round_of(sweep, 100.0) for _ in range(4)]
    assert held[1:] == held[:-1]
    assert not sweep.run.paths.gpu_shares.exists()


@pytest.mark.parametrize(("rate", "busy"), [(None, 40.0), (100.0, None)])
def test_what_is_not_measured_is_said(
    tmp_path: Path, rate: float | None, busy: float | None
) -> None:
    sweep = sweep_of(tmp_path / "s")
    for _ in range(4):
        assert round_of(sweep, rate, busy=busy) == [1.0]
    said = sweep.run.paths.gpu_shares.read_text()
    assert ("use is not measured" if busy is None else "no metric ends in _per_second") in said
