"""Measures the best trials again, on the test split: under fresh seeds, or as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from results.checkpoint import newest_whole
from results.confirmation import Confirmation, Measured
from results.leaderboard import TrialSummary
from results.paths import SweepPaths, TrialPaths
from results.records import TrialRecord, read_reports
from search_spaces.errors import UserError
from search_spaces.schema import SweepSpec
from trainables.again import Until
from trainables.base import Trainable
from trainables.local import run_local
from trainables.run import output_to
from tuning.execution.job import repetition
from tuning.held_out import Judge, on_test
from tuning.models import cache_of, config_of
from tuning.search.study import derive_seed

_FRESH = 1 << 31
"""Seeds of confirmations are derived from numbers that no trial has."""

Say = Callable[[str], None]


class Confirmer:
    """Trains and judges trials in this process, without Ray.

    One process holds what the sweep's workers held together: with the trainables of this project,
    whose batches are of all workers together, each step sees the same samples, and sums differ in
    their last bits. Code of one's own that counts by worker sees another batch.
    """

    def __init__(
        self, paths: SweepPaths, spec: SweepSpec, trainable: Trainable[Any], say: Say
    ) -> None:
        self._paths, self._spec, self._trainable, self._say = paths, spec, trainable, say

    def retrain(self, lines: Sequence[TrialSummary], seeds: int) -> Confirmation:
        """Train each trial anew under fresh seeds, and judge it on the test split.

        What was trained before is not trained again: an interrupted call goes on.
        """
        fresh = tuple(derive_seed(self._spec.seed, _FRESH + i) for i in range(seeds))
        return self._confirmation(fresh, [self._retrained(line, fresh) for line in lines])

    def reevaluate(self, lines: Sequence[TrialSummary]) -> Confirmation:
        """Judge the weights that the search left, on the test split: one value for each."""
        measured = []
        for line in lines:
            value = self._judge(line.record)(_weights(self._paths.trial(line.record.id)))
            self._say(f"{line.record.id}  {self._spec.metric} {value:.4g} on the test split")
            measured.append(
                Measured(trial=line.record.id, search_value=_value(line), test=(value,))
            )
        return self._confirmation((), measured)

    def _retrained(self, line: TrialSummary, seeds: Sequence[int]) -> Measured:
        judge, selection, test = self._judge(line.record), [], []
        for seed in seeds:
            files = self._train(line, seed)
            selection.append(read_reports(files)[-1].metrics[self._spec.metric])
            test.append(judge(_weights(files)))
            self._say(
                f"{line.record.id} seed {seed}  {self._spec.metric} {selection[-1]:.4g} on the "
                f"selection split, {test[-1]:.4g} on the test split"
            )
        given = {"selection": tuple(selection), "test": tuple(test)}
        return Measured(trial=line.record.id, search_value=_value(line), **given)

    def _train(self, line: TrialSummary, seed: int) -> TrialPaths:
        files = self._paths.retrained(line.record.id, seed)
        done = read_reports(files)
        if done and done[-1].step >= line.step and newest_whole(files):
            return files
        config = {**line.record.config, **line.record.adjusted}
        job = repetition(
            self._spec,
            line.record,
            files,
            str(cache_of(self._paths)),
            line.step,
            seed=seed,
            config=reseeded(self._trainable, config, seed),
        )
        with output_to(files.log(1, 0)):
            run_local(job, Until(line.step))
        return files

    def _judge(self, record: TrialRecord) -> Judge:
        config = config_of(self._spec, self._trainable, record)
        return on_test(self._trainable, config, self._spec.metric, cache_of(self._paths))

    def _confirmation(self, seeds: tuple[int, ...], measured: Sequence[Measured]) -> Confirmation:
        spec = self._spec
        return Confirmation(metric=spec.metric, mode=spec.mode, seeds=seeds, trials=tuple(measured))


def reseeded(trainable: Trainable[Any], config: dict[str, Any], seed: int) -> dict[str, Any]:
    """A configuration whose initial weights are fresh too, where the trainable has them seeded."""
    return {**config, "init_seed": seed} if "init_seed" in trainable.Config.model_fields else config


def _value(line: TrialSummary) -> float:
    value = line.value if line.mean is None else line.mean  # of its configuration's replicates
    assert value is not None, "trials without a value are not ranked"
    return value


def _weights(files: TrialPaths) -> Path:
    found = newest_whole(files)
    if found is None:
        raise UserError(
            f"{files.root}: no whole checkpoint to evaluate; confirm with fresh seeds instead"
        )
    return found.folder
