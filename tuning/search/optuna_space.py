"""A sweep's space as Optuna has it: names, distributions, and samples that satisfy constraints."""

from __future__ import annotations

import copy
import logging
import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from search_spaces.domains.conditional import draw, draw_value, parameters, walk_active
from search_spaces.domains.domain import Domain
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import derive_seed
from tuning.search.optuna_domains import decode, distribution, encode
from tuning.search.searchers import BLIND

log = logging.getLogger(__name__)
MODEL_DRAWS, RANDOM_DRAWS, MAX_REPEATED = 20, 20_000, 2000
"""Numbers of times that an infeasible proposal is resampled: by the sampler, then at random; and of
proposals that repeat an earlier one, after which a repeated one is taken.
"""
_GIVEN = "fixed_params"
"""System attribute of a trial in which Optuna keeps the values that it was enqueued with."""
Sampled = dict[str, tuple[Any, BaseDistribution]]
"""Value and distribution of each parameter, by Optuna's name."""


class Earlier(Protocol):
    """Earlier proposals, which are not repeated as long as there are others."""

    def holds(self, params: Mapping[str, Any]) -> bool:
        """Whether a configuration repeats one of them, so that another one is sampled."""

    def left(self) -> list[dict[str, Any]] | None:
        """The configurations that are none of them; None if they are too many to list."""


