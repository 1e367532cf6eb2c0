"""Forecast of a sweep's duration and cost, from the cost of its trials so far."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from results.analysis.cost import Cost, cost_shares, total_cost
from results.paths import Storage
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_trials
from search_spaces.errors import UserError
from search_spaces.spec.budget import BudgetSpec, PricesSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.search.auto import choose_scheduler


@dataclass(frozen=True)
class TrialCost:
    """The mean cost of the trials that ended, were stopped early or are paused.

    Attributes:
        seconds: of all attempts of a trial.
        cost: of a trial.
        trials: the number of trials in the mean.
        wasted: part of the cost that was of no use, 0 to 1; 0 without prices.
    """

    seconds: float
    cost: Cost
    trials: int
    wasted: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """Remaining seconds and cost until the first limit that is sure to be reached.

    `target`, `patience` and `min_improvement` may end the sweep sooner.
    """

    seconds: float
    cost: Cost


def mean_trial_cost(
    records: Iterable[TrialRecord], prices: PricesSpec | None = None, *, starts: bool = False
) -> TrialCost | None:
    """The mean cost of a trial, whose seconds include the start of workers if `starts`; None if no
    trial has ended after an attempt.
    """
    ended = [r for r in records if not r.state.active and r.attempts]
    if not ended:
        return None
    n = len(ended)
    shares = cost_shares(ended, prices)
    each, lost = shares.total * (1 / n), sum(share.cost for share in shares.wasted.values())
    wasted = lost / shares.total.cost if shares.total.cost else 0.0
    seconds = (a.held_seconds if starts else a.seconds for r in ended for a in r.attempts)
    return TrialCost(sum(seconds) / n, each, n, wasted)


def forecast(
    budget: BudgetSpec,
    records: Collection[TrialRecord],
    each: TrialCost | None,
    at_once: int,
    elapsed_s: float = 0.0,
    prices: PricesSpec | None = None,
) -> Forecast | None:
    """Predict the remaining time and cost; None if it is not known.

    A trial that has not ended is expected to cost the mean in all.

    Args:
        budget: the limits.
        records: every trial so far.
        each: the mean cost of a trial, if it is known.
        at_once: concurrent trials.
        elapsed_s: wall-clock seconds of all sessions.
        prices: with which `each` was computed.
    """
    if each is None or each.seconds <= 0:
        return None
    waiting = [max(0.0, each.seconds - r.seconds) for r in records if r.state.active]
    work = math.inf
    if budget.trials is not None:
        work = sum(waiting) + each.seconds * max(0, budget.trials - len(records))
    left = [max(work / at_once, *waiting, 0.0)]
    if budget.time is not None:
        left.append(budget.time - elapsed_s)
    so_far = total_cost(records, prices)
    for key in ("cpu_hours", "gpu_hours", "cost"):
        limit, a_trial = getattr(budget, key), getattr(each.cost, key)
        if limit is not None and a_trial > 0:
            trials = (limit - getattr(so_far, key)) / a_trial
            left.append(trials * each.seconds / at_once)
    seconds = max(0.0, min(left))
    if not math.isfinite(seconds):
        return None
    trials = min(work, seconds * at_once) / each.seconds
    return Forecast(seconds, each.cost * trials)


def earlier_trial_cost(storage: Storage, spec: SweepSpec) -> tuple[str, TrialCost] | None:
    """Name and mean trial cost, with the start of workers, of the newest sweep of the same file
    name, trainable, scheduler and length of trials.
    """
    same = re.compile(re.escape(spec.name) + r"(-\d+)?")
    sweeps = [p for p in storage.sweeps() if same.fullmatch(p.name) and p.state.exists()]
    for paths in sorted(sweeps, key=lambda p: p.state.stat().st_mtime, reverse=True):
        try:
            each = mean_trial_cost(read_trials(paths), spec.prices, starts=True)
            if each is not None and _length(read_spec(paths)) == _length(spec):
                return paths.name, each
        except UserError:  # the sweep is damaged
            continue
    return None


def _length(spec: SweepSpec) -> tuple[object, ...]:
    """The code of trials, and what decides how long each is."""
    own, ends = {**spec.space, **spec.fixed}, ("max_steps", "epochs", "rounds")
    scheduler = choose_scheduler(spec).name, spec.scheduler.max_t
    return spec.trainable, *scheduler, *(own.get(name) for name in ends)
