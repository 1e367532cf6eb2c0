"""Binds a checkpoint to its trial: one of equal shapes could take its place without a word."""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from results.records.trial import read_trial
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError

log = logging.getLogger(__name__)


class Binding(BaseModel):
    """Whose checkpoint it is.

    Attributes:
        trial: id.
        identity: digest of its code, data, configuration and seed, see `TrialRecord`; empty if its
            record has none.
        copied_from: trial and step whose weights it took over, in words; empty for its own.
    """

    model_config = ConfigDict(frozen=True)

    trial: str
    identity: str = ""
    copied_from: str = ""

    def matches(self, other: Binding) -> bool:
        """Whether both are of one trial, or of two that compute the same."""
        if self.identity and other.identity:
            return self.identity == other.identity
        return self.trial == other.trial


def binding_of(paths: TrialPaths, copied_from: str = "") -> Binding | None:
    """The binding of a trial's checkpoints; without the identity if its record is not readable.

    None without a record: such a trial is of no sweep, and its folder may have any name.
    """
    if not paths.record.exists():
        return None
    try:
        identity = read_trial(paths).identity
    except UserError:
        identity = ""
    return Binding(trial=paths.root.name, identity=identity, copied_from=copied_from)


def foreign_reason(folder: Path, found: Binding | None, own: Binding | None) -> str | None:
    """Why a checkpoint is not the own trial's; None if it is, or if that cannot be told.

    Args:
        folder: of the checkpoint; that it has no binding is said once for all trials of a sweep.
        found: its binding.
        own: of the trial; None for one of no sweep.
    """
    if own is None or (found is not None and found.matches(own)):
        return None
    if found is None:
        _warn_unbound(str(folder.parents[2]))
        return None
    return f"is a checkpoint of another trial, {found.trial}"


@cache
def _warn_unbound(trials: str) -> None:
    log.warning("%s: checkpoints of an older version, which do not say whose they are", trials)
