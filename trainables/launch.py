"""Launches trials in `TorchTrainer`s. Nobody outside knows in which of two ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from trainables.fit import Shape
from trainables.lane import Lane
from trainables.mailbox import Mailbox
from trainables.registry import is_foreign
from trainables.worker import Answer, TrialJob

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class Crew(Protocol):
    """Runs attempts, in the driver; what they say is heard from the mailbox, by `TrialJob.key`."""

    def start(self, job: TrialJob) -> None:
        """Begin an attempt; only while fewer than the crew's size are under way."""
        ...

    def release(self, key: str, *, ruined: bool = False) -> None:
        """The attempt is over for the driver: if it is still at work, it is to stop.

        Args:
            key: of the attempt.
            ruined: its processes are to take no other.
        """
        ...

    def close(self) -> None:
        """End everything; bounded in time."""
        ...


def launch(
    trainable: str, isolation: str, shape: Shape, size: int, mailbox: ActorHandle[Mailbox]
) -> Crew:
    """A crew for a sweep; what can come up before the first trial does so in the background.

    Args:
        trainable: registered name, `script.py:function`, `package.module:function` or a class.
        isolation: `lane` runs trial after trial in the same processes, `trial` in fresh ones. A
            loop written for Ray Train always gets fresh ones.
        shape: what the workers of one trial hold.
        size: trials at once.
        mailbox: of the sweep.
    """
    if is_foreign(trainable):
        return ForeignCrew(shape, mailbox)
    return LaneCrew(shape, size, mailbox, per_lane=1 if isolation == "trial" else None)


class LaneCrew:
    """A number of lanes; one that died or has done its share is replaced when it is needed."""

    def __init__(
        self, shape: Shape, size: int, mailbox: ActorHandle[Mailbox], per_lane: int | None
    ) -> None:
        self._shape, self._mailbox, self._per_lane = shape, mailbox, per_lane
        self._free = [self._new() for _ in range(size)]
        self._busy: dict[str, Lane] = {}
        self._retired: list[Lane] = []

    def start(self, job: TrialJob) -> None:
        """Begin an attempt on a free lane."""
        lane = self._free.pop() if self._free else self._new()
        if not lane.alive:
            lane = self._new()
        self._busy[job.key] = lane
        lane.start(job)

    def release(self, key: str, *, ruined: bool = False) -> None:
        """Free the attempt's lane; it takes the next one when this one has left it."""
        self._mailbox.answer.remote(key, Answer.STOP)
        lane = self._busy.pop(key)
        if ruined or (self._per_lane is not None and lane.trials >= self._per_lane):
            lane.retire()
            self._retired.append(lane)
        elif lane.alive:
            self._free.append(lane)

    def close(self) -> None:
        """Tell all lanes to leave, and wait for it."""
        lanes = [*self._free, *self._busy.values()]
        for key in self._busy:
            self._mailbox.answer.remote(key, Answer.STOP)
        for lane in lanes:
            lane.retire()
        for lane in [*lanes, *self._retired]:
            lane.join()

    def _new(self) -> Lane:
        return Lane(self._shape, self._mailbox)


class ForeignCrew:
    """A fresh `TorchTrainer` for each attempt."""

    def __init__(self, shape: Shape, mailbox: ActorHandle[Mailbox]) -> None:
        self._shape, self._mailbox = shape, mailbox
        self._runs: dict[str, Any] = {}  # actors of ForeignRun

    def start(self, job: TrialJob) -> None:
        """Begin an attempt in an actor of its own."""
        import ray

        from trainables.foreign_run import ForeignRun

        ray.get(self._mailbox.begin.remote(job.key))  # before its first word
        actor: Any = ray.remote(ForeignRun)
        run = actor.options(num_cpus=0).remote()
        run.fit.remote(job, self._shape, self._mailbox)
        self._runs[job.key] = run

    def release(self, key: str, *, ruined: bool = False) -> None:
        """End the attempt's processes: the loop cannot be told.

        Ray Train's own cleaner of what a killed run held needs the State API, which only
        `ray[default]` serves; without it the CPUs would be lost to the sweep.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        ray.kill(self._runs.pop(key))
        group: Any = ray.get(self._mailbox.forget.remote(key))
        if group is not None:
            remove_placement_group(group)

    def close(self) -> None:
        """End what is under way."""
        for key in list(self._runs):
            self.release(key)
