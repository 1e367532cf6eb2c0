"""Optuna's own conformance tests of samplers and storages, for every searcher and the journal."""

from __future__ import annotations

import warnings

import pytest
from optuna.samplers import BaseSampler
from optuna.storages import JournalStorage
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from optuna.testing.pytest_storages import StorageTestCase

from search_spaces.spec.search import ONE_METRIC, SEARCHERS, SearchSpec
from tuning.search.evidence import Evidence, TrialEvidence
from tuning.search.searchers import make_sampler
from tuning.search.study.journal import Journal

OURS = ("cmaes", "mfgp", "sobol")
RELATIVE = ("cmaes", "sobol")
"""Searchers that propose all parameters together from the second trial on."""
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


class Adapter(BaseSampler):
    """Makes a new sampler for each proposal, as a sweep does, with the study as its evidence."""

    def __init__(self, name: str) -> None:
        self._spec = SearchSpec(
            name=name, startup_trials=1 if name in OURS else 10, random_share=0.0
        )
        self._sampler = make_sampler(self._spec, 0)

    def infer_relative_search_space(self, study, trial):
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        self._renew(study, trial, {n: d for t in before for n, d in t.distributions.items()})
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(self, study, trial, search_space):
        self._renew(study, trial, search_space)
        return self._sampler.sample_relative(study, trial, search_space)

    def _renew(self, study, trial, space):
        seen = [
            TrialEvidence(t.params, {1: -t.value} if t.values else {}, over=t.state.is_finished())
            for t in study.get_trials(deepcopy=False)
            if t.number < trial.number and len(study.directions) == 1
        ]
        evidence = Evidence(space=space, trials=seen, number=trial.number)
        self._sampler = make_sampler(self._spec, trial.number, evidence)

    def sample_independent(self, study, trial, param_name, param_distribution):
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study, trial):
        self._sampler.before_trial(study, trial)

    def after_trial(self, study, trial, state, values):
        self._sampler.after_trial(study, trial, state, values)


class _Named:
    @pytest.fixture
    def sampler(self, name):
        return lambda: Adapter(name)


@pytest.mark.parametrize("name", OURS)
class TestOurs(_Named, BasicSamplerTestCase):
    pass


@pytest.mark.parametrize("name", ["gp", "random"])
class TestDerived(_Named, BasicSamplerTestCase):
    """Without the slowest test: 36 pairs of distributions for each."""

    test_combination_of_different_distributions_objective = None


@pytest.mark.parametrize("name", sorted(SEARCHERS.keys() - set(ONE_METRIC)))
class TestSeveralObjectives(_Named, MultiObjectiveSamplerTestCase):
    pass


@pytest.mark.parametrize("name", ["cmaes"])
class TestOneObjective(_Named, SingleOnlySamplerTestCase):
    pass


@pytest.mark.parametrize("name", RELATIVE)
class TestRelative(_Named, RelativeSamplerTestCase):
    pass


class TestJournal(StorageTestCase):
    @pytest.fixture
    def storage(self, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return JournalStorage(Journal(tmp_path / "study.journal"))
