"""Makes the sampler of each proposal, and selects the trials that it sees."""

from __future__ import annotations

from collections.abc import Mapping

from optuna.samplers import BaseGASampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from search_spaces.spec.search import SearchSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import Evidence, ScoreCurve, TrialEvidence
from tuning.search.optuna_space import OptunaSpace
from tuning.search.schedulers.base import comparison_steps
from tuning.search.searchers import BLIND, READS_VALUES, UNIQUE, make_sampler
from tuning.search.seeds import derive_seed
from tuning.search.study.earlier_proposals import EarlierProposals
from tuning.search.study.history import History
from tuning.search.transfer.study_with_priors import StudyWithPriors


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
        self.proposed = EarlierProposals(spec, space, is_unique=search.name in UNIQUE)
        self.curves: Mapping[int, ScoreCurve] = {}
        """Of every trial that has reported, by number."""

    def prepare(self, number: int) -> None:
        """Make the sampler of this proposal, and select the trials that it sees."""
        seed = derive_seed(self._spec.seed, number)
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
            levels=comparison_steps(self._spec.scheduler),
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
        curve = self.curves.get(frozen.number)
        if curve is None:
            curve = {step: sign * value for step, value in frozen.intermediate_values.items()}
        return TrialEvidence(
            params=frozen.params,
            curve=curve,
            failed=frozen.state is OptunaState.FAIL,
            over=frozen.state.is_finished(),
        )
