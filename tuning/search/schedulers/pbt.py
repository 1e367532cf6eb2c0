"""Population based training: the worst trials continue from the weights of the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from results.analysis.pareto import scalar_merits
from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec
from tuning.search.schedulers.base import (
    Decision,
    Exploit,
    History,
    Scheduler,
    Scores,
)


class Pbt(Scheduler):
    """Synchronous population based training (Jaderberg et al. 2017).

    Every trial pauses after each `interval` steps. When all have paused, each of the worst
    `quantile` copies the checkpoint and parameters of one of the best `quantile`, and changes the
    parameters of `mutate`. Decisions depend only on the scores of the generation, not on the speed
    of trials, so a resumed sweep decides the same.
    """

    def __init__(self, spec: SchedulerSpec, domains: Mapping[str, Domain], seed: int) -> None:
        super().__init__(spec, domains, seed)
        assert spec.max_t is not None, "the schema demands max_t for pbt"
        interval = spec.interval or max(1, spec.max_t // 10)
        self._rungs: dict[int, dict[str, Scores]] = {
            g: {} for g in range(interval, spec.max_t, interval)
        }
        self._at: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._paused: set[str] = set()
        self._running: set[str] = set()

    @property
    def rungs(self) -> tuple[int, ...]:
        """The ends of the generations."""
        return tuple(self._rungs)

    def decide(self, trial_id: str, step: int, scores: Scores) -> Decision:
        """PAUSE at the end of a generation; COMPLETE at `max_t`."""
        if step <= self._steps.get(trial_id, -1):
            return Decision.PAUSE if trial_id in self._paused else Decision.CONTINUE
        self._steps[trial_id] = step
        self.on_trial_resume(trial_id)
        if super().decide(trial_id, step, scores) is Decision.COMPLETE:
            self.on_trial_complete(trial_id)
            return Decision.COMPLETE
        reached = max((g for g in self._rungs if step >= g), default=None)
        if reached is None or trial_id in self._rungs[reached]:
            return Decision.CONTINUE
        self._rungs[reached][trial_id] = scores
        self._at[trial_id] = reached
        self._running.discard(trial_id)
        self._paused.add(trial_id)
        return Decision.PAUSE

    def on_trial_resume(self, trial_id: str) -> None:
        """The trial trains until the end of its next generation."""
        self._paused.discard(trial_id)
        self._running.add(trial_id)

    def on_trial_complete(self, trial_id: str) -> None:
        """The population no longer waits for the trial; its scores still count."""
        self._paused.discard(trial_id)
        self._running.discard(trial_id)

    def next_to_resume(self, *, more: bool, idle: bool) -> str | None:
        """When all trials have paused at the end of a generation: first those that copy weights,
        because their donors must not have continued yet, then the others.
        """
        if more or not self._paused:
            return None
        first = min(self._at[t] for t in self._paused)
        if any(t not in self._rungs[first] for t in self._paused | self._running):
            return None
        waiting = sorted(t for t in self._paused if self._at[t] == first)
        worst = self._ends(first)[0]
        return next((t for t in waiting if t in worst), waiting[0])

    def exploit(self, trial_id: str, history: Callable[[str], History]) -> Exploit | None:
        """One of the worst of its generation copies one of the best."""
        generation = self._at[trial_id]
        worst, best = self._ends(generation)
        if trial_id not in worst:
            return None
        number = sorted(self._rungs[generation]).index(trial_id)
        rng = np.random.default_rng([self._seed, generation, number])
        donor = best[int(rng.integers(len(best)))]
        taken = dict(history(donor)[-1].params)
        return Exploit(donor, self._explore(taken, generation, history, rng))

    def _explore(
        self,
        taken: dict[str, Any],
        generation: int,
        history: Callable[[str], History],
        rng: np.random.Generator,
    ) -> dict[str, Any]:
        """The donor's parameters; mutable ones are resampled or perturbed by a fifth."""
        return perturb(
            taken, mutable_domains(self._spec, self._domains, taken), self._spec.resample, rng
        )

    def _ends(self, generation: int) -> tuple[Sequence[str], Sequence[str]]:
        """The worst and the best trials of a generation; ties in the order of their ids."""
        rung = self._rungs[generation]
        names = sorted(rung)
        merit = dict(zip(names, scalar_merits([rung[n] for n in names]), strict=True))
        order = sorted(names, key=lambda t: -merit[t])
        count = min(math.ceil(len(order) * self._spec.quantile), len(order) // 2)
        return (order[-count:], order[:count]) if count else ((), ())


_FACTORS = (0.8, 1.2)


def mutable_domains(
    spec: SchedulerSpec, domains: Mapping[str, Domain], params: Mapping[str, Any]
) -> dict[str, Domain]:
    """The parameters that may change during training: those of `scheduler.mutate`, else all real
    numbers. Whole numbers and categories often determine the shape of the weights.
    """
    chosen = spec.mutate
    return {
        name: d
        for name, d in domains.items()
        if name in params
        and (name in chosen if chosen is not None else not (d.integer or d.is_categorical))
    }


def perturb(
    params: dict[str, Any],
    domains: Mapping[str, Domain],
    resample: float,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Resample each parameter with probability `resample`, else multiply it by 0.8 or 1.2;
    a category is resampled or kept.
    """
    changed = dict(params)
    for name, domain in domains.items():
        if rng.random() < resample:
            changed[name] = value_at_share(domain, float(rng.random()))
        elif not domain.is_categorical:
            changed[name] = nearest(domain, params[name] * _FACTORS[int(rng.integers(2))])
    return changed


def value_at_share(domain: Domain, share: float) -> Any:
    """The value at a share in [0, 1) of the domain; of its logarithm or quantile for log and normal
    domains.
    """
    if domain.is_categorical:
        return domain.categories[min(int(share * len(domain.categories)), int(domain.upper))]
    if (normal := domain.normal) is not None:
        least, most = normal.quantiles
        return nearest(domain, normal.at(least + share * (most - least)))
    low, high = _ends(domain)
    here = low + share * (high - low)
    return nearest(domain, float(np.exp(here)) if domain.log else here)


def share_of(domain: Domain, value: Any) -> float:
    """The inverse of `value_at_share`, in [0, 1]."""
    if domain.is_categorical:
        return ((domain.index(value) or 0) + 0.5) / len(domain.categories)
    if (normal := domain.normal) is not None:
        (low, high), here = normal.quantiles, normal.quantile(value)
    else:
        (low, high), here = _ends(domain), float(np.log(value) if domain.log else value)
    return (here - low) / (high - low) if high > low else 0.0


def _ends(domain: Domain) -> tuple[float, float]:
    """The values, or logarithms, of the shares 0 and 1. Where values are whole or quantised, they
    lie half a step outside the bounds, so that the end values get an interval of a whole step.
    """
    half = (1 if domain.integer and domain.q is None else domain.q or 0) / 2
    low, high = domain.lower - half, domain.high + half
    return (float(np.log(low)), float(np.log(high))) if domain.log else (low, high)


def nearest(domain: Domain, value: float) -> int | float:
    """The nearest value of a numeric domain."""
    inside = min(max(value, domain.lower), domain.high)
    if domain.q is not None:
        return domain.multiple(round(inside / domain.q))
    return round(inside) if domain.integer else float(inside)
