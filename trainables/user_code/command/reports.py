"""Reads a program's reports: lines of JSON in a file, or numbers in its output."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError, suggest
from search_spaces.nested import show
from search_spaces.patterns import cut_number, first_group
from trainables.job import TrialJob, as_number
from trainables.user_code.metrics import StepCounter, flat

STEP, CHECKPOINT = "step", "checkpoint"
_MAX_DIGITS = 4000
_MAX_AHEAD = 10_000


@dataclass(frozen=True)
class ProgramReport:
    """What a program said at once.

    Attributes:
        values: names and values as it gave them.
        answer_to: position in $TUNE_REPORTS after its line, which the answer names; None: no
            answer is expected.
    """

    values: dict[str, Any] = field(default_factory=dict)
    answer_to: int | None = None


class ReportJoiner:
    """Makes reports of what a program says: lines are joined until the objectives are among them.

    So a line of the training and one of the evaluation are one report, with the newest value of
    each name, and lines before the first evaluation are none. What comes after the report of its
    step is left out.

    Args:
        job: the attempt.
        begin: step of the checkpoint from which the program resumes.
    """

    def __init__(self, job: TrialJob, begin: int | None) -> None:
        self._time_attr, self._steps = job.time_attr, StepCounter(job, begin)
        names = [o.metric for o in job.objectives] or [job.retention.metric]
        self._objectives = frozenset(filter(None, names))
        self._waiting: dict[str, Any] = {}

    def take(self, said: Mapping[str, Any]) -> tuple[int, dict[str, float]]:
        """The step, and the metrics of a report; no metrics if there is none yet.

        Raises:
            UserError: the step is not a whole number; an objective, or the scheduler's clock, is
                not a number.
        """
        values = {k: v for k, v in flat(said) if k != CHECKPOINT}
        joined = {**self._of_this_time(values), **values}
        metrics = self._numbers(joined)
        if metrics and self._objectives <= metrics.keys():
            self._waiting = {}
            return self._steps.number(metrics, _step(joined)) or (self._steps.last, {})
        own, step = self._numbers(values), _step(values)
        if not self._steps.is_past(own, step):
            self._waiting = joined
        clock = math.floor(own.get(self._time_attr, 0))
        return max(self._steps.last, clock if step is None else step), {}

    def _of_this_time(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """What waits, without the objectives of another step."""
        before, now = (
            {k: v for k, v in part.items() if k in (STEP, self._time_attr)}
            for part in (self._waiting, values)
        )
        is_other = any(before.get(name, value) != value for name, value in now.items())
        dropped = self._objectives if is_other else ()
        return {k: v for k, v in self._waiting.items() if k not in dropped}

    def advice(self) -> str:
        """The names that the program said in place of the metric; empty if it said nothing."""
        names = self._numbers(self._waiting).keys() - {self._time_attr}
        lacking = sorted(self._objectives - names)
        return f": it never gave {lacking[0]}{suggest(lacking[0], names)}" if names else ""

    def _numbers(self, values: Mapping[str, Any]) -> dict[str, float]:
        """The numbers; other values are left out."""
        found = {}
        for name, value in values.items():
            try:
                found[name] = as_number(name, value)
            except TypeError as e:
                if name in self._objectives or name == self._time_attr != STEP:
                    raise UserError(str(e)) from None
        return {name: number for name, number in found.items() if name != STEP}


def _step(values: Mapping[str, Any]) -> int | None:
    """The step that a program names; None if it names none."""
    if (given := values.get(STEP)) is None:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if (step := int(given)) == float(given):
            return step
    raise UserError(f"the program reported a step that is not a whole number: {show(given)}")


class JsonLines:
    """New lines of a file to which a program appends.

    Args:
        path: of the file, which need not exist yet.
        name: of the file in messages.
        answered: whether the program waits for answers.
    """

    def __init__(self, path: Path, name: str, *, answered: bool = False) -> None:
        self._path, self._name, self._answered = path, name, answered
        self._read = path.stat().st_size if path.exists() else 0
        self._number = 0

    def new(self, *, ended: bool = False) -> Iterator[ProgramReport]:
        """Yield what has been written since; a line without its end only if the program `ended`.

        Raises:
            UserError: a line is not a JSON object.
        """
        try:
            size = self._path.stat().st_size
        except OSError:
            return
        if size < self._read:
            self._read = 0  # it was replaced
        if size == self._read:
            return
        with open(self._path, "rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n") and not ended:
                    return
                self._read += len(line)
                self._number += 1
                if line.strip():
                    yield ProgramReport(self._parse(line), self._read if self._answered else None)

    def _parse(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line, parse_int=_whole_number)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        text = show(line.decode(errors="replace").strip())
        raise UserError(f"{self._name}: line {self._number} is not a JSON object: {text}")


def _whole_number(text: str) -> int:
    """Of more digits than Python reads, a number of as many digits: beyond the range of floats."""
    return int(text) if len(text) < _MAX_DIGITS else 10 ** (len(text) - 2)


class OutputPatterns:
    """Collects metrics from a program's output; a report is complete when each has matched.

    Attributes:
        missing: metrics that the report in progress lacks.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        self._patterns = dict(patterns)
        self._found: dict[str, float] = {}
        self._ahead = Counter[tuple[str, str, bool]]()

    @property
    def missing(self) -> list[str]:
        """Metrics that have not matched since the last report."""
        return [name for name in self._patterns if name not in self._found]

    def feed(self, line: str, *, strict: bool = True) -> Iterator[ProgramReport]:
        """Yield a report if this line completes one; not if the other stream has said it already.

        Args:
            strict: whether what a pattern finds must be a number. The error output also quotes
                source code, in warnings and tracebacks.

        Raises:
            UserError: what a pattern found is not a number, or only a part of one.
        """
        for name, pattern in self._patterns.items():
            text = first_group(pattern, line)
            if text is None or self._is_repeated(name, line, strict):
                continue
            where = f"in {show(line)}" + ("" if strict else " of the error output")
            said = f"report_from.stdout.{name}: found {show(text)} {where}"
            try:
                self._found[name] = float(text)
            except ValueError:
                if strict:
                    raise UserError(f"{said}, which is not a number") from None
                continue
            if whole := cut_number(pattern, line):
                advice = r"let the group take the whole number, like (\S+)"
                raise UserError(f"{said}, a part of {show(whole)}; {advice}")
        if self._patterns and not self.missing:
            found, self._found = self._found, {}
            yield ProgramReport(dict(found))

    def _is_repeated(self, name: str, line: str, strict: bool) -> bool:
        """Whether the other stream had this line: some loggers write to both."""
        if self._ahead[name, line, not strict] > 0:
            self._ahead[name, line, not strict] -= 1
            return True
        self._ahead[name, line, strict] += 1
        if len(self._ahead) > _MAX_AHEAD:
            del self._ahead[next(iter(self._ahead))]
        return False
