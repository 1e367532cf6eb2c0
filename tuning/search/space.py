"""Compiles the sweep file's space to Optuna, define-by-run, and samples back to its values.

Optuna has no distribution that is quantised and logarithmic at once, and stores only scalars as
categories. So such a domain is sampled in a form that Optuna has, and decoded.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from optuna import Study
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, Trial

from search_spaces.branches import Parameter, active, parameters
from search_spaces.domains import Domain
from search_spaces.draw import draw_value, quantised
from search_spaces.errors import UserError
from search_spaces.schema import SweepSpec

MODEL_DRAWS, RANDOM_DRAWS = 20, 20_000
"""How often a proposal that breaks a constraint is drawn anew: by the sampler, then at random."""


def distribution(domain: Domain) -> BaseDistribution:
    """The Optuna distribution that a domain is sampled from."""
    if domain.kind == "ordinal":
        return IntDistribution(0, len(domain.categories) - 1)
    if domain.is_categorical:
        return CategoricalDistribution(_labels(domain))
    step = None if domain.log else domain.q
    if domain.integer:
        low, high = int(domain.lower), int(domain.high)
        return IntDistribution(low, high, log=domain.log, step=int(step or 1))
    return FloatDistribution(domain.lower, domain.upper, log=domain.log, step=step)


def decode(domain: Domain, sampled: Any) -> Any:
    """The domain's value for what Optuna sampled."""
    if domain.kind == "ordinal":
        return domain.categories[int(sampled)]
    if domain.is_categorical:
        return domain.categories[_labels(domain).index(sampled)]
    if domain.q is None:
        return sampled
    return quantised(domain, round(sampled / domain.q))


def encode(domain: Domain, value: Any) -> Any:
    """What Optuna would have sampled for a value; the inverse of `decode` up to quantisation."""
    if not domain.is_categorical:
        return value
    index = domain.categories.index(value)
    return index if domain.kind == "ordinal" else _labels(domain)[index]


def _labels(domain: Domain) -> list[bool | int | float | str | None]:
    """Categories as Optuna stores them: scalars as they are, the rest as JSON of its own."""
    taken = {c for c in domain.categories if isinstance(c, str)}
    labels: list[bool | int | float | str | None] = []
    for value in domain.categories:
        if value is None or isinstance(value, bool | int | float | str):
            labels.append(value)
            continue
        text = json.dumps(value, sort_keys=True)
        while text in taken:
            text += " "
        labels.append(text)
    return labels


class OptunaSpace:
    """The space of a sweep, as Optuna's trials see it.

    A parameter goes by its dotted name. One that several options have, with domains that differ,
    goes by its name and the option, since Optuna wants one kind of distribution for a name.
    """

    def __init__(self, spec: SweepSpec) -> None:
        self._spec = spec
        self._keys: dict[tuple[str, str], str] = {}
        known = spec.domains()
        for leaf in parameters(spec.space):
            if isinstance(leaf.leaf, Domain):
                key = leaf.name if leaf.leaf == known[leaf.name] else _qualified(leaf)
                self._keys.setdefault((leaf.name, repr(leaf.leaf)), key)

    def key(self, name: str, domain: Domain) -> str:
        """The name by which Optuna knows a parameter."""
        return self._keys[name, repr(domain)]

    def params(self, sampled: Mapping[str, Any]) -> dict[str, Any] | None:
        """A configuration from an Optuna trial's parameters; None where one is missing."""
        params: dict[str, Any] = {}

        def pick(name: str, domain: Domain) -> Any:
            params[name] = decode(domain, sampled[self.key(name, domain)])
            return params[name]

        try:
            for _ in active(self._spec.space, pick):
                pass
        except KeyError:
            return None
        return params

    def encoded(
        self, params: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """A configuration, or a part of one, as Optuna's parameters and their distributions.

        A value that its domain cannot take, or that is not active, is left out.
        """
        values: dict[str, Any] = {}
        distributions: dict[str, BaseDistribution] = {}
        for name, leaf, value in active(self._spec.space, lambda name, _: params.get(name)):
            if isinstance(leaf, Domain) and name in params and leaf.contains(value):
                key = self.key(name, leaf)
                values[key], distributions[key] = encode(leaf, value), distribution(leaf)
        return values, distributions

    def propose(self, study: Study, trial: Trial) -> dict[str, Any]:
        """Sample a configuration that keeps the constraints into a trial of the study.

        What the trial has already (enqueued, or by a driver that was killed) stays.

        Raises:
            UserError: none was found.
        """
        frozen = study.get_trials(deepcopy=False)[trial.number]
        given = {**frozen.system_attrs.get("fixed_params", {}), **frozen.params}
        for attempt in range(MODEL_DRAWS + RANDOM_DRAWS):
            draft = _Draft(study, trial, given, anew=attempt > 0)
            if attempt >= MODEL_DRAWS:
                draft = _RandomDraft(study, trial, given, seed=attempt)
            params = self._run(draft)
            if self._spec.broken(params) is None:
                draft.write(frozen)
                return params
        raise UserError(
            f"constraints: none of {RANDOM_DRAWS} random configurations keeps all of them "
            f"beside {given}; widen the space or the constraints"
        )
