"""What the workers of a running trial measured, read from their files as these grow.

All attempts are read, so that a counter has the same value after a retry, and in a driver that
resumes the sweep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.checkpoints.checkpoint_times import CheckpointTime, parse_time
from results.records.worker_samples import Sample, parse_sample, phases_of, sample_files
from results.storage.atomic import read_new_lines
from results.trial_paths import TrialPaths

GROWING = ("system/disk_read_mb", "system/disk_written_mb")
"""Counts of a process, which begin at zero with each one."""


@dataclass
class Rank:
    """One rank.

    Attributes:
        values: its newest values of this attempt.
        totals: by name, sums over all attempts.
    """

    place: dict[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    totals: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, sample: Sample) -> None:
        """Add the next sample."""
        for name in GROWING:
            if (now := sample.values.get(name)) is not None:
                before = self.values.get(name, 0.0)
                self.totals[name] += now - before if now >= before else now
        self.totals["communication"] += 0.0  # a rank that is alone never waits
        for phase, seconds in phases_of(sample).items():
            self.totals[phase] += seconds
        self.place.update(sample.place)
        self.values.update(sample.values)


class Workers:
    """The workers of one trial, and its checkpoints.

    Args:
        paths: of the trial.
        on_checkpoint: called with each checkpoint that was saved or loaded.

    Attributes:
        ranks: those that have samples, by number.
        saved: when the newest checkpoint was complete, Unix seconds; None if there is none.
    """

    def __init__(self, paths: TrialPaths, on_checkpoint: Callable[[CheckpointTime], None]) -> None:
        self._paths, self._on_checkpoint = paths, on_checkpoint
        self._read: dict[Path, int] = {}
        self._attempt = 0
        self.ranks: dict[int, Rank] = {}
        self.saved: float | None = None

    def begin(self, attempt: int) -> None:
        """A new attempt began: read the last lines of those before it."""
        while self._attempt < attempt:
            self.poll()
            self._attempt += 1
            for rank in self.ranks.values():
                rank.values.clear()  # those of processes that have ended

    def poll(self) -> None:
        """Read what is new."""
        if not self._attempt:
            return
        for number, file in sample_files(self._paths, self._attempt):
            for line in self._new(file):
                if (sample := parse_sample(number, line)) is not None:
                    self.ranks.setdefault(number, Rank()).add(sample)
        for line in self._new(self._paths.checkpoint_times(self._attempt)):
            if (done := parse_time(line)) is not None:
                self._on_checkpoint(done)
                if done.what == "save":
                    self.saved = done.time

    def _new(self, file: Path) -> Iterator[dict[str, Any]]:
        lines, self._read[file] = read_new_lines(file, self._read.get(file, 0))
        yield from lines
