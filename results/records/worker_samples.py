"""What each rank of an attempt used, and where its time went: `logs/attempt_*/system_rank_*.jsonl`.

A line has the step, Unix seconds, `system/…` values, and the seconds of each phase since the line
before it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from results.paths import TrialPaths
from results.records.trial import TrialRecord
from results.storage.atomic import read_lines

PHASES = ("start", "data", "compute", "communication", "evaluation", "checkpoint", "report")
"""Each moment of a rank is part of one of them.

`start` is everything before the first step; `compute` is what is in no other phase: forward,
backward and optimizer; `communication` is the wait for gradients that do not travel beside the
backward pass; `report` includes the wait for slower ranks, and for the driver.
"""
_SECONDS = "system/seconds_"
_FILE = re.compile(r"system(_rank_(\d+))?\.jsonl")


class Sample(NamedTuple):
    """One line; `time` in Unix seconds."""

    rank: int
    step: int
    time: float
    values: dict[str, float]


def sample_line(
    step: int, time: float, values: Mapping[str, float], seconds: Mapping[str, float] | None = None
) -> str:
    """A line of the file.

    Args:
        values: by a name with the prefix `system/`.
        seconds: by phase.
    """
    phases = {_SECONDS + phase: round(s, 4) for phase, s in (seconds or {}).items()}
    return json.dumps({"step": step, "time": time, **values, **phases}) + "\n"


def read_samples(paths: TrialPaths, attempt: int) -> Iterator[Sample]:
    """The samples of all ranks of an attempt; lines that are damaged are skipped."""
    for file in sorted(paths.attempt(attempt).glob("system*.jsonl")):
        if (found := _FILE.fullmatch(file.name)) is None:
            continue
        for line in read_lines(file):
            try:
                step, time = int(line.pop("step")), float(line.pop("time"))
                values = {str(k): float(v) for k, v in line.items()}
            except (KeyError, TypeError, ValueError):
                continue
            yield Sample(int(found[2] or 0), step, time, values)


def phase_seconds(paths: TrialPaths, record: TrialRecord) -> dict[int, dict[str, float]]:
    """Seconds of each phase by rank, summed over all attempts; empty if none was measured."""
    total: dict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))
    for attempt in record.attempts:
        for sample in read_samples(paths, attempt.number):
            for name, value in sample.values.items():
                phase = name.removeprefix(_SECONDS)
                if phase in PHASES and phase != name:
                    total[sample.rank][phase] += value
    return dict(sorted(total.items()))
