"""Data of a sweep's winner for a tracker that logs its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from results.analysis.selection import select_winner
from results.checkpoints.commit import newest_intact
from results.checkpoints.whole_model import model_files, whole_models
from results.paths import SweepPaths
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec


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
