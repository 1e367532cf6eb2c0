"""What a scrape says of trials that start, report, fail, are retried and resumed."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from itertools import pairwise

import pytest

from results.checkpoints.checkpoint_times import append_time
from results.checkpoints.commit import Manifest
from results.checkpoints.streaming_hash import FileEntry
from results.metrics.sweep_metrics import SweepMetrics
from results.records.trial import Attempt, Report, TrialRecord, TrialState
from results.records.worker_samples import sample_line
from results.trial_paths import TrialPaths
from tests.cli.conftest import ROOT
from tests.reports import append_report
from tests.results.metrics.conftest import Session, scraped, text
from tests.tuning.simulate import next_job
from trainables.job import TrialJob
from tuning.controller.sweep import SweepController

GPU = {"node": "gpu-7", "gpu": "3", "uuid": "GPU-5f4e"}


def report(run: SweepController, job: TrialJob, step: int, **metrics: float) -> None:
    made = Report(step=step, metrics=metrics, attempt=job.attempt, time=time.time())
    append_report(job.paths, made)
    run.on_report(job.trial_id, made)


def measured(paths: TrialPaths, attempt: int, rank: int = 0, **values: float) -> None:
    """Append a sample; `communication` is a phase."""
    phases = {"communication": values.pop("communication", 0.0)}
    named = {f"system/{name}": value for name, value in values.items()}
    paths.attempt(attempt).mkdir(parents=True, exist_ok=True)
    with open(paths.samples(attempt, rank), "a") as f:
        f.write(sample_line(1, 1.0, named, phases, GPU))


def saved(job: TrialJob, seconds: float) -> None:
    made = Manifest(step=1, files={"model": FileEntry(size=2_000_000, sha256="0" * 64)})
    append_time(job.paths, job.attempt, "save", seconds, made)


def test_a_running_trial_has_its_values(session: Session) -> None:
    run, metrics = session(prices={"cpu_hour": 1.0})
    job = next_job(run)
    report(run, job, 4, loss=0.5, train_loss=0.75, samples_seen=64.0)
    measured(
        job.paths, 1, gpu_percent=40.0, gpu_celsius=91.0, gpu_memory_mb=10.0, communication=2.0
    )
    got = scraped(metrics)
    assert got['tune_train_loss{trial="t0000"}'] == 0.75
    assert got['tune_trial_metric{metric="loss",trial="t0000"}'] == 0.5
    assert got['tune_train_steps_total{trial="t0000"}'] == 4
    assert got['tune_train_samples_total{trial="t0000"}'] == 64
    assert got['tune_gpu_utilization_ratio{gpu="3",rank="0",trial="t0000"}'] == 0.4
    assert got['tune_gpu_temperature_celsius{gpu="3",rank="0",trial="t0000"}'] == 91
    assert got['tune_gpu_memory_used_bytes{gpu="3",rank="0",trial="t0000"}'] == 1e7
    info = 'tune_gpu_info{gpu="3",node="gpu-7",rank="0",trial="t0000",uuid="GPU-5f4e"}'
    assert got[info] == 1
    assert got['tune_communication_seconds_total{rank="0",trial="t0000"}'] == 2
    assert got['tune_trials{state="running"}'] == 1
    assert got['tune_best_value{metric="loss"}'] == 0.5
    assert got['tune_cost_total{currency="USD"}'] > 0
    assert abs(got['tune_trial_last_report_timestamp_seconds{trial="t0000"}'] - time.time()) < 60
    assert got['tune_rung_trials{rung="1"}'] == 1


def test_clock_that_is_no_number_reaches_the_rungs_of_its_step(session: Session) -> None:
    run, metrics = session(
        scheduler={"name": "asha", "grace_period": 1, "max_t": 9, "time_attr": "epoch"}
    )
    job = next_job(run)
    report(run, job, 1, loss=0.5, epoch=float("inf"))
    got = scraped(metrics)
    assert [got[f'tune_rung_trials{{rung="{rung}"}}'] for rung in (1, 3)] == [1, 0]


def test_documented_metrics_are_those_of_a_scrape(session: Session) -> None:
    run, metrics = session(prices={"cpu_hour": 1.0})
    next_job(run)
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `tune_")]
    documented = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert documented == set(re.findall(r"^# TYPE (\w+)", text(metrics), re.MULTILINE))


def test_a_trial_that_ended_has_no_series_but_its_checkpoints_count(session: Session) -> None:
    run, metrics = session()
    job = next_job(run)
    report(run, job, 1, loss=0.5)
    saved(job, 2.0)
    measured(job.paths, 1, memory_mb=5.0)
    assert "t0000" in text(metrics)
    run.on_ended(job.trial_id)
    got = scraped(metrics)
    assert not [name for name in got if "t0000" in name]
    assert got["tune_checkpoint_save_seconds_sum"] == 2.0
    assert got['tune_checkpoint_save_seconds_bucket{le="1"}'] == 0
    assert got['tune_checkpoint_save_seconds_bucket{le="3"}'] == 1
    assert got["tune_checkpoint_bytes_sum"] == 2e6
    assert got['tune_attempts_total{result="ended"}'] == 1


def counters(metrics: SweepMetrics) -> dict[str, float]:
    return {
        k: v for k, v in scraped(metrics).items() if "_total" in k or "_sum" in k or "_count" in k
    }


def fell(before: dict[str, float], after: dict[str, float]) -> list[str]:
    return [name for name, value in before.items() if after.get(name, -1) < value]


def test_counters_never_fall_over_a_retry_and_a_resume(session: Session) -> None:
    changes = {"prices": {"cpu_hour": 1.0}, "failure": {"max_retries": 3}}
    run, metrics = session(**changes)
    seen = []
    for step in (1, 2, 3):  # ends at a failure, and goes on from an earlier checkpoint
        job = next_job(run)
        report(run, job, 4 - step + 3, loss=0.5, samples_seen=10.0 * (7 - step))
        saved(job, 1.0)
        measured(job.paths, job.attempt, communication=1.5, disk_written_mb=7.0 / step)
        seen.append(counters(metrics))
        if step < 3:
            run.on_failed(job.trial_id, "rank 0: RuntimeError: lost")
    assert not [name for a, b in pairwise(seen) for name in fell(a, b)]
    assert seen[-1]['tune_train_steps_total{trial="t0000"}'] == 6
    assert seen[-1]['tune_communication_seconds_total{rank="0",trial="t0000"}'] == 4.5
    written = seen[-1]['tune_worker_disk_written_bytes_total{rank="0",trial="t0000"}']
    assert written == pytest.approx(7e6 * (1 + 1 / 2 + 1 / 3))
    assert seen[-1]["tune_checkpoint_save_seconds_count"] == 3
    assert seen[-1]['tune_attempts_total{result="failed"}'] == 2
    assert seen[-1]['tune_wasted_cost_total{currency="USD",reason="failed"}'] > 0
    assert seen[-1]['tune_wasted_cost_total{currency="USD",reason="stopped"}'] == 0
    # The driver is killed now, in the middle of attempt 3; another one resumes the sweep.
    again, after = session(**changes)
    job = next_job(again)
    assert (job.trial_id, job.attempt) == ("t0000", 4)
    assert not fell(seen[-1], counters(after))
    assert counters(after)["tune_checkpoint_save_seconds_count"] == 3


def test_a_paused_trial_that_goes_on_counts_its_checkpoints_once(session: Session) -> None:
    run, metrics = session(failure={"max_retries": 3})
    job = next_job(run)
    saved(job, 1.0)
    run.on_failed(job.trial_id, "rank 0: RuntimeError: lost")
    assert next_job(run).attempt == 2
    assert scraped(metrics)["tune_checkpoint_save_seconds_count"] == 1


def record(number: int, **changes: object) -> TrialRecord:
    trial_id, attempt = f"t{number:04d}", Attempt(number=1, started=1.0)
    made = TrialRecord(
        id=trial_id, number=number, params={}, config={}, seed=0, created=1.0, attempts=(attempt,)
    )
    return made.model_copy(update={"state": TrialState.RUNNING, **changes})


def test_a_thousand_trials_have_no_more_lines_than_ten(session: Session) -> None:
    _, metrics = session()
    done = (Attempt(number=1, started=1.0, ended=2.0),)
    for number in range(20):  # a failed one, and all states
        metrics.trial_started(record(number))
        state = (TrialState.FAILED, TrialState.STOPPED, TrialState.COMPLETED)[number % 3]
        metrics.trial_ended(record(number, state=state, attempts=done))
    lines = {}
    for number in range(20, 1000):
        metrics.trial_started(record(number))
        metrics.trial_reported(
            record(number), Report(step=1, metrics={"loss": 1.0}, attempt=1, time=5.0)
        )
        if number in (20, 999):
            lines[number] = len(text(metrics).splitlines())
        metrics.trial_ended(record(number, state=TrialState.COMPLETED, attempts=done))
    assert lines[999] == lines[20]
    assert sum(metrics.states.values()) == 1000


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
def test_promtool_finds_no_fault(session: Session) -> None:
    run, metrics = session(prices={"cpu_hour": 1.0})
    job = next_job(run)
    report(run, job, 1, loss=0.5, train_loss=0.5, samples_seen=8.0)
    saved(job, 1.0)
    measured(job.paths, 1, gpu_percent=4.0, network_sent_mb=3.0, network_received_mb=3.0)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text(metrics), text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
