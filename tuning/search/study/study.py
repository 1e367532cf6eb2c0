"""The sweep's Optuna study: all proposals and outcomes, in a journal that survives SIGKILL."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, Trial, create_trial
from optuna.trial import TrialState as OptunaState

from results.analysis.replicates import Curve
from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.search.auto import resolve_search
from tuning.search.compatibility import compatible_params
from tuning.search.evidence import ScoreCurves
from tuning.search.findings import Finding, Findings, StudyWithPriors
from tuning.search.models.optuna_gp import regret_bound
from tuning.search.optuna_space import OptunaSpace
from tuning.search.schedulers.base import comparison_steps
from tuning.search.searchers import BLIND
from tuning.search.study.journal import DirectWrites, Journal
from tuning.search.study.outcomes import STATES, Outcomes
from tuning.search.study.proposal_sampler import MOST_TRIALS, History, ProposalSampler
from tuning.search.study.proposals import ListedPoints

_TAG = "command"


class SweepStudy:
    """Proposes the configurations of a sweep. Only the sweep's owner may open it.

    Args:
        path: of the journal.
        name: of the study in it.
        spec: of the sweep.
        most_trials: that TPE learns from at once, see `History`.
    """

    def __init__(
        self, path: Path, name: str, spec: SweepSpec, most_trials: int = MOST_TRIALS
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._journal = Journal(path)
        self._spec = spec
        self._space = OptunaSpace(spec)
        self._search, self._outcomes = resolve_search(spec), Outcomes(spec, self._space)
        self._listed = ListedPoints(spec, self._space)
        levels = comparison_steps(spec.scheduler)
        # TPE, unless it writes what it proposes for the next proposals, or needs the whole front
        bounded = self._search.name == "tpe" and not self._search.constant_liar
        bounded &= not self._outcomes.several
        self._history = History(levels, most_trials, most_trials // 10) if bounded else None
        self._storage = storage = JournalStorage(self._journal)
        self._study = optuna.create_study(
            storage=storage,
            study_name=name,
            directions=["minimize" if o.mode == "min" else "maximize" for o in spec.objectives],
            load_if_exists=True,
        )
        # a bound costs seconds: it is computed again when another trial has completed
        self.regret_bound = cache(partial(regret_bound, self._study, spec.seed))
        self._informed = StudyWithPriors(name, storage)
        self._sampler = ProposalSampler(
            spec, self._search, self._space, self._informed, self._history
        )
        self._study_id = storage.get_study_id_from_name(name)
        self._direct = DirectWrites(self._journal, storage, self._study_id)
        self._waiting: deque[int] = deque()
        self._count, self._proposed_here = 0, set[int]()
        for trial in self.trials:
            self._add(trial)

    def _add(self, trial: FrozenTrial) -> None:
        """Count a trial of the study. Optuna looks at all of them for what is counted here."""
        self._count = trial.number + 1
        self._count_params(trial.params)
        self._remember(trial)
        if trial.state is OptunaState.WAITING:  # of a killed driver, which did not ask
            self._waiting.append(trial.number)

    def _count_params(self, sampled: Mapping[str, Any]) -> None:
        self._listed.add(sampled)
        self._sampler.proposed.add(sampled)

    @property
    def trials(self) -> list[FrozenTrial]:
        """The sweep's trials as Optuna has them, by number."""
        return self._study.get_trials(deepcopy=False)

    @property
    def sampler_trials(self) -> list[FrozenTrial]:
        """The trials that the sampler sees: findings of other sweeps, numbered below 0, then the
        sweep's own.
        """
        return self._informed.get_trials(deepcopy=False)

    def set_findings(self, found: Sequence[Finding]) -> None:
        """Show the sampler findings of other sweeps, from the next proposal on."""
        self._informed.findings = Findings(self._spec, self._space, found)

    def batched(self) -> AbstractContextManager[None]:
        """Write the journal once for all that the block asks and tells."""
        return self._journal.batched()

    def ask(
        self, curves: ScoreCurves | None = None, *, misleading: bool = False
    ) -> tuple[int, dict[str, Any]]:
        """Propose a configuration: its number in the study, and the value of each parameter.

        Args:
            curves: of every trial that has reported, also of running ones, by number.
            misleading: whether the scheduler found that its rungs are; complete trials count then.
        """
        self._sampler.curves, self._sampler.misleading = curves or ScoreCurves(), misleading
        if self._history is not None and curves is not None:
            for number in curves.take_grown():
                self._history.rank(number, curves[number])
        with self._journal.batched():
            number, params = self._ask()
        self._proposed_here.add(number)
        return number, params

    def _ask(self) -> tuple[int, dict[str, Any]]:
        if self._waiting:
            self._sampler.prepare(self._waiting.popleft())
            return self._propose(self._informed.ask().number)
        number, point = self._count, self._listed.next()
        self._sampler.prepare(number)
        if self._search.name in BLIND or self._history is not None:
            # one entry of the journal in place of one per parameter
            proposed = self._sampler.proposed
            blank = self._space.blank(number, point)
            params, sampled = self._space.sample(self._informed, blank, proposed)
            self._direct.add(number, sampled)
            if self._history is not None:
                self._history.begin(number, sampled)
            self._count_params({key: value for key, (value, _) in sampled.items()})
            self._count += 1
            return number, params
        if point:
            self._study.enqueue_trial(point)
        self._count += 1
        return self._propose(self._informed.ask().number)

    def _propose(self, number: int) -> tuple[int, dict[str, Any]]:
        frozen, proposed = self._trial(number), self._sampler.proposed
        params, sampled = self._space.sample(self._informed, frozen, proposed)
        for key, (value, dist) in sampled.items():
            if key not in frozen.params:
                internal = dist.to_internal_repr(value)
                self._storage.set_trial_param(self._id(number), key, internal, dist)
        frozen = self._trial(number)
        self._count_params(frozen.params)
        self._remember(frozen)
        return number, params

    def enqueue(self, params: Mapping[str, Any], tag: str) -> None:
        """Let `ask` propose these values next, once for each tag."""
        if all(t.user_attrs.get(_TAG) != tag for t in self.trials):
            self._study.enqueue_trial(self._space.encoded(params)[0], user_attrs={_TAG: tag})
            self._waiting.append(self._count)
            self._count += 1

    @property
    def has_waiting(self) -> bool:
        """Whether an enqueued configuration was not yet returned by `ask`."""
        return bool(self._waiting)

    def tell(
        self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None = None
    ) -> None:
        """Record an outcome; PRUNED if the trial was stopped early.

        Args:
            record: of the finished trial.
            curve: of the first objective.
            finals: last value of each objective; needed with several objectives.
        """
        known = record.number in self._proposed_here
        if known or compatible_params(self._spec, record) is not None:  # else of an earlier space
            with self._journal.batched():
                self._tell(record, curve, finals)

    def _tell(self, record: TrialRecord, curve: Curve, finals: Sequence[float] | None) -> None:
        number, storage = record.number, self._storage
        if record.state is TrialState.COMPLETED:
            self.regret_bound.cache_clear()
        reported, state, values = self._outcomes.final_outcome(record, curve, finals)
        if self._direct.take(number) and not record.violations:
            self._direct.end(number, reported, state, values)
            if self._history is not None:
                self._history.end(number, reported, state, values)
            return
        frozen = self._trial(number)
        if frozen.state.is_finished():  # by a driver that was killed right after
            return
        trial_id = self._id(number)
        for text, amount in record.violations.items():
            Trial(self._study, trial_id).set_constraint(text, amount)
        for step, value in reported:
            if step not in frozen.intermediate_values:
                storage.set_trial_intermediate_value(trial_id, step, value)
        storage.set_trial_state_values(trial_id, state, values)
        self._remember(self._trial(number))

    def _remember(self, trial: FrozenTrial) -> None:
        """Keep what the storage knows of a trial, for a searcher that does not read the storage."""
        if self._history is not None:
            self._history.put(trial)

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def _trial(self, number: int) -> FrozenTrial:
        return self._storage.get_trial(self._id(number))

    def proposals(self, known: Container[int] = ()) -> list[tuple[int, dict[str, Any]]]:
        """Every unfinished proposal, as `ask` returned it, whose number is not in `known`."""
        open_ = self._study.get_trials(deepcopy=False, states=(OptunaState.RUNNING,))
        return [(t.number, self._completed(t)) for t in open_ if t.number not in known]

    def rebuild(self, records: Iterable[tuple[TrialRecord, Curve, Sequence[float] | None]]) -> None:
        """Add trials and outcomes from the trial records that the study lacks."""
        self.regret_bound.cache_clear()
        with self._journal.batched():
            for record, curve, finals in records:
                if record.number < self._count:
                    if record.state.finished:
                        self.tell(record, curve, finals)
                    continue
                for _ in range(self._count, record.number):  # the record of this trial is lost
                    self._study.add_trial(create_trial(state=OptunaState.FAIL))
                self._study.add_trial(self._outcomes.as_trial(record, curve, finals))
                self._add(self._trial(record.number))

    def has(self, number: int) -> bool:
        """Whether there is a trial with this number."""
        return number < self._count

    def agrees(self, record: TrialRecord) -> bool:
        """Whether the study has the record's configuration, or does not have the trial."""
        params = compatible_params(self._spec, record)
        if not self.has(record.number) or params is None or record.lineage:
            return True
        sampled = self._trial(record.number).params
        return not sampled or self._space.agrees(sampled, params)

    def recover(self, number: int) -> tuple[dict[str, Any], TrialState, int | None] | None:
        """Parameters, state and last step of a trial whose record is lost; None if not found."""
        frozen = self._trial(number) if self.has(number) else None
        params = self._space.params(frozen.params) if frozen else None
        if frozen is None or params is None:
            return None
        states = {known: ours for ours, known in STATES.items()}
        state = states.get(frozen.state, TrialState.PENDING)
        return params, state, frozen.last_step if state.finished else None

    def _completed(self, frozen: FrozenTrial) -> dict[str, Any]:
        """A trial's configuration; completes it if the driver was killed while proposing."""
        params = self._space.params(frozen.params)
        if params is None:
            self._sampler.prepare(frozen.number)
            params = self._propose(frozen.number)[1]
        return params
