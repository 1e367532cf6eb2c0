"""Reuses trials that another sweep has completed with the same code, data, configuration and seed.

A reused trial is copied, not run (`search.reuse`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from results.records.reports import dump_reports
from results.records.trial import Report, TrialRecord, TrialState, read_reports, read_trial
from results.storage.atomic import write_atomic
from results.storage.folder import link_or_copy
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from tuning.search.findings import Finding


class TrialCache:
    """The completed trials of other sweeps, by identity."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self._known = {f.identity: f for f in findings if f.complete and f.identity}

    def find(self, record: TrialRecord) -> Finding | None:
        """The completed trial that this one would repeat, if its folder still exists."""
        found = self._known.get(record.identity)
        if found is None or not found.same:
            return None
        try:
            other = read_trial(TrialPaths(Path(found.folder)))
        except UserError:  # removed or moved since
            return None
        done = other.state is TrialState.COMPLETED and other.identity == record.identity
        return found if done else None


def copy_trial(found: Finding, target: TrialPaths) -> list[Report]:
    """Copy the checkpoints and reports of another trial; the reports get the current time.

    Checkpoint files are hard links if the file system has them: a complete checkpoint never
    changes. A call that was interrupted can be repeated.
    """
    source = TrialPaths(Path(found.folder))
    for folder in ("checkpoints", "ray_train"):
        original = getattr(source, folder)
        if original.is_dir():
            shutil.rmtree(getattr(target, folder), ignore_errors=True)
            shutil.copytree(original, getattr(target, folder), copy_function=link_or_copy)
    end = read_trial(source).end_step
    now = time.time()
    reports = [r.model_copy(update={"attempt": 0, "time": now}) for r in read_reports(source, end)]
    write_atomic(target.reports, dump_reports(target, reports))
    return reports
