"""Takes the reports of a user's train loop from Ray Train's controller to the broker."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.train import UserCallback

from results.records.reports import Report, ReportWriter
from trainables.job import TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Event, Reported
from trainables.launch.ray_train_loops.callbacks import is_taken_away
from trainables.runtime.preemption import Preempted
from trainables.user_code.metrics import StepCounter
from trainables.user_code.ray_train.checkpoints import add_manifest, prune

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_CLOSING_S = 60.0
"""Longest time that a loop has, after its last step, to save its model and return."""


class ForwardReports(UserCallback):
    """Records rank 0's reports and posts them to the broker, from the Train controller.

    The report of the last step (`max_t`) is posted when the loop reports a later step, at the
    latest after a minute: the driver ends the trial then, and a loop may still save its model. When
    the loop returns before, `run_attempt` posts it. A report without numbers, or that repeats an
    earlier one, only brings a checkpoint.

    Args:
        restored: step of the checkpoint that Ray Train gives the loop; None if there is none.
    """

    def __init__(self, job: TrialJob, broker: ActorHandle[Broker], restored: int | None) -> None:
        self._job, self._broker, self._restored = job, broker, restored
        self._reports = ReportWriter(job.paths, job.attempt)
        self._hashing: threading.Thread | None = None
        self._steps: StepCounter | None = None
        self._held: threading.Timer | None = None

    def after_report(
        self, run_context: Any, metrics: list[dict[str, float]], checkpoint: Any
    ) -> None:
        """Called by the controller once all ranks have reported."""
        if self._job.superseded:
            return
        if self._steps is None:
            self._steps = StepCounter(self._job, self._first_step(), shares_steps=True)
        counter, numbers = self._steps, metrics[0]
        if self._held is None:
            if numbers and (found := counter.number(numbers)):
                self._post(*found)
        elif self._job.retention.metric in numbers and not counter.is_past(numbers):
            self._held.cancel()
            self._held.function()
            return
        if checkpoint is not None:
            self._add_manifest(Path(checkpoint.path), counter.last)
            if is_taken_away() and self._held is None:
                self._leave(counter.last)

    def _leave(self, step: int) -> None:
        """End the run as preempted: it has a checkpoint, and the next attempt goes on from it."""
        if self._hashing is not None:
            self._hashing.join()
        raise Preempted(f"a machine is taken away; left after step {step}, which it saved")

    def _post(self, step: int, numbers: dict[str, float]) -> None:
        report = Report(step=step, metrics=numbers, attempt=self._job.attempt, time=time.time())
        self._reports.append(report)

        def post() -> None:
            post_event(self._broker, self._job, Reported(report))

        if not is_last(self._job, report):
            post()
            return
        self._held = threading.Timer(_CLOSING_S, post)
        self._held.daemon = True
        self._held.start()

    def _first_step(self) -> int | None:
        """The step of the loop's checkpoint, if it asked for it."""
        import ray

        asked = bool(ray.get(self._broker.is_restored.remote(self._job.key)))
        return self._restored if asked else None

    def _add_manifest(self, folder: Path, step: int) -> None:
        """Hash a checkpoint in the background, then delete old ones: one at a time, in order."""
        before = self._hashing

        def hash_files() -> None:
            if before is not None:
                before.join()
            add_manifest(self._job.paths, folder, step)
            prune(self._job)

        self._hashing = threading.Thread(target=hash_files, name="hash", daemon=True)
        self._hashing.start()


def post_event(broker: ActorHandle[Broker], job: TrialJob, event: Event) -> None:
    """Post an event and wait until it is there: Ray does not keep the order of calls."""
    import ray

    posted: Any = broker.post_event.remote(job.key, event)
    ray.get(posted)


def is_last(job: TrialJob, report: Report) -> bool:
    """Whether a trial is complete at a report."""
    return job.max_t is not None and job.retention.time(report) >= job.max_t
