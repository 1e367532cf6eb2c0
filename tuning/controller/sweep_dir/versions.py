"""Says which libraries have another version than when the trials of a sweep ran."""

from __future__ import annotations

from results.paths import SweepPaths
from results.records import environment
from results.records.trial import TrialRecord
from trainables.runtime.provenance import library_versions


def version_changes(paths: SweepPaths, records: dict[str, TrialRecord]) -> list[str]:
    """Lines about libraries that changed their version since the newest recorded environment.

    A resume works with any version, because it reads files and no pickles. But under another
    version of PyTorch the rest of a curve may differ in its last bits.
    """
    attempts = ((a.started, r.id, a.number) for r in records.values() for a in r.attempts)
    newest_first = sorted(attempts, reverse=True)
    known = (environment.read(paths.trial(trial), number) for _, trial, number in newest_first)
    if (ran := next(filter(None, known), None)) is None:
        return []
    now = ran.model_copy(update={"versions": dict(library_versions())})
    return [
        f"other {line}; trials continue, and may differ in the last bits"
        for line in environment.differences(ran, now)
    ]
