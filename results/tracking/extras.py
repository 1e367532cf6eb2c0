"""Data for a tracker beside reports, read from files: of a trial that has ended, of the winner."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.analysis.selection import select_winner
from results.checkpoints.commit import newest_intact
from results.checkpoints.whole_model import model_files, whole_models
from results.paths import SweepPaths
from results.records import environment
from results.records.notes import Note
from results.records.trial import TrialRecord
from results.records.worker_samples import Sample, read_samples
from results.trial_paths import LINEAGE, TrialPaths
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular
from search_spaces.spec.sweep import SweepSpec

_PREFIX = "system/"
MLFLOW_NAMES = {
    "cpu_percent": "cpu_utilization_percentage",
    "memory_mb": "system_memory_usage_megabytes",
    "network_sent_mb": "network_transmit_megabytes",
    "network_received_mb": "network_receive_megabytes",
    "gpu_percent": "gpu_{gpu}_utilization_percentage",
    "gpu_memory_mb": "gpu_{gpu}_memory_usage_megabytes",
    "gpu_watts": "gpu_{gpu}_power_usage_watts",
    "gpu_celsius": "gpu_{gpu}_temperature_celsius",
}
"""Our name of a value to that of MLflow's own monitor (of the last, in its manner)."""


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
    if init := initial_digest(paths):
        tags["tune.init"] = init
    if record.lineage:
        tags["tune.donors"] = ", ".join(f"{i.donor} at {i.donor_step}" for i in record.lineage)
    samples = tuple(
        (_metric_name(key, one), one.step, one.time, value)
        for number in numbers
        for one in read_samples(paths, number)
        for key, value in one.values.items()
    )
    attempts = [a.model_dump(mode="json") for a in record.attempts]
    artifacts = {"attempts.json": json.dumps(attempts, indent=1)} if len(attempts) > 1 else {}
    return Extras(tags, samples, artifacts)


def note_tags(note: Note | None) -> dict[str, str]:
    """Tags of a run for what people wrote; none if nobody did."""
    if note is None:
        return {}
    return {"mlflow.note.content": note.text, "tune.tags": ", ".join(note.tags)}


def _metric_name(key: str, sample: Sample) -> str:
    """MLflow's own name, so that its page puts runs of both kinds in one chart."""
    name = key.removeprefix(_PREFIX)
    name = MLFLOW_NAMES.get(name, name).format(gpu=sample.place.get("gpu", "0"))
    return f"{_PREFIX}rank_{sample.rank}/{name}" if sample.rank else _PREFIX + name


def initial_digest(paths: TrialPaths) -> str | None:
    """Digest of a trial's initial weights, from its newest checkpoint; None if it is not known."""
    newest = paths.newest_checkpoint()
    try:
        found = parse_json(read_regular(newest / LINEAGE))["init"] if newest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


@dataclass(frozen=True)
class Winner:
    """The model of the winner.

    Attributes:
        trial: its id.
        step: of its newest intact checkpoint.
        files: of that checkpoint, without those that only a training run reads.
        why: the reason why it won, in a few words.
    """

    paths: SweepPaths
    trial: str
    step: int
    files: tuple[Path, ...]
    why: str


ReadWinner = Callable[[], Winner | None]


def read_winner(paths: SweepPaths, spec: SweepSpec) -> Winner | None:
    """The winner of a sweep; None if no trial has a value, or it has no intact checkpoint."""
    try:
        selection = select_winner(paths, spec)
    except UserError:
        return None
    trial = selection.line.record.id
    found = newest_intact(paths.trial(trial), whole_models)
    if found is None:
        return None
    return Winner(paths, trial, found.step, tuple(model_files(found.folder)), selection.why)


def no_winner() -> Winner | None:
    """Of a sweep whose file does not ask for a model."""
    return None
