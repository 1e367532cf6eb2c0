"""This platform's searchers and schedulers in the simulation."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.search.simulate import Attempt, Contender
from benchmarks.search.tasks import Task, with_prior
from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.search.evidence import ScoreCurves
from tuning.search.schedulers import Decision, make_scheduler
from tuning.search.study.study import SweepStudy


class Ours(Contender):
    """A searcher and a scheduler by name, combined as in a sweep."""

    def __init__(
        self,
        task: Task,
        seed: int,
        searcher: str,
        scheduler: str,
        check: str | bool = "auto",
        prior: str = "",
        cost_aware: bool = False,
    ) -> None:
        self._spec = SweepSpec.model_validate(
            {
                "name": "simulated",
                "trainable": "simulated",
                "metric": "error",
                "space": with_prior(task, prior) if prior else task.space,
                "search": {"name": searcher, "cost_aware": cost_aware},
                "scheduler": {"name": scheduler, "max_t": task.epochs, "check": check},
                "budget": {"time": 1e9},
                "seed": seed,
            }
        )
        self._folder = tempfile.TemporaryDirectory(dir=_memory())
        path = Path(self._folder.name) / "study.journal"
        self._study = SweepStudy(path, "simulated", self._spec)
        self._scheduler = make_scheduler(self._spec.scheduler, self._spec.domains(), seed)
        self._records: dict[str, TrialRecord] = {}
        self._curves, self._attempts = ScoreCurves(), dict[str, Attempt]()

    def next(self) -> Attempt:
        """The paused trial that should continue, else a new one."""
        called = self._scheduler.next_to_resume(more=True, idle=False)
        if called is None:
            number, params = self._study.ask(self._curves, misleading=self._scheduler.misleading)
            called = f"t{number:04d}"
            self._records[called] = TrialRecord(
                id=called, number=number, params=params, config=params, seed=0, created=time.time()
            )
        self._scheduler.on_trial_resume(called)
        record = self._records[called]
        epoch = max(self._curves.get(record.number, ()), default=0)
        self._attempts[called] = Attempt(called, record.params, epoch)
        return self._attempts[called]

    def report(self, trial: str, epoch: int, error: float) -> bool:
        """Decide as a sweep does."""
        record = self._records[trial]
        self._curves.add(record.number, epoch, -error, epoch * self._attempts[trial].seconds)
        decision = self._scheduler.decide(trial, epoch, (-error,))
        if (
            decision is Decision.PAUSE
            and self._scheduler.next_to_resume(more=True, idle=False) == trial
        ):
            self._scheduler.on_trial_resume(trial)
            return True
        if decision in (Decision.STOP, Decision.COMPLETE):
            self._scheduler.on_trial_complete(trial)
            stopped = decision is Decision.STOP
            state = TrialState.STOPPED if stopped else TrialState.COMPLETED
            curve = [(step, -score) for step, score in self._curves[record.number].items()]
            self._study.tell(record.model_copy(update={"state": state}), curve)
        return decision is Decision.CONTINUE

    def close(self) -> None:
        """Remove the study."""
        self._folder.cleanup()


def _memory() -> str | None:
    """A folder in memory if there is one, so that the disk does not affect the timing."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
