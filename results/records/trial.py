"""The record of a trial, `trial.json`, which the driver writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer

from results.paths import SweepPaths
from results.records.failures import Cause, Remedy
from results.records.machines import Machine
from results.records.record_log import write_logged
from results.records.reports import Report as Report
from results.records.reports import ReportChain, read_chain, read_known_chain
from results.records.reports import read_reports as read_reports
from results.trial_paths import TrialPaths
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import DamagedRecordsError, quantity, short_reason
from search_spaces.files import read_regular
from search_spaces.spec.layout import LayoutSpec


class TrialState(StrEnum):
    """State of a trial.

    RUNNING in a sweep without a driver means that it was interrupted. A PAUSED trial has a
    checkpoint and waits until the scheduler resumes it, possibly in a later session.
    """

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """Whether it ended; a finished trial never runs again."""
        return not self.active and self is not TrialState.PAUSED

    @property
    def active(self) -> bool:
        """Whether it runs, or is queued to run; False for a finished or a paused trial."""
        return self in (TrialState.PENDING, TrialState.RUNNING)


class _Model(BaseModel):
    # extra: a newer version may write more fields; inf_nan: a diverged loss must be readable again
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Attempt(_Model):
    """One launch of a trial. Times are Unix seconds; `ended` is None while it runs.

    Attributes:
        waited: seconds of it until its workers took it, mostly those of their start; 0 if fewer
            than one.
        error: one line; None unless the attempt failed.
        remedy, cause: the classification of the failure.
        step: the last step of the trial when the attempt failed.
        leak: one line about what the attempt left behind; its processes were replaced.
        cpus, gpus: of all workers together.
        accelerator: the name of rank 0's GPU, once it has ended; empty without one.
        spot: whether rank 0's machine is a spot machine, once it has ended; None: not known.
        workers: number of ranks; an elastic trial changes it from attempt to attempt.
        layout: how they share the model, if that was chosen for the attempt; None: as the sweep
            file says.
        blamed: machines on which the attempt failed.
        kept_off: machines to avoid, because earlier attempts failed there.
        in_place: whether it ran on such a machine nevertheless, because there was no other.
        reports: at least so many reports of it are in `reports.jsonl`: all, once it has ended; None
            if a version wrote them that did not count.
        last_report: checksum of the last of them; empty if there is none.
        all_reports: checksum of the whole `reports.jsonl` when it ended; empty if that was damaged.
    """

    number: int
    started: float
    ended: float | None = None
    waited: float = 0.0
    error: str | None = None
    remedy: Remedy | None = None
    cause: Cause | None = None
    step: int | None = None
    leak: str | None = None
    cpus: float = 0.0
    gpus: float = 0.0
    accelerator: str | None = None
    spot: bool | None = None
    workers: int = 1
    layout: LayoutSpec | None = None
    blamed: tuple[Machine, ...] = ()
    kept_off: tuple[Machine, ...] = ()
    in_place: bool = False
    reports: int | None = None
    last_report: str = ""
    all_reports: str = ""

    @property
    def workers_and_layout(self) -> str:
        """The number of its workers and their layout, if that was chosen for it, in words."""
        text = quantity(self.workers, "worker")
        if self.layout is None or self.workers == 1:
            return text
        return f"{text} as {self.layout.resolve(self.workers).as_written()}"

    @field_serializer("layout")
    def _written(self, layout: LayoutSpec | None) -> dict[str, Any] | None:
        return None if layout is None else layout.model_dump(exclude_defaults=True)

    @property
    def where(self) -> str:
        """The machines that the attempt avoids because earlier ones failed there, in words."""
        names = ", ".join(map(str, self.kept_off))
        if self.in_place:
            return f"no machine other than {names} fits, so it runs there again"
        return f"avoids {names}" if names else ""

    @property
    def seconds(self) -> float:
        """Seconds for which its workers had it, up to now while it runs."""
        return max(0.0, self.held_seconds - self.waited)

    @property
    def held_seconds(self) -> float:
        """Seconds for which it held its CPUs and GPUs, up to now; 0 if the clock was set back."""
        return max(0.0, (self.ended or time.time()) - self.started)


class InheritedWeights(_Model):
    """A trial continued from the weights of another trial.

    Attributes:
        step: the trial's own last step before that.
        donor: id of the trial whose checkpoint it took.
        donor_step: step of that checkpoint.
        before, after: its parameters, by dotted name.
    """

    step: int
    donor: str
    donor_step: int
    before: dict[str, Any]
    after: dict[str, Any]


class TrialRecord(_Model):
    """`trial.json`.

    Attributes:
        id: `t0000`, `t0001`, … in the order of proposal.
        number: number of its configuration in the Optuna study.
        params: the parameters that vary, flat: dotted name to value.
        config: the whole configuration for the trainable, nested: fixed and varying.
        reason: why it ended, one line; empty while it runs.
        end_step: the step at which it ended; later reports are not part of the trial.
        created: Unix seconds of the proposal.
        attempts: every launch, oldest first.
        adjusted: values that replace those of `config` in its attempts: a smaller micro-batch
            after one that did not fit into memory.
        identity: digest of everything that decides its result: code, data, configuration, seed.
        lineage: the weights that it inherited, oldest first; `params` are the newest ones.
        replicate: which of its configuration's seeds it has, counted from 0; see
            `results.analysis.replicates`.
        violations: the amount by which it violates each outcome constraint; at most 0 if it
            satisfies it.
    """

    id: str
    number: int
    params: dict[str, Any]
    config: dict[str, Any]
    seed: int
    state: TrialState = TrialState.PENDING
    reason: str = ""
    end_step: int | None = None
    created: float
    attempts: tuple[Attempt, ...] = ()
    adjusted: dict[str, Any] = Field(default_factory=dict)
    identity: str = ""
    lineage: tuple[InheritedWeights, ...] = ()
    replicate: int = 0
    violations: dict[str, float] = Field(default_factory=dict)

    @property
    def violated_constraints(self) -> tuple[str, ...]:
        """Outcome constraints that it violates."""
        return tuple(text for text, amount in self.violations.items() if amount > 0)

    @property
    def eligible(self) -> bool:
        """Whether it can win: it did not fail, and satisfies all outcome constraints."""
        return self.state is not TrialState.FAILED and not self.violated_constraints

    @property
    def config_failed(self) -> bool:
        """Whether its configuration made it fail: the model diverged or does not fit in memory."""
        last = self.attempts[-1].remedy if self.attempts else None
        return self.state is TrialState.FAILED and last in (Remedy.DIVERGED, Remedy.INFEASIBLE)

    @property
    def last_failure(self) -> Attempt | None:
        """The newest attempt that failed; None if none did."""
        return next((a for a in reversed(self.attempts) if a.error is not None), None)

    @property
    def last_error(self) -> str:
        """Its error; else why the trial ended."""
        return (self.last_failure and self.last_failure.error) or self.reason

    @property
    def may_be_retried(self) -> bool:
        """Whether it failed for another reason than its configuration."""
        return self.state is TrialState.FAILED and not self.config_failed

    @property
    def seconds(self) -> float:
        """Seconds spent in attempts, the running one included, without the start of workers."""
        return sum(a.seconds for a in self.attempts)

    def seconds_until(self, report: Report) -> float:
        """Seconds for which its workers had it before a report."""
        now, ran = report.time, (a for a in self.attempts if a.number <= report.attempt)
        return sum(max(0.0, min(a.ended or now, now) - a.started - a.waited) for a in ran)

    @property
    def excluded_machines(self) -> tuple[Machine, ...]:
        """Machines that its next attempts avoid, without duplicates."""
        return tuple(dict.fromkeys(m for a in self.attempts for m in a.blamed))

    @property
    def worker_seconds(self) -> float:
        """Seconds of each attempt times its number of workers, summed."""
        return sum(a.seconds * a.workers for a in self.attempts)

    def read_chain(self, paths: TrialPaths) -> ReportChain:
        """Its reports; the lines are not checked again if they are those of its last attempt's end.

        Raises:
            UserError: they cannot be read.
        """
        checksum = self.attempts[-1].all_reports if self.attempts else ""
        known = read_known_chain(paths, checksum, self.end_step) if checksum else None
        return known or read_chain(paths)


def write_trial(paths: TrialPaths, record: TrialRecord) -> None:
    """Write `trial.json` atomically, and log it in `records.jsonl`."""
    write_logged(SweepPaths.of_trial(paths), paths.record, dump_trial(record))


def dump_trial(record: TrialRecord) -> bytes:
    """The content of its `trial.json`."""
    return add_json_checksum(record.model_dump_json(indent=1)).encode()


def read_trial(paths: TrialPaths) -> TrialRecord:
    """Read `trial.json`.

    Raises:
        DamagedRecordsError: the record is missing or damaged.
    """
    try:
        return parse_trial(paths, read_regular(paths.record))
    except OSError as e:
        raise DamagedRecordsError(f"{paths.record}: not readable ({short_reason(e)})") from e


def parse_trial(paths: TrialPaths, data: bytes) -> TrialRecord:
    """The record of a trial from the content of its `trial.json`.

    Raises:
        DamagedRecordsError: the content is damaged.
    """
    try:
        record = TrialRecord.model_validate_json(data)
    except ValidationError as e:
        raise DamagedRecordsError(f"{paths.record}: not readable ({short_reason(e)})") from e
    if not json_is_intact(data):
        raise DamagedRecordsError(f"{paths.record}: does not match its checksum")
    if record.id != paths.root.name:  # the id decides where the trial's files are written
        raise DamagedRecordsError(f"{paths.record}: is the record of another trial, {record.id!r}")
    return record


def read_trials(paths: SweepPaths) -> list[TrialRecord]:
    """Every trial of a sweep, in the order of proposal."""
    return [read_trial(paths.trial(trial_id)) for trial_id in paths.trial_ids()]


def read_trials_with_reports(paths: SweepPaths) -> Iterator[tuple[TrialRecord, list[Report]]]:
    """Every trial of a sweep and its reports up to its `end_step`, in the order of proposal."""
    for record in read_trials(paths):
        yield record, record.read_chain(paths.trial(record.id)).reports(record.end_step)
