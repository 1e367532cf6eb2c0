"""What the driver knows of a running sweep, as numbers that a scrape reads.

Per-trial numbers are those of running trials: a sweep of a thousand trials has no more series than
one of a few. What outlives a trial is a count of the sweep. Counters never fall: neither when a
trial goes back to its checkpoint, nor when another driver resumes the sweep.
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate

from results.analysis.cost import WASTED, Cost, attempt_cost, cost_shares
from results.checkpoints.checkpoint_times import CheckpointTime
from results.metrics.workers import Workers
from results.paths import SweepPaths
from results.records.environment import priced
from results.records.trial import Attempt, Report, TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec


class Histogram:
    """How many values are at most as large as each bound; the sum of all.

    Args:
        bounds: ascending.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Each bound as text, and the number of values up to it; the last is `+Inf`."""
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
BYTES = tuple(10.0**n for n in range(4, 13))
LOSSES = ("train_loss", "loss")
SAMPLES = "samples_seen"
"""The metric with the number of samples that a trial has trained on, since its first step."""


@dataclass
class Running:
    """A trial that runs.

    Attributes:
        since: when it last reported, or its attempt began; Unix seconds.
        metrics: of its newest report.
    """

    attempt: Attempt
    workers: Workers
    since: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Progress:
    """The furthest that a trial came: the highest step and number of samples."""

    step: int = 0
    samples: float | None = None
    clock: float = 0.0


class SweepMetrics:
    """The numbers of one sweep.

    Events of the driver and scrapes come in threads of their own; `lock` keeps them apart.

    Args:
        paths, spec: of the sweep.
        spent_s: seconds of wall-clock of earlier sessions.

    Attributes:
        running: trials that run, by id.
        progress: of trials that are not finished, by id.
        states: number of trials by state.
        attempts: number of attempts that ended, by result.
        best: the best value of each objective that any trial reported.
        rungs: number of trials that have come to each rung.
        saves, loads, sizes: of checkpoints, in seconds and bytes.
    """

    def __init__(self, paths: SweepPaths, spec: SweepSpec, spent_s: float = 0.0) -> None:
        self.paths, self.spec, self.slots = paths, spec, 0
        self.lock: AbstractContextManager[bool] = threading.RLock()
        self.running: dict[str, Running] = {}
        self.progress: dict[str, Progress] = {}
        self.states: Counter[TrialState] = Counter()
        self.attempts: Counter[str] = Counter(failed=0, ended=0)
        self.best: dict[str, float] = {}
        halves = spec.scheduler.name in ("asha", "asha_promote", "hyperband")
        self.rungs = dict.fromkeys(map(math.ceil, spec.scheduler.rung_steps if halves else ()), 0)
        self.saves, self.loads = Histogram(SECONDS), Histogram(SECONDS)
        self.sizes = Histogram(BYTES)
        self._workers: dict[str, Workers] = {}
        self._records: dict[str, tuple[TrialState, int]] = {}
        self._spent = Cost(currency=spec.prices.currency if spec.prices else "")
        self.wasted = dict.fromkeys(WASTED, 0.0)
        self._wasted: dict[str, dict[str, float]] = {}
        self._started = time.monotonic() - spent_s

    def add_history(self, history: Sequence[tuple[TrialRecord, Sequence[Report]]]) -> None:
        """Count the trials of earlier sessions."""
        for record, reports in history:
            self._count(record)
            for report in reports:
                self._note(record, report)
            if record.attempts:  # their checkpoints count
                self._follow(record).poll()
            self._forget_finished(record)

    def trial_started(self, record: TrialRecord) -> None:
        """An attempt begins."""
        attempt = record.attempts[-1] if record.attempts else None
        self._count(record)
        if attempt is None:  # copied from another sweep
            return
        self.running[record.id] = Running(attempt, self._follow(record), attempt.started)

    def trial_reported(self, record: TrialRecord, report: Report) -> None:
        """A trial reported."""
        self._note(record, report)
        if (running := self.running.get(record.id)) is not None:
            running.since, running.metrics = report.time, report.metrics
            if self.spec.prices is not None and running.attempt.accelerator is None:
                known = priced(self.paths.trial(record.id), running.attempt.number)
                running.attempt = running.attempt.model_copy(update=known)

    def trial_ended(self, record: TrialRecord) -> None:
        """An attempt ended; its trial perhaps not."""
        self._count(record)
        if (running := self.running.pop(record.id, None)) is not None:
            running.workers.poll()
        self._forget_finished(record)

    def poll(self) -> None:
        """Read what the workers of running trials measured since the last call."""
        for running in self.running.values():
            running.workers.poll()

    @property
    def cost(self) -> Cost:
        """Of all attempts, those that run up to their last report: no later driver counts less."""
        held = (r.attempt.model_copy(update={"ended": r.since}) for r in self.running.values())
        return sum((attempt_cost(attempt, self.spec.prices) for attempt in held), self._spent)

    @property
    def budget_used(self) -> dict[str, float]:
        """Part of each limit of the budget that is used."""
        budget, cost = self.spec.budget, self.cost
        used = {
            "trials": float(len(self._records)),
            "time": time.monotonic() - self._started,
            "cpu_hours": cost.cpu_hours,
            "gpu_hours": cost.gpu_hours,
            "cost": cost.cost,
        }
        limits = {name: getattr(budget, name) for name in used}
        return {name: used[name] / limit for name, limit in limits.items() if limit}

    def _count(self, record: TrialRecord) -> None:
        """Count a record's state, and its attempts that ended since the last one."""
        state, counted = self._records.get(record.id, (None, 0))
        if state is not None:
            self.states[state] -= 1
        self.states[record.state] += 1
        self._count_wasted(record)
        for attempt in record.attempts[counted:]:
            if attempt.ended is None:
                break
            counted += 1
            self._spent += attempt_cost(attempt, self.spec.prices)
            self.attempts["failed" if attempt.error is not None else "ended"] += 1
        self._records[record.id] = record.state, counted

    def _count_wasted(self, record: TrialRecord) -> None:
        """Add what a trial wasted since the last call; that of an attempt, once it has ended."""
        ended = tuple(a for a in record.attempts if a.ended is not None)
        past = record.model_copy(update={"attempts": ended})
        before = self._wasted.get(record.id, {})
        now = {why: c.cost for why, c in cost_shares([past], self.spec.prices).wasted.items()}
        for why, cost in now.items():
            self.wasted[why] += max(0.0, cost - before.get(why, 0.0))
        self._wasted[record.id] = now

    def _note(self, record: TrialRecord, report: Report) -> None:
        """Keep what a report improves: the trial's progress, and the best values."""
        known = self.progress.setdefault(record.id, Progress())
        known.step = max(known.step, report.step)
        seen = report.metrics.get(SAMPLES)
        if seen is not None and math.isfinite(seen):
            known.samples = max(known.samples or 0.0, seen)
        clock = report.clock(self.spec.scheduler.time_attr)
        for rung in self.rungs:
            self.rungs[rung] += known.clock < rung <= clock
        known.clock = max(known.clock, clock)
        for objective in self.spec.objectives:
            value = report.metrics.get(objective.metric, math.nan)
            if math.isfinite(value):
                choose: Callable[[float, float], float] = min if objective.mode == "min" else max
                best = self.best.get(objective.metric, value)
                self.best[objective.metric] = choose(best, value)

    def _follow(self, record: TrialRecord) -> Workers:
        """The workers of a trial in its newest attempt; those of earlier ones have been read."""
        if record.id not in self._workers:
            self._workers[record.id] = Workers(self.paths.trial(record.id), self._checkpoint)
        self._workers[record.id].begin(record.attempts[-1].number)
        return self._workers[record.id]

    def _forget_finished(self, record: TrialRecord) -> None:
        if record.state.finished:
            self.progress.pop(record.id, None)
            self._workers.pop(record.id, None)

    def _checkpoint(self, done: CheckpointTime) -> None:
        (self.saves if done.what == "save" else self.loads).add(done.seconds)
        if done.what == "save":
            self.sizes.add(done.bytes)
