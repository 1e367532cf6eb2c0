"""What each rank of an attempt used, and where its time went: `logs/attempt_*/system_rank_*.jsonl`.

A line has the step, Unix seconds, the machine and GPU, `system/…` values, and the seconds of each
phase since the line before it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from results.records.trial import TrialRecord
from results.storage.atomic import read_lines
from results.trial_paths import TrialPaths

PHASES = ("start", "data", "compute", "communication", "evaluation", "checkpoint", "report")
"""Each moment of a rank is part of one of them.

`start` is everything before the first step; `compute` is what is in no other phase: forward,
backward and optimizer; `communication` is the wait for gradients that do not travel beside the
backward pass; `report` includes the wait for slower ranks, and for the driver.
"""
GPU_PERCENT, GPU_NEEDED = "system/gpu_percent", "system/gpu_needed_percent"
"""How long a GPU computes, for all its processes; the most memory of it that the rank needed."""
_SECONDS = "system/seconds_"
_FILE = re.compile(r"system(_rank_(\d+))?\.jsonl")


_PLACE = ("node", "gpu", "uuid")


class Sample(NamedTuple):
    """One line; `time` in Unix seconds.

    Attributes:
        place: `node`, the host name; `gpu` and `uuid` of the rank's GPU, if it has one.
    """

    rank: int
    step: int
    time: float
    values: dict[str, float]
    place: dict[str, str]


def sample_line(
    step: int,
    time: float,
    values: Mapping[str, float],
    seconds: Mapping[str, float] | None = None,
    place: Mapping[str, str] | None = None,
) -> str:
    """A line of the file.

    Args:
        values: by a name with the prefix `system/`.
        seconds: by phase.
        place: see `Sample`.
    """
    phases = {_SECONDS + phase: round(s, 4) for phase, s in (seconds or {}).items()}
    return json.dumps({"step": step, "time": time, **(place or {}), **values, **phases}) + "\n"


def parse_sample(rank: int, line: dict[str, Any]) -> Sample | None:
    """The sample of a line that was read; None if it is damaged."""
    place = {name: str(line[name]) for name in _PLACE if name in line}
    try:
        step, time = int(line["step"]), float(line["time"])
        rest = {k: v for k, v in line.items() if k not in ("step", "time", *place)}
        values = {str(k): float(v) for k, v in rest.items()}
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return Sample(rank, step, time, values, place)


def sample_files(paths: TrialPaths, attempt: int) -> Iterator[tuple[int, Path]]:
    """Rank and file of each rank that has samples, by name."""
    for file in sorted(paths.attempt(attempt).glob("system*.jsonl")):
        if (found := _FILE.fullmatch(file.name)) is not None:
            yield int(found[2] or 0), file


def read_samples(paths: TrialPaths, attempt: int) -> Iterator[Sample]:
    """The samples of all ranks of an attempt; lines that are damaged are skipped."""
    for rank, file in sample_files(paths, attempt):
        for line in read_lines(file):
            if (sample := parse_sample(rank, line)) is not None:
                yield sample


def phase_seconds(paths: TrialPaths, record: TrialRecord) -> dict[int, dict[str, float]]:
    """Seconds of each phase by rank, summed over all attempts; empty if none was measured."""
    total: dict[int, dict[str, float]] = defaultdict(lambda: dict.fromkeys(PHASES, 0.0))
    for attempt in record.attempts:
        for sample in read_samples(paths, attempt.number):
            for phase, value in phases_of(sample).items():
                total[sample.rank][phase] += value
    return dict(sorted(total.items()))


def phases_of(sample: Sample) -> dict[str, float]:
    """Seconds of each phase since the sample before."""
    values = sample.values
    return {phase: values[_SECONDS + phase] for phase in PHASES if _SECONDS + phase in values}
