"""Code, data, versions and hardware of an attempt: `logs/attempt_*/environment.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from results.paths import SweepPaths
from results.records.trial import TrialRecord
from results.storage.atomic import write_atomic
from results.trial_paths import TrialPaths
from search_spaces.files import read_regular

_MAX_READ = 40
"""Trials of a sweep whose environment is read, evenly spaced."""


class Environment(BaseModel):
    """Written once per attempt, by rank 0.

    Attributes:
        source: SHA-256 of each of the trainable's own files, by path below its package or script.
        data: fingerprint of the training data, if the trainable gives one.
        versions: of Python and of the libraries that affect the computation.
        hardware: device, processor, number of workers and threads.
        host: name of the machine.
        spot: whether it is a spot machine; None if that is not known.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: dict[str, str]
    data: str | None = None
    versions: dict[str, str]
    hardware: dict[str, str]
    host: str = ""
    spot: bool | None = None


def write(paths: TrialPaths, attempt: int, environment: Environment) -> None:
    """Write the file of an attempt atomically."""
    write_atomic(paths.environment(attempt), environment.model_dump_json(indent=1).encode())


def read(paths: TrialPaths, attempt: int) -> Environment | None:
    """The environment of an attempt; None if the file is missing or damaged."""
    try:
        return Environment.model_validate_json(read_regular(paths.environment(attempt)))
    except (OSError, ValidationError):
        return None


def priced(paths: TrialPaths, attempt: int) -> dict[str, object]:
    """What decides the price of an attempt, as fields of its record.

    `accelerator` is the name of rank 0's GPU, as its driver names it; empty without one.
    """
    found = read(paths, attempt)
    device = found.hardware.get("device", "") if found else ""
    return {"accelerator": "" if device == "cpu" else device, "spot": found and found.spot}


def read_some(paths: SweepPaths, records: Sequence[TrialRecord]) -> list[Environment]:
    """Those of the newest attempts of a sweep's trials; of some in a large sweep."""
    ran = [r for r in records if r.attempts]
    some = ran[:: max(1, len(ran) // _MAX_READ)]
    found = (read(paths.trial(r.id), r.attempts[-1].number) for r in some)
    return [one for one in found if one is not None]


def differences(then: Environment, now: Environment) -> list[str]:
    """Differences, one line per kind: code, data, versions, hardware."""
    lines = [
        ("code", ", ".join(name for name, _, _ in _differing(then.source, now.source))),
        ("data", "" if then.data == now.data else f"{then.data} then, {now.data} now"),
        ("versions", _listed(then.versions, now.versions)),
        ("hardware", _listed(then.hardware, now.hardware)),
    ]
    return [f"{kind}: {text}" for kind, text in lines if text]


def tags(environment: Environment) -> dict[str, str]:
    """The environment as tags for a tracker."""
    named = {f"tune.version.{k}": v for k, v in environment.versions.items()}
    named |= {f"tune.hardware.{k}": v for k, v in environment.hardware.items()}
    if environment.data is not None:
        named["tune.data"] = environment.data
    if environment.spot is not None:
        named["tune.spot"] = str(environment.spot).lower()
    return {**named, "tune.host": environment.host}


def _differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = sorted({*then, *now})
    pairs = [(name, then.get(name, "none"), now.get(name, "none")) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _listed(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {old} then, {new} now" for name, old, new in _differing(then, now))


def version_changes(
    paths: SweepPaths, records: Mapping[str, TrialRecord], versions: Mapping[str, str]
) -> list[str]:
    """Lines about libraries that changed their version since the newest recorded environment.

    A resume works with any version, because it reads files and no pickles. But under another
    version of PyTorch the rest of a curve may differ in its last bits.

    Args:
        versions: of the libraries now.
    """
    attempts = ((a.started, r.id, a.number) for r in records.values() for a in r.attempts)
    newest_first = sorted(attempts, reverse=True)
    known = (read(paths.trial(trial), number) for _, trial, number in newest_first)
    if (ran := next(filter(None, known), None)) is None:
        return []
    now = ran.model_copy(update={"versions": dict(versions)})
    return [
        f"other {line}; trials continue, and may differ in the last bits"
        for line in differences(ran, now)
    ]
