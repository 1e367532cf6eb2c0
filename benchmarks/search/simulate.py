"""Simulates asynchronous workers and trials with epochs of different lengths."""

from __future__ import annotations

import heapq
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.search.tasks import Task, draw

WORKERS = 8
FULL_TRAININGS = 40
SHARES = [i / 40 for i in range(1, 41)]


@dataclass
class Attempt:
    """A trial that a contender wants to run, the epoch from which it continues, and the seconds of
    one, which the simulation sets.
    """

    trial: str
    config: dict[str, Any]
    epoch: int = 0
    seconds: float = 0.0


class Contender(ABC):
    """A searcher with its scheduler."""

    @abstractmethod
    def next(self) -> Attempt | None:
        """What a free worker should run; a paused trial continues after its last epoch."""

    @abstractmethod
    def report(self, trial: str, epoch: int, error: float) -> bool:
        """Take an epoch's validation error; returns whether the trial continues."""

    def clock(self) -> float:
        """CPU seconds spent so far by the process that makes the decisions."""
        return time.process_time()

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """The simulation is over."""


@dataclass
class Outcome:
    """The result of one simulated sweep.

    Attributes:
        best: the lowest error up to each of `SHARES` of the budget.
        asks: CPU seconds of each proposal.
    """

    best: list[float] = field(default_factory=list)
    asks: list[float] = field(default_factory=list)


def run(task: Task, contender: Contender, seed: int) -> Outcome:
    """Simulate one sweep with a budget of `FULL_TRAININGS` on `WORKERS` workers."""
    simulation = _Simulation(task, contender, seed)
    for _ in range(WORKERS):
        simulation.begin()
    while simulation.step():
        pass
    contender.close()
    return simulation.outcome


class _Simulation:
    def __init__(self, task: Task, contender: Contender, seed: int) -> None:
        self._task, self._contender = task, contender
        self._rng = np.random.default_rng([seed, 99])
        some = [draw(task.space, np.random.default_rng([7, i])) for i in range(500)]
        self._end = FULL_TRAININGS * task.epochs / WORKERS * float(task.seconds(some).mean())
        self._now, self._best, self._order = 0.0, float("inf"), 0
        self._due: list[tuple[float, int, Attempt]] = []
        self._curves: dict[str, list[float]] = {}
        self._expected: dict[str, list[float]] = {}
        self._lowest = float("inf")
        self._seconds: dict[str, float] = {}
        self.outcome = Outcome()

    def begin(self) -> None:
        """Start the contender's next attempt on a free worker."""
        started = self._contender.clock()
        attempt = self._contender.next()
        spent = self._contender.clock() - started
        if attempt is None:
            return
        if attempt.trial not in self._curves:
            self.outcome.asks.append(spent)
            self._curves[attempt.trial] = self._task.curves([attempt.config])[0].tolist()
            self._expected[attempt.trial] = self._task.expected([attempt.config])[0].tolist()
            seconds = self._rng.uniform(0.8, 1.2) * self._task.seconds([attempt.config])[0]
            self._seconds[attempt.trial] = float(seconds)
        attempt.seconds = self._seconds[attempt.trial]
        self._train(attempt)

    def step(self) -> bool:
        """Advance to the end of the next epoch; False when the budget is spent."""
        over = not self._due
        if not over:
            self._now, _, attempt = heapq.heappop(self._due)
        elapsed = 1.0 if over else min(1.0, self._now / self._end)
        while len(self.outcome.best) < len(SHARES) and elapsed >= SHARES[len(self.outcome.best)]:
            self.outcome.best.append(self._best)
        if len(self.outcome.best) == len(SHARES):
            return False
        attempt.epoch += 1
        error = self._curves[attempt.trial][attempt.epoch - 1]
        if error < self._lowest:
            self._lowest, self._best = error, self._expected[attempt.trial][attempt.epoch - 1]
        goes_on = self._contender.report(attempt.trial, attempt.epoch, error)
        if goes_on and attempt.epoch < self._task.epochs:
            self._train(attempt)
        else:
            self.begin()
        return True

    def _train(self, attempt: Attempt) -> None:
        self._order += 1
        heapq.heappush(self._due, (self._now + attempt.seconds, self._order, attempt))
