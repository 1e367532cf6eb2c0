"""Trials that another sweep has run already, to the last byte of code and data: taken, not run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from results.paths import TrialPaths
from results.records.trial import Report, TrialRecord, TrialState, read_reports, read_trial
from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from tuning.search.transfer.findings import Finding


class TrialCache:
    """The completed trials of the sweeps that may be reused, by identity."""

    def __init__(self, found: Sequence[Finding]) -> None:
        self._known = {f.identity: f for f in found if f.complete and f.identity}

    def find(self, record: TrialRecord) -> Finding | None:
        """The trial that this one would repeat, if it is still there."""
        found = self._known.get(record.identity)
        if found is None or not found.same:
            return None
        try:
            there = read_trial(TrialPaths(Path(found.folder)))
        except UserError:  # removed or moved since
            return None
        done = there.state is TrialState.COMPLETED and there.identity == record.identity
        return found if done else None


def copy_trial(found: Finding, target: TrialPaths) -> list[Report]:
    """Give a trial the checkpoints and the reports of another; the reports are of now.

    Files are linked where the file system can, since nobody writes into a checkpoint that is whole.
    Doing it again, after it was cut short, does no harm.
    """
    source = TrialPaths(Path(found.folder))
    for folder in ("checkpoints", "ray_train"):
        there = getattr(source, folder)
        if there.is_dir():
            shutil.rmtree(getattr(target, folder), ignore_errors=True)
            shutil.copytree(there, getattr(target, folder), copy_function=_link)
    end = read_trial(source).end_step
    now = time.time()
    reports = [r.model_copy(update={"attempt": 0, "time": now}) for r in read_reports(source, end)]
    lines = "".join(f"{r.model_dump_json()}\n" for r in reports)
    write_atomic(target.reports, lines.encode())
    return reports


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)
