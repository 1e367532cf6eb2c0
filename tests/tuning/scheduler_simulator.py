"""Simulates trials under a scheduler, without a sweep."""

from __future__ import annotations

import random

from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SchedulerSpec
from tuning.search.schedulers import Decision, Era, make_scheduler

MAX_T = 27
DOMAINS = {
    "lr": Domain.model_validate({"loguniform": [1e-4, 1e-1]}),
    "momentum": Domain.model_validate({"uniform": [0.0, 0.9]}),
    "layers": Domain.model_validate({"randint": [1, 5]}),
}
PARAMS = {"lr": 1e-2, "momentum": 0.5, "layers": 2}


def make(name="asha", **kw):
    settings = {"name": name, "grace_period": 1, "max_t": MAX_T, "interval": 9}
    spec = SchedulerSpec(**{**settings, **kw})
    return make_scheduler(spec, DOMAINS, seed=7)


def history(trial):
    return [Era(0, PARAMS, None)]


class SchedulerSimulator:
    """Trials on two lanes, in a random order.

    Attributes:
        log: every call that a resumed sweep repeats, with the answer.
        over: decision with which each trial ended.
    """

    def __init__(self, name, seed, trials=9, score=None):
        self.scheduler, self.rng = make(name), random.Random(seed)
        self.left = [f"t{i}" for i in range(trials)]
        quality = {t: self.rng.random() for t in self.left}
        self.score = score or (lambda t, s: (quality[t] * s / (s + 3),))
        self.steps, self.lanes, self.log, self.over = {}, [], [], {}

    def run(self, moves=10_000):
        for _ in range(moves):
            while len(self.lanes) < 2 and self.fill():
                pass
            if not self.lanes:
                break
            self.report(self.rng.choice(self.lanes))
        return self

    def fill(self):
        called = self.scheduler.next_to_resume(more=bool(self.left), idle=not self.lanes)
        if called is None and not self.left:
            return False
        exploit = called and self.scheduler.exploit(called, history)
        self.log.append(("next", called, exploit))
        self.lanes.append(called or self.left.pop(0))
        self.scheduler.on_trial_resume(self.lanes[-1])
        return True

    def report(self, trial):
        step = self.steps[trial] = self.steps.get(trial, 0) + 1
        scores = self.score(trial, step)
        decision = self.scheduler.decide(trial, step, scores)
        self.log.append((trial, step, scores, decision))
        if decision is not Decision.CONTINUE:
            self.lanes.remove(trial)
        if decision in (Decision.STOP, Decision.COMPLETE):
            self.over[trial] = decision
            self.scheduler.on_trial_complete(trial)

    def killed_and_resumed(self, name):
        """Replace the scheduler by a new one, which gets all reports again."""
        self.scheduler = make(name)
        for entry in self.log:
            if entry[0] != "next":
                self.scheduler.decide(*entry[:3])
        for trial in self.lanes:
            self.scheduler.on_trial_resume(trial)
        for trial in self.over:
            self.scheduler.on_trial_complete(trial)
        return self


def two_objectives(seed):
    """Quality that grows with steps, and a cost that does not."""
    rng = random.Random(seed)
    points = {f"t{i}": (rng.random(), rng.random()) for i in range(9)}
    return lambda trial, step: (points[trial][0] * step / (step + 3), points[trial][1])
