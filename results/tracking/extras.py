"""Data of a finished trial for a tracker, in addition to its reports, read from its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from results.paths import LINEAGE, TrialPaths
from results.records import environment
from results.records.trial import TrialRecord
from results.records.worker_samples import read_samples
from search_spaces.files import parse_json, read_regular


@dataclass(frozen=True)
class Extras:
    """Delivered once, when the trial has ended.

    Attributes:
        tags: its environment, and the origin of its weights.
        samples: (key, step, Unix seconds, value) of the resource usage of its processes.
        artifacts: file name to text.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[tuple[str, int, float, float], ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)


def read_extras(paths: TrialPaths, record: TrialRecord) -> Extras:
    """Read the extras of a trial; missing files are skipped."""
    numbers = [a.number for a in record.attempts]
    found = environment.read(paths, numbers[-1]) if numbers else None
    tags = environment.tags(found) if found else {}
    if init := _initial_digest(paths):
        tags["tune.init"] = init
    if record.lineage:
        tags["tune.donors"] = ", ".join(f"{i.donor} at {i.donor_step}" for i in record.lineage)
    samples = tuple(
        (key if rank == 0 else key.replace("/", f"/rank_{rank}/", 1), step, time, value)
        for number in numbers
        for rank, step, time, values, _ in read_samples(paths, number)
        for key, value in values.items()
    )
    attempts = [a.model_dump(mode="json") for a in record.attempts]
    artifacts = {"attempts.json": json.dumps(attempts, indent=1)} if len(attempts) > 1 else {}
    return Extras(tags, samples, artifacts)


def _initial_digest(paths: TrialPaths) -> str | None:
    """Digest of the initial weights, from the newest checkpoint."""
    newest = paths.newest_checkpoint()
    try:
        found = parse_json(read_regular(newest / LINEAGE))["init"] if newest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
