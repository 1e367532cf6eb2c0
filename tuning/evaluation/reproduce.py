"""Runs a trial again from its record, in fresh processes, and compares the curves bit by bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass

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
from tuning.evaluation.cluster_runs import run_on_cluster
from tuning.evaluation.load_model import config_of
from tuning.evaluation.ranks import run_ranks

_TIMES = ("_per_second", "_seconds", "_time", "mfu")
"""Suffixes of metrics that measure time."""


@dataclass(frozen=True)
class Reproduction:
    """The result of a reproduction.

    Attributes:
        reports: the number of reports that were compared.
        first: the first difference of the curves, in words; None if they are bit-identical.
        differences: of the environments, one line per kind; see `environment.differences`.
        log: path of the output of the processes.
    """

    reports: int
    first: str | None
    differences: tuple[str, ...]
    log: str


def reproduce(
    paths: SweepPaths, spec: SweepSpec, record: TrialRecord, address: str | None = None
) -> Reproduction:
    """Run a trial again from its start to its end, on as many workers as it had.

    It runs without Ray unless the training code uses Ray Train. Its files replace those of an
    earlier reproduction, in `reproductions/<trial>` of the sweep folder.

    Args:
        address: of the Ray cluster; None starts one on this machine.

    Raises:
        UserError: the trial cannot be reproduced, or the run failed.
    """
    then = read_reports(paths.trial(record.id), record.end_step)
    _check_reproducible(paths, record, then)
    trainable = resolve(spec.trainable)
    trainable.check_runnable()
    config_of(spec, trainable, record)
    files = paths.reproduction(record.id)
    shutil.rmtree(files.root, ignore_errors=True)
    was = environment.read(paths.trial(record.id), then[-1].attempt)
    workers = int(was.hardware["workers"]) if was else record.attempts[-1].workers
    cache, until = str(paths.storage.cache), then[-1].step
    job = make_rerun_job(spec, record, files.root, cache, until, workers=workers)
    order = RerunOrder(job, until)
    if trainable.uses_ray_train:
        log = str(files.log(1, 0))
        ((_, problem),) = run_on_cluster(paths, spec, [order], address)
        if problem:
            raise UserError(f"{record.id} could not be run again: {problem}; log {log}")
    else:
        files.root.mkdir(parents=True)
        file, output = files.root / "again.json", files.root / "again.log"
        file.write_bytes(TypeAdapter(RerunOrder).dump_json(order))
        cpus, log = spec.resources.cpus_per_worker, str(output)
        if run_ranks("trainables.launch.rerun", file, workers, cpus, output):
            raise UserError(f"{record.id} could not be run again; log {log}")
    now = environment.read(files, 1)
    result = Reproduction(
        len(then),
        first_difference(then, read_reports(files)),
        tuple(environment.differences(was, now)) if was and now else (),
        log,
    )
    facts = {"trial": record.id, "identical": result.first is None, **asdict(result)}
    write_atomic(files.root / "verdict.json", json.dumps(facts, indent=1).encode())
    return result


def _check_reproducible(paths: SweepPaths, record: TrialRecord, then: Sequence[Report]) -> None:
    if not then:
        raise UserError(f"{paths.name}: trial {record.id} has no reports to compare with")
    if record.lineage:
        taken = record.lineage[0]
        raise UserError(
            f"{paths.name}: trial {record.id} inherited the weights of {taken.donor} at step "
            f"{taken.donor_step}, so it cannot be run again by itself"
        )
    if len(ranks := sorted({a.workers_and_layout for a in record.attempts})) > 1:
        raise UserError(
            f"{paths.name}: trial {record.id} ran with {' and '.join(ranks)}, one after the other: "
            "sums in another order differ in the last bits"
        )


def first_difference(then: Sequence[Report], now: Sequence[Report]) -> str | None:
    """The first difference of two curves, in words; None if all metrics have equal bits.

    Metrics that measure time or memory are not compared.
    """
    repeated = {r.step: r.metrics for r in now}
    for report in then:
        if report.step not in repeated:
            return f"step {report.step} was not reported again"
        for name, value in report.metrics.items():
            again = repeated[report.step].get(name)
            if not measures_process(name) and repr(again) != repr(value):
                return f"step {report.step}: {name} was {value!r}, is {again!r}"
    return None


def measures_process(metric: str) -> bool:
    """Whether a metric, by its name, measures time or memory, which differ in every run."""
    return metric.endswith(_TIMES) or "memory" in metric
