"""Data for a tracker beside reports, read from files: of trials, averages, the winner."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from results.analysis.selection import select_winner
from results.averaging.soup.scoring import SOUP_FILE, Score, Soup, read_soup
from results.checkpoints.commit import newest_intact
from results.checkpoints.shards import model_files, whole_models
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
    """Tags of a run for a trial's note; empty without one."""
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


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Average:
    """The content of one average's run.

    Attributes:
        digest: of its record, which holds the hashes of its sources, so that a later average with
            the same name has another digest.
        created: Unix seconds.
        members: the trials whose weights are in it.
        params: method, options, and candidates.
        metrics: on the test split, with the ends of their 95 % intervals.
        tags: members, their common start, and whether it was promoted.
        artifacts: file name to text.
    """

    name: str
    digest: str
    created: float
    members: tuple[str, ...]
    params: Mapping[str, object]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    artifacts: Mapping[str, str]


def read_averages(paths: SweepPaths) -> Iterator[Average]:
    """The averages of a sweep, sorted by name; a damaged one is skipped with a warning."""
    for record in sorted(paths.soup("x").parent.glob(f"[!.]*/{SOUP_FILE}")):
        try:
            soup = read_soup(record.parent)
            text, created = record.read_text(), record.stat().st_mtime
        except (UserError, OSError) as e:
            log.warning("average skipped: %s", e)
            continue
        digest = hashlib.sha256(text.encode()).hexdigest()
        members = tuple(dict.fromkeys(m.partition("@")[0] for m in soup.members))
        yield Average(
            record.parent.name,
            digest,
            created,
            members,
            params=_params(soup),
            metrics=_metrics(soup),
            tags=_tags(soup),
            artifacts={SOUP_FILE: text},
        )


def _params(soup: Soup) -> dict[str, object]:
    shares = {f"share.{c['label']}": c["share"] for c in soup.candidates if c["share"] is not None}
    options = {f"option.{key}": value for key, value in soup.options.items()}
    return {
        "method": soup.method,
        "candidates": _listed([c["label"] for c in soup.candidates]),
        "dtype": soup.dtype or "as stored",
        "force": soup.force,
        **options,
        **shares,
    }


def _metrics(soup: Soup) -> dict[str, float]:
    """The average's own score without a prefix, the others with their names."""
    metric = soup.metric or "score"
    found = _with_interval(f"test/{metric}", soup.scores[soup.method])
    for name, score in soup.scores.items():
        if name != soup.method:
            found |= _with_interval(f"test/{name}/{metric}", score)
    found |= {"test/gain": soup.gain.mean}
    if soup.gain.error is not None:
        found |= {"test/gain_standard_error": soup.gain.error}
    if soup.rank_loss is not None:
        found |= {"rank_loss": soup.rank_loss}
    return found


def _with_interval(key: str, score: Score) -> dict[str, float]:
    low, high = score.interval or (None, None)
    ends = {} if low is None or high is None else {f"{key}_low": low, f"{key}_high": high}
    return {key: score.mean, **ends}


def _tags(soup: Soup) -> dict[str, str]:
    starts = {str(c["init"]) for c in soup.candidates if c.get("init")}
    tags = {
        "tune.members": _listed(soup.members),
        "tune.single": soup.single,
        "tune.promoted": str(soup.promoted).lower(),
        "tune.weights": _listed([c["sha256"] for c in soup.candidates]),
    }
    return {**tags, "tune.init": starts.pop()} if len(starts) == 1 else tags


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
