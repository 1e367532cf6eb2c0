"""Reads a program's reports: lines of JSON in a file, or numbers in its output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.nested import show
from search_spaces.patterns import first_group
from trainables.job import as_number

STEP, CHECKPOINT = "step", "checkpoint"
_MAX_DIGITS = 4000


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

    def metrics(self, metric: str) -> dict[str, float]:
        """The numbers; other values are left out.

        Raises:
            TypeError: the value of `metric`, the sweep's, is not a number.
        """
        found = {}
        for name, value in self.values.items():
            if name in (STEP, CHECKPOINT):
                continue
            try:
                found[name] = as_number(name, value)
            except TypeError:
                if name == metric:
                    raise
        return found

    def step(self, time_attr: str, last: int) -> int:
        """Its step: as given, or by the scheduler's clock, or one more than the last one.

        Raises:
            UserError: the step is not a whole number.
        """
        given = self.values.get(STEP, self.values.get(time_attr))
        if given is None:
            return last + 1
        try:
            if (step := int(given)) == float(given):
                return step
        except (TypeError, ValueError, OverflowError):
            pass
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

    @property
    def missing(self) -> list[str]:
        """Metrics that have not matched since the last report."""
        return [name for name in self._patterns if name not in self._found]

    def feed(self, line: str) -> Iterator[ProgramReport]:
        """Yield a report if this line completes one.

        Raises:
            UserError: what a pattern found is not a number.
        """
        for name, pattern in self._patterns.items():
            if (text := first_group(pattern, line)) is None:
                continue
            try:
                self._found[name] = float(text)
            except ValueError:
                raise UserError(
                    f"report_from.stdout.{name}: found {show(text)}, which is not a number"
                ) from None
        if self._patterns and not self.missing:
            found, self._found = self._found, {}
            yield ProgramReport(dict(found))
