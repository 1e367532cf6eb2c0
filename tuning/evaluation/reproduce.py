"""Runs a trial again from its record, in fresh processes, and compares the curves bit by bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from results.paths import SweepPaths
from results.records import environment
from results.records.trial import Report, TrialRecord, read_reports
from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from trainables.launch.rerun import RerunOrder
from trainables.registry import resolve
from tuning.controller.trial_jobs import make_rerun_job
from tuning.evaluation.load_model import cache_of, config_of
from tuning.evaluation.retrain import run_user_loop

_OF_TIME = ("_per_second", "_seconds", "_time")
"""How metrics end that measure time, and are never the same twice."""


@dataclass(frozen=True)
class Reproduction:
    """What came of it.

    Attributes:
        reports: how many were compared.
        first: where the curves part, in words; None when they are bit-identical.
        differences: between then and now, a line for each kind; see `environment.differences`.
        log: what the processes printed.
    """

    reports: int
    first: str | None
    differences: tuple[str, ...]
    log: str


def reproduce(
    paths: SweepPaths, spec: SweepSpec, record: TrialRecord, address: str | None = None
) -> Reproduction:
    """Run a trial from its start to its end, on as many workers as it had.

    Without Ray, unless the training code uses Ray Train (`address`: of its cluster).
    Its files are kept under `reproductions/<trial>` of the sweep folder, an earlier run's replaced.

    Raises:
        UserError: the trial has no reports, went on from the weights of another, changed its number
            of workers, or did not run.
    """
    then = read_reports(paths.trial(record.id), record.end_step)
    if not then:
        raise UserError(f"{paths.name}: trial {record.id} has no reports to compare with")
    if record.lineage:
        taken = record.lineage[0]
        raise UserError(
            f"{paths.name}: trial {record.id} took over the weights of {taken.donor} at step "
            f"{taken.donor_step}, so it cannot be run again by itself"
        )
    if len(sizes := {a.workers for a in record.attempts}) > 1:
        raise UserError(
            f"{paths.name}: trial {record.id} ran with {' and '.join(map(str, sorted(sizes)))} "
            "workers, one after the other: sums in another order differ in the last bits"
        )
    trainable = resolve(spec.trainable)
    config_of(spec, trainable, record)
    files = paths.reproduction(record.id)
    shutil.rmtree(files.root, ignore_errors=True)
    was = environment.read(paths.trial(record.id), then[-1].attempt)
    workers = int(was.hardware["workers"]) if was else record.attempts[-1].workers
    job = make_rerun_job(spec, record, files, str(cache_of(paths)), then[-1].step)
    if trainable.uses_ray_train:
        run_user_loop(spec, job, then[-1].step, workers, address)
        log = str(files.log(1, 0))
    else:
        log = _run(RerunOrder(job, then[-1].step), workers, spec.resources.cpus_per_worker)
    now = environment.read(files, 1)
    verdict = Reproduction(
        len(then),
        first_difference(then, read_reports(files)),
        tuple(environment.differences(was, now)) if was and now else (),
        log,
    )
    said = {"trial": record.id, "identical": verdict.first is None, "first": verdict.first}
    more = {"reports": verdict.reports, "differences": verdict.differences}
    write_atomic(files.root / "verdict.json", json.dumps({**said, **more}, indent=1).encode())
    return verdict


def first_difference(then: Sequence[Report], now: Sequence[Report]) -> str | None:
    """Where two curves part; None when every metric that does not measure time has equal bits."""
    repeated = {r.step: r.metrics for r in now}
    for report in then:
        if report.step not in repeated:
            return f"step {report.step} was not reported again"
        for name, value in report.metrics.items():
            again = repeated[report.step].get(name)
            if not name.endswith(_OF_TIME) and repr(again) != repr(value):
                return f"step {report.step}: {name} was {value!r}, is {again!r}"
    return None


def _run(again: RerunOrder, workers: int, cpus: float) -> str:
    """Train in fresh processes, with the threads that Ray gives a worker; gives the log's path."""
    root = again.job.paths.root
    root.mkdir(parents=True)
    order = root / "again.json"
    order.write_bytes(TypeAdapter(RerunOrder).dump_json(again))
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    command = [sys.executable, *(launcher if workers > 1 else []), "-m", "trainables.launch.rerun"]
    env = {**os.environ, "OMP_NUM_THREADS": str(max(1, int(cpus)))}
    with open(root / "again.log", "wb") as log:
        done = subprocess.run([*command, str(order)], env=env, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise UserError(f"{again.job.trial_id} could not be run again; log {log.name}")
    return log.name