class OptunaSpace:
    """The space of a sweep in terms of Optuna.

    Optuna knows a parameter by its dotted name. If several options have it with different domains,
    the option is added to the name, as in `lr [optimizer=sgd]`, because Optuna needs one kind of
    distribution per name.

    Attributes:
        distributions: Optuna's name of every parameter of every option to its distribution.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._keys: dict[tuple[str, str], str] = {}
        self._texts: dict[int, tuple[Domain, str]] = {}  # by id: the text of a domain takes long
        self._blank = create_trial(state=TrialState.RUNNING)
        self._warned = spec.search.name in BLIND  # it draws at random anyway
        known = spec.domains()
        for leaf in parameters(spec.space):
            if isinstance(leaf.leaf, Domain):
                when = ", ".join(f"{name}={label}" for name, label in leaf.when)
                key = leaf.name if leaf.leaf == known[leaf.name] else f"{leaf.name} [{when}]"
                self._keys.setdefault((leaf.name, self._text(leaf.leaf)), key)
        leaves = ((p.name, p.leaf) for p in parameters(spec.space))
        self.distributions = {
            self.key(n, d): distribution(d) for n, d in leaves if isinstance(d, Domain)
        }

    def key(self, name: str, domain: Domain) -> str:
        """Optuna's name of a parameter."""
        return self._keys[name, self._text(domain)]

    def _text(self, domain: Domain) -> str:
        if id(domain) not in self._texts:
            self._texts[id(domain)] = domain, repr(domain)
        return self._texts[id(domain)][1]

    def params(self, sampled: Mapping[str, Any]) -> dict[str, Any] | None:
        """The configuration for an Optuna trial's parameters; None if one is missing."""
        try:
            return draw(
                self._spec.space, lambda n, domain: decode(domain, sampled[self.key(n, domain)])
            )
        except KeyError:
            return None

    def encoded(
        self, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Optuna's parameters and distributions for a configuration, or for a part of one.

        A value that is outside its domain, or not active, is left out.
        """
        values: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for name, leaf, value in walk_active(self._spec.space, lambda name, _: params.get(name)):
            if isinstance(leaf, Domain) and name in params and leaf.contains(value):
                key = self.key(name, leaf)
                values[key], distributions[key] = encode(leaf, value), self.distributions[key]
        return values, distributions

    def agrees(self, sampled: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
        """Whether an Optuna trial's parameters decode to a configuration.

        Compares decoded values, because a quantised value has many samples.
        """
        encoded = self.encoded(params)[0]
        walked = walk_active(self._spec.space, lambda name, _: params.get(name))
        leaves = {self.key(n, d): (d, v) for n, d, v in walked if isinstance(d, Domain)}

        def same(key: str) -> bool:
            domain, value = leaves[key]
            if domain.is_categorical or sampled[key] == encoded[key]:
                return bool(sampled[key] == encoded[key])
            return bool(decode(domain, sampled[key]) == value)

        return encoded.keys() == sampled.keys() and all(map(same, encoded))

    def blank(self, number: int, given: Mapping[str, Any]) -> FrozenTrial:
        """A trial that is not in the study, with these parameters; most searchers need no other."""
        blank = copy.copy(self._blank)
        blank.number, blank.system_attrs = number, {_GIVEN: given}
        return blank

    def sample(
        self, study: Study, frozen: FrozenTrial, earlier: Earlier | None = None
    ) -> tuple[dict[str, Any], Sampled]:
        """Sample a configuration that satisfies the constraints.

        Parameters that the trial was enqueued with are kept. So are those that a killed driver has
        written; the sampler proposes the same ones again.

        Args:
            study: has the sampler.
            frozen: the trial.
            earlier: proposals that are not to be repeated.

        Returns:
            The configuration, and Optuna's value and distribution of each parameter.

        Raises:
            UserError: no such configuration was found.
        """
        given = frozen.system_attrs.get(_GIVEN, {})
        repeated = 0
        for attempt in self._drafts(study, frozen, given, earlier):
            params = draw(self._spec.space, partial(self._pick, attempt))
            if not attempt.agrees or self._spec.violated_constraint(params) is not None:
                continue
            if repeated < MAX_REPEATED and attempt.has_free and earlier and earlier.holds(params):
                repeated += 1
                continue
            if attempt.is_random and not repeated and not self._warned:
                self._warned = True
                text = "constraints: %d proposals of the searcher violate them: t%04d is random"
                log.warning(text, MODEL_DRAWS, frozen.number)
            return params, attempt.sampled
        raise UserError(
            f"constraints: none of {RANDOM_DRAWS} random configurations satisfies all of them "
            f"with {given}; widen the space or the constraints"
        )

    def _drafts(
        self,
        study: Study,
        frozen: FrozenTrial,
        given: Mapping[str, Any],
        earlier: Earlier | None,
    ) -> Iterator[_Draft]:
        among = study.sampler.infer_relative_search_space(study, frozen)
        for _ in range(MODEL_DRAWS):
            yield _Draft(study, frozen, given, study.sampler.sample_relative(study, frozen, among))
        rng = random.Random(derive_seed(self._spec.seed, frozen.number))
        known = {**given, **frozen.params}
        left = [self.encoded(params)[0] for params in (earlier and earlier.left()) or ()]
        if left := [sampled for sampled in left if known.items() <= sampled.items()]:
            yield _Draft(study, frozen, rng.choice(left), {})
        for _ in range(RANDOM_DRAWS):
            yield _Draft(study, frozen, known, {}, rng)

    def _pick(self, attempt: _Draft, name: str, domain: Domain) -> Any:
        key = self.key(name, domain)
        return decode(domain, attempt.suggest(key, domain, self.distributions[key]))


class _Draft:
    """A sampled configuration that is not yet written to the study.

    `optuna.Trial.suggest_*` cannot be used, because it writes each parameter immediately.

    Attributes:
        sampled: Optuna's value and distribution of each parameter, by Optuna's name.
        is_random: whether it is not of the sampler.
    """

    def __init__(
        self,
        study: Study,
        frozen: FrozenTrial,
        given: Mapping[str, Any],
        relative: Mapping[str, Any],
        rng: random.Random | None = None,
    ) -> None:
        self._study, self._frozen, self._given, self._relative = study, frozen, given, relative
        self._rng, self.is_random = rng, rng is not None  # in place of the sampler
        self.sampled: Sampled = {}

    def suggest(self, key: str, domain: Domain, dist: BaseDistribution) -> Any:
        """Optuna's value for a parameter."""
        value = self._given[key] if key in self._given else self._sample(key, domain, dist)
        self.sampled[key] = value, dist
        return value

    @property
    def agrees(self) -> bool:
        """Whether it agrees with the parameters that the study already has."""
        known = self._frozen.params
        return all(value == known.get(key, value) for key, (value, _) in self.sampled.items())

    @property
    def has_free(self) -> bool:
        """Whether a parameter was sampled: not all are given, or in the study already."""
        return not self.sampled.keys() <= {*self._given, *self._frozen.params}

    def _sample(self, key: str, domain: Domain, dist: BaseDistribution) -> Any:
        if self._rng is not None:
            return encode(domain, draw_value(domain, self._rng))
        if dist.single():
            return encode(domain, domain.categories[0] if domain.is_categorical else domain.lower)
        if key in self._relative:
            internal = dist.to_internal_repr(self._relative[key])
            if dist._contains(internal):
                return self._relative[key]
        return self._study.sampler.sample_independent(self._study, self._frozen, key, dist)
