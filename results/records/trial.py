"""What is written down of a trial: `trial.json` by the driver, `reports.jsonl` by rank 0."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from results.paths import SweepPaths, TrialPaths
from results.records.failures import Cause, Remedy
from results.records.machines import Machine
from results.storage.atomic import append_line, parse_lines, read_lines, write_atomic
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import UserError


class TrialState(StrEnum):
    """Where a trial is. RUNNING in a sweep that nobody drives means interrupted; a PAUSED trial
    waits, with a checkpoint, until the scheduler calls it, be it in a later, longer session.
    """

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """A finished trial is never run again."""
        return not self.active and self is not TrialState.PAUSED

    @property
    def active(self) -> bool:
        """Whether it runs, or is queued to run; False for a finished or a paused trial."""
        return self in (TrialState.PENDING, TrialState.RUNNING)


class _Model(BaseModel):
    # extra: a newer version may have written more; inf_nan: a diverged loss must survive the trip
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Attempt(_Model):
    """One launch of a trial. Times are Unix seconds; `ended` is None while it runs.

    `cpus` and `gpus` are what its workers hold together. Of one that failed, `error` says how in
    one line, `remedy` and `cause` what it was taken for, `step` how far the trial had come.
    `leak` is one line on memory that it left behind, for which its processes were replaced.
    `workers` is its number of ranks, which an elastic trial changes from attempt to attempt.
    `blamed` are machines on which it failed, `kept_off` those that it was to be kept off for what
    earlier attempts met there; `in_place` that there was no other, so that it ran there after all.
    """

    number: int
    started: float
    ended: float | None = None
    error: str | None = None
    remedy: Remedy | None = None
    cause: Cause | None = None
    step: int | None = None
    leak: str | None = None
    cpus: float = 0.0
    gpus: float = 0.0
    workers: int = 1
    blamed: tuple[Machine, ...] = ()
    kept_off: tuple[Machine, ...] = ()
    in_place: bool = False

    @property
    def where(self) -> str:
        """What was done about machines that earlier attempts failed on, in words."""
        names = ", ".join(map(str, self.kept_off))
        if self.in_place:
            return f"there is no machine but {names}, so it is tried there again"
        return f"kept off {names}" if names else ""

    @property
    def seconds(self) -> float:
        """Seconds that it took, up to now while it runs; none where the clock was set back."""
        return max(0.0, (self.ended or time.time()) - self.started)


class InheritedWeights(_Model):
    """A trial went on from the weights of another.

    Attributes:
        step: the trial's own last step before it.
        donor: whose checkpoint it took, and
        donor_step: of which step.
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
        id: `t0000`, `t0001`, … in the order in which they were proposed.
        number: its configuration's number in the Optuna study.
        params: what varies, flat: dotted name to value.
        config: what the trainable is given, nested: fixed and varying.
        seed: of this trial.
        state: see `TrialState`.
        reason: why it ended, one line; empty while it runs.
        end_step: the step at which it ended; reports beyond it are not part of the trial.
        created: Unix seconds at which it was proposed.
        attempts: every launch, oldest first.
        adjusted: what its attempts are given instead of what `config` says: a smaller micro-batch
            after one that did not fit into memory.
        identity: digest of all that decides how it comes out: code, data, configuration, seed.
        lineage: whose weights it took over on its way, oldest first; `params` are the newest.
        replicate: which of its configuration's seeds it has, counted from 0; see
            `results.analysis.replicates`.
        violations: by how much it breaks each outcome constraint; zero or less where it keeps it.
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
    def broken_constraints(self) -> tuple[str, ...]:
        """The outcome constraints that it breaks."""
        return tuple(text for text, amount in self.violations.items() if amount > 0)

    @property
    def eligible(self) -> bool:
        """Whether it may win: it did not fail, and breaks no outcome constraint."""
        return self.state is not TrialState.FAILED and not self.broken_constraints

    @property
    def config_failed(self) -> bool:
        """Whether its configuration is to blame: the model diverged, or does not fit."""
        last = self.attempts[-1].remedy if self.attempts else None
        return self.state is TrialState.FAILED and last in (Remedy.DIVERGED, Remedy.INFEASIBLE)

    @property
    def seconds(self) -> float:
        """Seconds spent in attempts, the running one included."""
        return sum(a.seconds for a in self.attempts)

    @property
    def excluded_machines(self) -> tuple[Machine, ...]:
        """Machines that its next attempts are kept off, each once."""
        return tuple(dict.fromkeys(m for a in self.attempts for m in a.blamed))

    @property
    def worker_seconds(self) -> float:
        """Seconds spent in attempts, times the workers that each had."""
        return sum(a.seconds * a.workers for a in self.attempts)


