"""The metrics and steps of the reports of a user's loop."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from results.records.reports import read_reports
from search_spaces.errors import UserError
from search_spaces.redaction import redact_name
from trainables.job import TrialJob, as_number


def flat_numbers(reported: Mapping[str, Any], metric: str) -> dict[str, float]:
    """The numbers of a report by name; those of nested mappings as `outer/inner`, as Ray Tune does.

    Numbers are those of Python and numpy, and tensors without dimensions. Other values are left
    out, and secrets in names struck out.

    Raises:
        TypeError: `metric`, the sweep's, is not a number.
    """
    numbers = {}
    for name, value in flat(reported):
        try:
            numbers[redact_name(name)] = as_number(name, value)
        except TypeError:
            if name == metric:
                raise
    return numbers


def flat(reported: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The names and values of a report; those of nested mappings as `outer/inner`."""
    for name, value in reported.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


class StepCounter:
    """Gives each report of an attempt its step: the one rule for loops, functions and commands.

    - The step is the one that the code names as such, or the whole part of the metric `time_attr`,
      or a count of the reports. Several reports within one unit of `time_attr`, as two evaluations
      in each epoch, are several steps; the metric keeps its value, by which the scheduler goes.
    - A loop that counts from 0, as `for epoch in range(10)` does, reports what it has completed as
      one less than the scheduler counts it: its metric is raised by 1. A file of the trial
      remembers that for its later attempts.
    - A report of an earlier time or step, or of the same step, is no new one, and gets a warning.
      Code that resumed often begins with the checkpoint's own: that needs none.

    Args:
        job: the attempt.
        begin: the step of the checkpoint at which it began; None for a fresh start.
        shares_steps: whether a report has the step of the one before it, if that is of the same
            time and lacks the sweep's metric.
    """

    def __init__(self, job: TrialJob, begin: int | None, *, shares_steps: bool = False) -> None:
        self._job, self._begin, self._shares_steps = job, begin, shares_steps
        self._marker, self._time_attr = job.paths.counts_from_zero, job.time_attr
        self._from_zero = self._marker.exists()
        self._is_first, self._lacks_metric = True, False
        self._step, self._clock = -1, -math.inf
        if begin is not None:
            found = [r for r in read_reports(job.paths, begin) if r.step == begin]
            clock = found[-1].metrics.get(self._time_attr) if found else None
            self._step, self._clock = begin, -math.inf if clock is None else clock

    @property
    def last(self) -> int:
        """The step of the last report, or of the checkpoint; 0 at first."""
        return max(0, self._step)

    def number(
        self, numbers: dict[str, float], step: int | None = None
    ) -> tuple[int, dict[str, float]] | None:
        """The step of a report, and its metrics with `time_attr` counted from 1; None if it
        repeats an earlier one.

        Args:
            numbers: its metrics.
            step: as the code names it; None if it does not.
        """
        numbers = self._from_one(numbers)
        clock, has_metric = numbers.get(self._time_attr), self._job.retention.metric in numbers
        is_same = clock == self._clock if step is None else step == self._step
        is_own = is_same and self._step == self._begin  # of the checkpoint
        goes_on = is_same and step is None and not is_own
        self._is_first = False
        if self._is_past(numbers, step) and not goes_on:
            if has_metric and not is_own:
                self._warn(numbers, step)
            return None
        if step is None:
            is_shared = self._shares_steps and goes_on and self._lacks_metric
            step = max(self.last + (not is_shared), math.floor(clock or 0))
        if has_metric and clock is None and self._clock == -math.inf and self._time_attr != "step":
            what = f"reported no {self._time_attr}, by which the scheduler goes"
            warn_once(self._job, f"{what}; its steps count in its place")
        self._step, self._clock = step, self._clock if clock is None else clock
        self._lacks_metric = not has_metric
        return step, numbers

    def is_past(self, numbers: dict[str, float], step: int | None = None) -> bool:
        """Whether a report is not beyond the last one; arguments as of `number`."""
        return self._is_past(self._from_one(numbers), step)

    def _is_past(self, numbers: Mapping[str, float], step: int | None) -> bool:
        clock = numbers.get(self._time_attr)
        if step is not None:
            return step <= self._step
        return clock is not None and clock <= self._clock

    def _from_one(self, numbers: dict[str, float]) -> dict[str, float]:
        clock = numbers.get(self._time_attr)
        if clock is None:
            return numbers
        if not math.isfinite(clock):
            raise UserError(f"{self._time_attr} is {clock}, which is no progress")
        if self._is_first and clock == 0 and not self._from_zero:
            self._from_zero = True
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            self._marker.touch()
        return {**numbers, self._time_attr: clock + self._from_zero}

    def _warn(self, numbers: Mapping[str, float], step: int | None) -> None:
        now = f"step {step} after {self._step}"
        if step is None:
            now = f"{self._time_attr} {numbers[self._time_attr]:g} after {self._clock:g}"
        warn_once(self._job, f"reported {now}; such reports do not count")


def warn_once(job: TrialJob, text: str) -> None:
    """Warn about the code of an attempt, in its log and by a file, unless that was done before.

    Args:
        text: what the attempt did, without a subject.
    """
    warning = job.paths.warning(job.attempt)
    if not warning.exists():
        sys.stderr.write(f"warning: this attempt {text}\n")
        warning.parent.mkdir(parents=True, exist_ok=True)
        warning.write_text(text)


def warn_not_restored(job: TrialJob, code: str, call: str) -> None:
    """Warn, once, in the log and by a file, that code did not ask for its checkpoint by a call."""
    warn_once(job, f"had a checkpoint, and the {code} did not ask for it by {call}; it began again")
