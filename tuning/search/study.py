"""The sweep's Optuna study: every proposal and outcome, on a journal that survives SIGKILL."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import Trial, create_trial
from optuna.trial import TrialState as OptunaState

from results.records import TrialRecord, TrialState
from search_spaces.schema import SweepSpec
from tuning.search.fitting import fitting
from tuning.search.regret import regret_bound
from tuning.search.searchers import make_sampler
from tuning.search.space import decode, distribution, encode

_OUTCOME = {
    TrialState.COMPLETED: OptunaState.COMPLETE,
    TrialState.STOPPED: OptunaState.PRUNED,
    TrialState.FAILED: OptunaState.FAIL,
}
Curve = list[tuple[int, float]]
"""(step, value) of the sweep's metric, ascending."""


class SweepStudy:
    """Proposals for a sweep. Only the sweep's owner opens it."""

    def __init__(self, path: Path, name: str, spec: SweepSpec) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        _drop_torn_line(path)
        lock = JournalFileOpenLock(str(path))
        path.with_name(path.name + ".lock").unlink(missing_ok=True)  # of a driver that was killed
        backend = JournalFileBackend(str(path), lock_obj=lock)
        self._spec = spec
        self._domains = spec.domains()
        self._space = {k: distribution(d) for k, d in self._domains.items()}
        self._grid = [
            dict(zip(spec.grid(), values, strict=True))
            for values in itertools.product(*(d.categories for d in spec.grid().values()))
        ]
        self._gain: tuple[int, float | None] = (0, None)
        self._study = optuna.create_study(
            storage=JournalStorage(backend),
            study_name=name,
            direction="minimize" if spec.mode == "min" else "maximize",
            load_if_exists=True,
        )

    def ask(self) -> tuple[int, dict[str, Any]]:
        """Propose a configuration: its number in the study, and the value of each parameter."""
        number = len(self._study.get_trials(deepcopy=False))
        waiting = self._study.get_trials(deepcopy=False, states=(OptunaState.WAITING,))
        if waiting:  # enqueued by a driver that was killed before it asked
            number = waiting[0].number
        elif self._grid != [{}]:
            point = self._grid[number % len(self._grid)]
            self._study.enqueue_trial({k: encode(self._domains[k], v) for k, v in point.items()})
        self._study.sampler = make_sampler(self._spec.search, derive_seed(self._spec.seed, number))
        trial = self._study.ask(self._space)
        return trial.number, self._decode(trial.params)

    def tell(self, record: TrialRecord, curve: Curve) -> None:
        """Record an outcome, with the curve it was judged by: PRUNED when it was stopped early."""
        if fitting(self._spec, record) is None:  # of an earlier space
            return
        frozen = self._study.get_trials(deepcopy=False)[record.number]
        if frozen.state.is_finished():  # told by a driver that was killed before it knew
            return
        trial = Trial(self._study, frozen._trial_id)
        if record.refused:  # pruned before its first report: the worst there is
            self._study.tell(record.number, state=OptunaState.PRUNED)
            return
        for step, reported in curve:
            if step not in frozen.intermediate_values:
                trial.report(reported, step)
        state = _OUTCOME[record.state]
        value = curve[-1][1] if state is OptunaState.COMPLETE else None
        self._study.tell(record.number, value, state=state)

    def regret_bound(self) -> float | None:
        """What the search may still gain at most, where that can be told (see `regret_bound`)."""
        completed = len(self._study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,)))
        if self._gain[0] != completed:  # it costs seconds
            self._gain = completed, regret_bound(self._study, self._spec.seed)
        return self._gain[1]

    def proposals(self) -> list[tuple[int, dict[str, Any]]]:
        """Every proposal that is not finished, as `ask` gave it."""
        open_ = self._study.get_trials(deepcopy=False, states=(OptunaState.RUNNING,))
        return [(t.number, self._decode(t.params)) for t in open_]

    def rebuild(self, records: Iterable[tuple[TrialRecord, Curve]]) -> None:
        """Add what the trial records know and the study does not: it may have been lost."""
        known = len(self._study.get_trials(deepcopy=False))
        for record, curve in records:
            if record.number < known:
                if record.state.finished:
                    self.tell(record, curve)
                continue
            self._study.add_trial(self._as_optuna(record, curve))

    def _decode(self, sampled: Mapping[str, Any]) -> dict[str, Any]:
        return {k: decode(d, sampled[k]) for k, d in self._domains.items() if k in sampled}

    def _as_optuna(self, record: TrialRecord, curve: Curve) -> optuna.trial.FrozenTrial:
        params = fitting(self._spec, record)
        if params is None:  # of an earlier space; it takes a number, and is no evidence
            return create_trial(state=OptunaState.FAIL)
        state = _OUTCOME.get(record.state, OptunaState.RUNNING)
        if record.refused:
            state, curve = OptunaState.PRUNED, []
        return create_trial(
            state=state,
            value=curve[-1][1] if state is OptunaState.COMPLETE else None,
            params={k: encode(self._domains[k], v) for k, v in params.items()},
            distributions={k: self._space[k] for k in params},
            intermediate_values=dict(curve),
        )


def derive_seed(seed: int, number: int) -> int:
    """An independent 32-bit seed for each trial number of a sweep (numpy's SeedSequence)."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _drop_torn_line(path: Path) -> None:
    """Cut what a killed writer left after the last newline: Optuna would append to it."""
    if path.exists():
        with open(path, "r+b") as f:
            f.truncate(f.read().rfind(b"\n") + 1)