class Report(_Model):
    """One line of `reports.jsonl`: what a trial said at a step. `time` is Unix seconds."""

    step: int
    metrics: dict[str, float]
    attempt: int
    time: float


def write_trial(paths: TrialPaths, record: TrialRecord) -> None:
    """Write `trial.json` atomically."""
    write_atomic(paths.record, add_json_checksum(record.model_dump_json(indent=1)).encode())


def read_trial(paths: TrialPaths) -> TrialRecord:
    """Read `trial.json`.

    Raises:
        UserError: the record is missing or damaged.
    """
    try:
        data = paths.record.read_bytes()
        record = TrialRecord.model_validate_json(data)
    except (OSError, ValidationError) as e:
        raise UserError(f"{paths.record}: not a readable trial record ({_first_line(e)})") from e
    if not json_is_intact(data):
        raise UserError(f"{paths.record}: does not match its checksum")
    if record.id != paths.root.name:  # else it would say where its files are written
        raise UserError(f"{paths.record}: is the record of another trial, {record.id!r}")
    return record


def read_trials(paths: SweepPaths) -> list[TrialRecord]:
    """Every trial of a sweep, in the order in which they were proposed."""
    return [read_trial(paths.trial(trial_id)) for trial_id in paths.trial_ids()]


def append_report(paths: TrialPaths, report: Report) -> None:
    """Append one report durably (fsync)."""
    append_line(paths.reports, add_json_checksum(report.model_dump_json()))


def read_reports(paths: TrialPaths, end_step: int | None = None) -> list[Report]:
    """The trial's reports by ascending step, one a step: the newest attempt's wins.

    Args:
        paths: of the trial.
        end_step: reports beyond it are left out (they came after the decision to stop).
    """
    by_step: dict[int, Report] = {}
    for report in _reports(read_lines(paths.reports)):
        known = by_step.get(report.step)
        if known is None or report.attempt >= known.attempt:
            by_step[report.step] = report
    steps = sorted(s for s in by_step if end_step is None or s <= end_step)
    return [by_step[s] for s in steps]


@dataclass
class ReportTail:
    """Reads the reports of a trial that were appended since the last time.

    Attributes:
        paths: of the trial.
        position: bytes of the file that need not be read again; moved by the reader.
    """

    paths: TrialPaths
    position: int = 0

    def read(self, end_step: int | None) -> tuple[list[Report], int]:
        """Whole lines from `position` on, up to `end_step`; and the position behind them."""
        try:
            with open(self.paths.reports, "rb") as f:
                f.seek(self.position)
                data = f.read()
        except FileNotFoundError:
            return [], self.position
        whole = data.rfind(b"\n") + 1
        found = list(_reports(parse_lines(data[:whole])))
        kept = [r for r in found if end_step is None or r.step <= end_step]
        return kept, self.position + whole


def _reports(lines: Iterable[dict[str, Any]]) -> Iterator[Report]:
    for line in lines:
        try:
            yield Report.model_validate(line)
        except ValidationError:
            continue


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"])
    return str(error).splitlines()[0]
