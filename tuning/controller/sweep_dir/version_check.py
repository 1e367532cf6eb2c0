"""What is no longer as it was when a sweep ran last: libraries of another version."""

from __future__ import annotations

from results.paths import SweepPaths
from results.records import environment
from results.records.environment import Environment
from results.records.trial import TrialRecord
from trainables.runtime.provenance import versions


def other_versions(paths: SweepPaths, records: dict[str, TrialRecord]) -> list[str]:
    """One line when the newest attempt that said so ran with other versions than this process.

    They are no reason to refuse: what goes on is read from files, never from pickles. But a curve
    that goes on under another torch may differ in its last bits.
    """
    ran = _newest(paths, records)
    if ran is None:
        return []
    now = ran.model_copy(update={"versions": dict(versions())})
    return [
        f"other {line}; trials go on, and may differ in the last bits"
        for line in environment.differences(ran, now)
    ]


def _newest(paths: SweepPaths, records: dict[str, TrialRecord]) -> Environment | None:
    attempts = [(a.started, r.id, a.number) for r in records.values() for a in r.attempts]
    for _, trial_id, number in sorted(attempts, reverse=True):
        if (found := environment.read(paths.trial(trial_id), number)) is not None:
            return found
    return None
