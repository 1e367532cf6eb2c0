"""What a tracker gets of a finished trial beside its reports: all read from its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from results.paths import TrialPaths
from results.records import environment
from results.records.trial import TrialRecord

LINEAGE = "lineage.json"


@dataclass(frozen=True)
class Extras:
    """What is told of a trial once, when it has ended.

    Attributes:
        tags: what it ran with, and where its weights come from.
        samples: (key, step, Unix seconds, value) of what its processes took.
        artifacts: file name to text.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[tuple[str, int, float, float], ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)


def extras(paths: TrialPaths, record: TrialRecord) -> Extras:
    """Read them; what is not there is left out."""
    numbers = [a.number for a in record.attempts]
    found = environment.read(paths, numbers[-1]) if numbers else None
    tags = environment.tags(found) if found else {}
    if init := _init(paths):
        tags["tune.init"] = init
    if record.lineage:
        tags["tune.donors"] = ", ".join(f"{i.donor} at {i.donor_step}" for i in record.lineage)
    samples = tuple(
        (key, step, time, value)
        for number in numbers
        for step, time, values in environment.samples(paths, number)
        for key, value in values.items()
    )
    told = [a.model_dump(mode="json") for a in record.attempts]
    artifacts = {"attempts.json": json.dumps(told, indent=1)} if len(told) > 1 else {}
    return Extras(tags, samples, artifacts)


def _init(paths: TrialPaths) -> str | None:
    """Digest of the initial weights, from the newest checkpoint."""
    newest = paths.newest_checkpoint()
    try:
        found = json.loads((newest / LINEAGE).read_bytes())["init"] if newest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
