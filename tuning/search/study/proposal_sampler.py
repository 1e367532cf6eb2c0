"""Makes the sampler of each proposal, and selects the trials that it sees."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any

from optuna.samplers import BaseGASampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from optuna.trial import TrialState as OptunaState

from search_spaces.spec.search import SearchSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import Evidence, ScoreCurve, ScoreCurves, TrialEvidence, derive_seed
from tuning.search.findings import StudyWithPriors, numbered
from tuning.search.optuna_space import OptunaSpace, Sampled
from tuning.search.priors import HAVE_PRIORS, PriorSampler, encoded_priors, uses_prior
from tuning.search.schedulers.base import comparison_steps
from tuning.search.searchers import BLIND, READS_VALUES, UNIQUE, make_sampler
from tuning.search.study.proposals import EarlierProposals


class ProposalSampler:
    """The sampler of a study, a new one for each proposal.

    Args:
        spec: of the sweep.
        search: its search section, without `auto`.
        space: as Optuna has it.
        informed: the study that gets the sampler.
        history: has the trials that are visible, if their number is bounded.
    """

    def __init__(
        self,
        spec: SweepSpec,
        search: SearchSpec,
        space: OptunaSpace,
        informed: StudyWithPriors,
        history: History | None,
    ) -> None:
        self._spec, self._search, self._space = spec, search, space
        self._informed, self._history = informed, history
        self._priors = encoded_priors(spec, space) if search.name in HAVE_PRIORS else {}
        self.proposed = EarlierProposals(spec, space, is_unique=search.name in UNIQUE)
        self.curves = ScoreCurves()
        """Of every trial that has reported, by number."""
        self.misleading = False
        """Whether rungs mislead, so that trials are compared at `max_t` only."""

    def prepare(self, number: int) -> None:
        """Make the sampler of this proposal, and select the trials that it sees."""
        seed = derive_seed(self._spec.seed, number)
        if self._priors and uses_prior(seed, number):
            self._informed.sampler = PriorSampler(self._priors, seed)
            return
        if self._search.name in BLIND:
            alone = Evidence(self._space.distributions, number=number, base_seed=self._spec.seed)
            self._informed.sampler = make_sampler(self._search, seed, alone)
            return
        self._informed.show_comparable([], Evidence())
        if self._history is not None and not self._informed.findings:
            self._informed.visible = self._history.visible(number)
        every = self._informed.get_trials(deepcopy=False)  # of other sweeps too, numbered below 0
        trials = [t for t in every if t.number < number]
        sign = 1.0 if self._spec.mode == "max" else -1.0
        if self._search.name in UNIQUE:
            self.proposed.show_found(t for t in trials if t.number < 0)
        evidence = Evidence(
            space=self._space.distributions,
            levels=comparison_steps(self._spec.scheduler)[-1 if self.misleading else 0 :],
            trials=[self._as_evidence(t, sign) for t in trials],
            number=number,
            base_seed=self._spec.seed,
            repeats=self.proposed.holds_sample,
        )
        if self._search.name in READS_VALUES and len(self._spec.objectives) == 1:
            self._informed.show_comparable(trials, evidence)
        self._informed.sampler = sampler = make_sampler(self._search, seed, evidence)
        if isinstance(sampler, BaseGASampler):
            self._informed.start_first_generation(trials, sampler._get_generation_key())

    def _as_evidence(self, frozen: FrozenTrial, sign: float) -> TrialEvidence:
        curve: ScoreCurve | None = self.curves.get(frozen.number)
        if curve is None:
            curve = {step: sign * value for step, value in frozen.intermediate_values.items()}
        return TrialEvidence(
            params=frozen.params,
            curve=curve,
            failed=frozen.state is OptunaState.FAIL,
            over=frozen.state.is_finished(),
            step_seconds=self.curves.step_seconds.get(frozen.number, 0.0),
            infeasible=any(amount > 0 for amount in frozen.constraints.values()),
        )


MOST_TRIALS = 500
"""Trials that a proposal learns from: the best tenth, and the newest ones of the others."""
_Rank = tuple[int, float, int]


class History:
    """The sweep's trials, and the order of those that have reported.

    A trial is the better, the more levels it has reached, then by its value at the last of them. So
    what is visible depends only on the trials and their curves, also after a resume.

    Args:
        levels: steps at which trials are compared, ascending; empty if none is stopped.
        most: trials that are visible at once.
        best: of these, those that are so for their rank. TPE's good group has 25. More of them
            would thin out the group that it keeps away from.
    """

    def __init__(self, levels: Sequence[float], most: int, best: int) -> None:
        self._levels, self._most, self._best = levels, most, best
        self._trials: dict[int, FrozenTrial] = {}
        self._numbers: list[int] = []
        self._ranks: dict[int, _Rank] = {}
        self._ranked: list[_Rank] = []

    def put(self, trial: FrozenTrial) -> None:
        """Add a trial, or replace what is known of it, apart from its curve."""
        if trial.number not in self._trials:
            insort(self._numbers, trial.number)
        self._trials[trial.number] = trial

    def begin(self, number: int, sampled: Sampled) -> None:
        """Add a trial that runs from now on."""
        params = {name: value for name, (value, _) in sampled.items()}
        distributions = {name: distribution for name, (_, distribution) in sampled.items()}
        self._make(number, state=TrialState.RUNNING, params=params, distributions=distributions)

    def end(
        self,
        number: int,
        reported: Iterable[tuple[int, float]],
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """A trial that began here has ended."""
        began = self._trials[number]
        outcome = {"state": state, "values": values, "intermediate_values": dict(reported)}
        self._make(number, params=began.params, distributions=began.distributions, **outcome)

    def _make(self, number: int, **attributes: Any) -> None:
        self.put(numbered(create_trial(**attributes), number))

    def rank(self, number: int, curve: ScoreCurve) -> None:
        """A trial has reported: its curve so far."""
        known = self._ranks.pop(number, None)
        if known is not None:
            del self._ranked[bisect_left(self._ranked, known)]
        rank = self._rank(number, curve)
        self._ranks[number] = rank
        insort(self._ranked, rank)

    def _rank(self, number: int, curve: ScoreCurve) -> _Rank:
        last = max(curve)
        reached = sum(level <= last for level in self._levels)
        if not reached:
            return 0, curve[last], -number
        level = self._levels[reached - 1]
        return reached, curve[min(step for step in curve if step >= level)], -number

    def visible(self, before: int) -> list[FrozenTrial]:
        """The trials that a proposal learns from, by number.

        Args:
            before: number of the proposal; later ones are not visible.
        """
        numbers: Iterable[int] = self._numbers
        if len(self._numbers) > self._most:
            best = {-rank[-1] for rank in self._ranked[-self._best :]}
            newest = (n for n in reversed(self._numbers) if n not in best)
            others = [n for _, n in zip(range(self._most - len(best)), newest, strict=False)]
            numbers = sorted(best.union(others))
        return [self._trials[n] for n in numbers if n < before and n in self._trials]
