"""From a trial's record to its trainable, configuration and data: for commands that use models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.records import TrialRecord
    from search_spaces.schema import SweepSpec
    from trainables.base import Trainable, TrainableConfig


def record_of(paths: SweepPaths, trial_id: str) -> TrialRecord:
    """The record of a trial."""
    from results.records import read_trial

    return read_trial(paths.trial(trial_id))


def trainable_of(spec: SweepSpec, verb: str) -> Trainable[Any]:
    """The trainable of a sweep, if its models can be read here.

    Raises:
        UserError: it is somebody's Ray Train loop.
    """
    from search_spaces.errors import UserError
    from trainables.registry import is_foreign, resolve

    if is_foreign(spec.trainable):
        raise UserError(
            f"trainable {spec.trainable}: cannot {verb} the models of a Ray Train loop, whose "
            "checkpoints only it can read; tune best names the newest one"
        )
    return resolve(spec.trainable)


def config_of(spec: SweepSpec, trainable: Trainable[Any], record: TrialRecord) -> TrainableConfig:
    """A trial's configuration, for code that may have changed since it was trained.

    Raises:
        UserError: it no longer fits.
    """
    from search_spaces.errors import UserError
    from trainables.registry import check_config

    if problems := check_config(spec.trainable, record.config):
        told = (
            f"{record.id}: no longer fits {spec.trainable}: {'.'.join(p)}: {t}" for p, t in problems
        )
        raise UserError(*told)
    return trainable.Config.model_validate(record.config)


def cache_of(paths: SweepPaths) -> Path:
    """Folder of the prepared data of the sweep's storage."""
    from results.paths import Storage

    return Storage(paths.root.parent).cache
