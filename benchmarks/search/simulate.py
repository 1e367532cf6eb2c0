"""Asynchronous simulated time: a number of workers, trials whose epochs differ in length."""

from __future__ import annotations

import heapq
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.search.tasks import Task

WORKERS = 8
FULL_TRAININGS = 40
SHARES = [i / 40 for i in range(1, 41)]


@dataclass
class Attempt:
    """What a contender wants to be run: a trial, and from which epoch on."""

    trial: str
    config: dict[str, Any]
    epoch: int = 0


class Contender(ABC):
    """A searcher with its scheduler."""

    @abstractmethod
    def next(self) -> Attempt | None:
        """What a free worker should run; a paused trial goes on after its last epoch."""

    @abstractmethod
    def report(self, trial: str, epoch: int, error: float) -> bool:
        """Take an epoch's validation error; whether the trial goes on."""

    def clock(self) -> float:
        """CPU seconds spent so far, in whichever process it thinks."""
        return time.process_time()

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """The simulation is over."""


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        best: the lowest error seen until each of `SHARES` of the budget.
        asks: CPU seconds of each proposal.
    """

    best: list[float] = field(default_factory=list)
    asks: list[float] = field(default_factory=list)


def run(task: Task, contender: Contender, seed: int) -> Outcome:
    """Spend a budget of `FULL_TRAININGS`, shared by `WORKERS`."""
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
        self._end = FULL_TRAININGS * task.epochs / WORKERS
        self._now, self._best, self._order = 0.0, float("inf"), 0
        self._due: list[tuple[float, int, Attempt]] = []
        self._curves: dict[str, list[float]] = {}
        self._seconds: dict[str, float] = {}
        self.outcome = Outcome()

    def begin(self) -> None:
        """A free worker takes what the contender wants."""
        started = self._contender.clock()
        attempt = self._contender.next()
        spent = self._contender.clock() - started
        if attempt is None:
            return
        if attempt.trial not in self._curves:
            self.outcome.asks.append(spent)
            self._curves[attempt.trial] = self._task.curves([attempt.config])[0].tolist()
            self._seconds[attempt.trial] = float(self._rng.uniform(0.8, 1.2))
        self._train(attempt)

    def step(self) -> bool:
        """The next epoch of any trial ends; False when the budget is spent."""
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
        self._best = min(self._best, error)
        goes_on = self._contender.report(attempt.trial, attempt.epoch, error)
        if goes_on and attempt.epoch < self._task.epochs:
            self._train(attempt)
        else:
            self.begin()
        return True

    def _train(self, attempt: Attempt) -> None:
        self._order += 1
        heapq.heappush(self._due, (self._now + self._seconds[attempt.trial], self._order, attempt))
