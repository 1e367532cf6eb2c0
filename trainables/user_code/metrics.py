"""The metrics and steps of the reports of a user's loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from results.trial_paths import TrialPaths
from search_spaces.redaction import redact_name
from trainables.job import as_number


def flat_numbers(reported: Mapping[str, Any], metric: str) -> dict[str, float]:
    """The numbers of a report by name; those of nested mappings as `outer/inner`, as Ray Tune does.

    Numbers are those of Python and numpy, and tensors without dimensions. Other values are left
    out, and secrets in names struck out.

    Raises:
        TypeError: `metric`, the sweep's, is not a number.
    """
    numbers = {}
    for name, value in _flat(reported):
        try:
            numbers[redact_name(name)] = as_number(name, value)
        except TypeError:
            if name == metric:
                raise
    return numbers


def _flat(reported: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in reported.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


class StepCounter:
    """Gives each report of an attempt its step: the metric `time_attr`, or a count of reports.

    A loop that counts from 0, as `for epoch in range(10)` does, reports what it has completed as
    one less than the scheduler counts it: its metric is raised by 1. A file of the trial remembers
    that for its later attempts.

    Args:
        begin: the step at which the attempt began, from which reports are counted.
    """

    def __init__(self, paths: TrialPaths, time_attr: str, begin: int) -> None:
        self._marker, self._time_attr = paths.counts_from_zero, time_attr
        self._from_zero = self._marker.exists()
        self.last, self._is_first = begin, True

    def number(self, numbers: dict[str, float]) -> tuple[int, dict[str, float]]:
        """The step of a report, and its metrics with `time_attr` counted from 1."""
        clock = numbers.get(self._time_attr)
        if clock is None:
            return self.last + 1, numbers
        if self._is_first and clock == 0 and not self._from_zero:
            self._from_zero = True
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            self._marker.touch()
        self._is_first = False
        clock += self._from_zero
        return int(clock), {**numbers, self._time_attr: clock}
