"""Reads a program's reports from the event files that it writes for TensorBoard."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from search_spaces.errors import UserError
from trainables.user_code.command.reports import STEP, ProgramReport

_HEADER, _CHECKSUM = 12, 4
_MOST_BYTES = 2**28
"""Of a record; a larger number is not the length of one."""
_NUMBERS = {1: "<f", 2: "<d"}
"""Types of tensors that hold a scalar: float and double, as TensorFlow writes them."""


class _Scalar(NamedTuple):
    time: float  # Unix seconds at which it was written
    step: int
    tag: str
    value: float


class EventFiles:
    """New scalars in the event files below a folder, of which the sweep's metric makes reports.

    A report has the newest value of every other tag. A tag in a subfolder is named with it:
    `validation/loss`. The folder of a run, as `SummaryWriter()` names it by time and host, is left
    out where all files lie below it. Files of earlier attempts are passed over.

    Args:
        folder: need not exist yet.
        metric: its value completes a report.
    """

    def __init__(self, folder: Path, metric: str) -> None:
        self._folder, self._metric = folder, metric
        self._read = {path: path.stat().st_size for path in self._files()}
        self._before = dict(self._read)
        self._values: dict[str, float] = {}
        self._waiting: list[_Scalar] = []
        self._reported: str | None = None

    @property
    def tags(self) -> set[str]:
        """The names of the scalars that have been read."""
        return {tag.removeprefix(self._run()) for tag in self._values}

    def new(self, *, ended: bool = False) -> Iterator[ProgramReport]:
        """Yield a report for each new value of the metric.

        A program may write to one file after that was read, and then to another that is read next.
        So what is found counts when all files have been read again.

        Args:
            ended: whether nothing more will be written.

        Raises:
            UserError: a file holds no events, or several runs have the metric.
        """
        before = len(self._waiting)
        self._waiting += [event for path in self._files() for event in self._events(path)]
        found = self._waiting if ended else self._waiting[:before]
        until = max((event.time for event in found), default=-math.inf)
        events = sorted(self._waiting, key=lambda event: event.time)
        self._waiting = [event for event in events if event.time > until]
        for event in events[: len(events) - len(self._waiting)]:
            self._values[event.tag] = event.value
            if not event.tag.endswith(self._metric):
                continue
            run = self._run()
            if self._reported not in (None, run):
                first = self._reported
                raise UserError(
                    f"report_from.tensorboard: {self._folder} has several runs, at first {first}; "
                    f"name the folder in metric, such as {first}{self._metric}"
                )
            if event.tag == f"{run}{self._metric}":
                self._reported = run
                values = {tag.removeprefix(run): value for tag, value in self._values.items()}
                yield ProgramReport({**values, STEP: event.step})

    def _run(self) -> str:
        """The folder with which no tag is named, and a slash; empty if there is none."""
        new = [path for path, size in self._read.items() if size != self._before.get(path, 0)]
        below = [path.parent.relative_to(self._folder) for path in new]
        common = os.path.commonpath(below) if below and self._metric not in self._values else ""
        return f"{common}/" if common else ""

    def _files(self) -> list[Path]:
        return sorted(self._folder.rglob("*tfevents*"))

    def _events(self, path: Path) -> Iterator[_Scalar]:
        """Each new scalar of a file."""
        from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]

        below = path.parent.relative_to(self._folder).as_posix()
        prefix = "" if below == "." else f"{below}/"
        for record in self._records(path):
            event = Event.FromString(record)
            for value in event.summary.value:
                if (number := _number(value)) is not None:
                    yield _Scalar(event.wall_time, event.step, f"{prefix}{value.tag}", number)

    def _records(self, path: Path) -> Iterator[bytes]:
        """The complete records that were written since (TFRecord: length, checksum, content)."""
        if path.stat().st_size <= self._read.get(path, 0):
            return
        with open(path, "rb") as file:
            file.seek(self._read.get(path, 0))
            while len(header := file.read(_HEADER)) == _HEADER:
                (size,) = struct.unpack("<Q", header[:8])
                if size > _MOST_BYTES:
                    raise UserError(f"report_from.tensorboard: {path} is not an event file")
                content = file.read(size + _CHECKSUM)
                if len(content) < size + _CHECKSUM:
                    return
                self._read[path] = file.tell()
                yield content[:size]


def _number(value: Any) -> float | None:
    """The number of a summary's value; None if it is an image, a histogram or text."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.dtype not in _NUMBERS:
        return None
    if value.tensor.tensor_shape.dim:
        return None
    numbers = [*value.tensor.float_val, *value.tensor.double_val]
    if content := value.tensor.tensor_content:
        numbers = [
            number for (number,) in struct.iter_unpack(_NUMBERS[value.tensor.dtype], content)
        ]
    return float(numbers[0]) if len(numbers) == 1 else None
