"""What is written down of a trial: `trial.json` by the driver, `reports.jsonl` by rank 0."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from results.files import append_line, read_lines, write_atomic
from results.paths import SweepPaths, TrialPaths
from search_spaces.errors import UserError


class TrialState(StrEnum):
    """Where a trial is. RUNNING in a sweep that nobody drives means interrupted."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def finished(self) -> bool:
        """A finished trial is never run again."""
        return self not in (TrialState.PENDING, TrialState.RUNNING)


class _Model(BaseModel):
    # extra: a newer version may have written more; inf_nan: a diverged loss must survive the trip
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")


class Attempt(_Model):
    """One launch of a trial. Times are Unix seconds; `ended` is None while it runs."""

    number: int
    started: float
    ended: float | None = None
    error: str | None = None


class TrialRecord(_Model):
    """`trial.json`.

    Attributes:
        id: `t0000`, `t0001`, … in the order in which they were proposed.
        number: the trial's number in the Optuna study.
        params: what varies, flat: dotted name to value.
        config: what the trainable is given, nested: fixed and varying.
        seed: of this trial.
        state: see `TrialState`.
        reason: why it ended, one line; empty while it runs.
        end_step: the step at which it ended; reports beyond it are not part of the trial.
        created: Unix seconds at which it was proposed.
        attempts: every launch, oldest first.
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

    @property
    def seconds(self) -> float:
        """Seconds spent in attempts, the running one included."""
        return sum((a.ended or time.time()) - a.started for a in self.attempts)


class Report(_Model):
    """One line of `reports.jsonl`: what a trial said at a step. `time` is Unix seconds."""

    step: int
    metrics: dict[str, float]
    attempt: int
    time: float


def write_trial(paths: TrialPaths, record: TrialRecord) -> None:
    """Write `trial.json` atomically."""
    write_atomic(paths.record, record.model_dump_json(indent=1).encode())


def read_trial(paths: TrialPaths) -> TrialRecord:
    """Read `trial.json`.

    Raises:
        UserError: the record is missing or damaged.
    """
    try:
        return TrialRecord.model_validate_json(paths.record.read_bytes())
    except (OSError, ValidationError) as e:
        raise UserError(f"{paths.record}: not a readable trial record ({_first_line(e)})") from e


def read_trials(paths: SweepPaths) -> list[TrialRecord]:
    """Every trial of a sweep, in the order in which they were proposed."""
    return [read_trial(paths.trial(trial_id)) for trial_id in paths.trial_ids()]


def append_report(paths: TrialPaths, report: Report) -> None:
    """Append one report durably (fsync)."""
    append_line(paths.reports, report.model_dump_json())


def read_reports(paths: TrialPaths, end_step: int | None = None) -> list[Report]:
    """The trial's reports by ascending step, one a step: the newest attempt's wins.

    Args:
        paths: of the trial.
        end_step: reports beyond it are left out (they came after the decision to stop).
    """
    by_step: dict[int, Report] = {}
    for line in read_lines(paths.reports):
        try:
            report = Report.model_validate(line)
        except ValidationError:
            continue
        known = by_step.get(report.step)
        if known is None or report.attempt >= known.attempt:
            by_step[report.step] = report
    steps = sorted(s for s in by_step if end_step is None or s <= end_step)
    return [by_step[s] for s in steps]


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"])
    return str(error).splitlines()[0]
