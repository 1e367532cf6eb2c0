"""Launches trials in `TorchTrainer`s. Nobody outside knows in which of two ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from trainables.fit import Shape
from trainables.lane import Lane
from trainables.mailbox import Leak, Mailbox, is_there
from trainables.registry import is_foreign, resolve
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

    def keep(self, idle: int) -> None:
        """Let go of processes without a trial, but for as many as `idle` trials need."""
        ...

    def up(self) -> int:
        """How many workers are there now."""
        ...

    def machines(self) -> dict[str, list[str]]:
        """By the keys of attempts: ids of the machines that their workers are on, where known."""
        ...

    def recall(self) -> None:
        """Attempts whose processes have not come up do without them: they fail, not begun."""
        ...

    def hears(self) -> bool:
        """Whether the mailbox is there, without which nobody is heard of."""
        ...

    def leaks(self) -> list[Leak]:
        """Why processes were replaced, since the last call: trials that left memory behind."""
        ...

    def close(self) -> None:
        """End everything; bounded in time."""
        ...


@dataclass(frozen=True)
class Isolation:
    """How much trials may share.

    Attributes:
        kind: `lane` runs trial after trial in the same processes, `trial` in fresh ones.
        max_trials: of a lane; None for any number.
        max_growth: bytes that a process may hold beyond what it held after its first trial.
    """

    kind: str
    max_trials: int | None
    max_growth: int

    def trials_per_lane(self, trainable: str) -> int | None:
        """1 where fresh processes are asked for, by the sweep or by the trainable."""
        asked = "trial" in (self.kind, resolve(trainable).isolation)
        return 1 if asked else self.max_trials


def launch(
    trainable: str,
    isolation: Isolation,
    shape: Shape,
    sizes: Sequence[int],
    mailbox: ActorHandle[Mailbox],
) -> Crew:
    """A crew for a sweep; what can come up before the first trial does so in the background.

    Args:
        trainable: registered name, `script.py:function`, `package.module:function` or a class.
        isolation: how much trials share. Loops written for Ray Train share nothing.
        shape: what the workers of one trial hold; how many there are, each attempt says.
        sizes: of each trial at once, its workers to begin with.
        mailbox: of the sweep.
    """
    if is_foreign(trainable):
        return ForeignCrew(shape, mailbox)
    # Here, because modules that import each other must not be imported by two threads at once.
    import_module("trainables.lane_trainer")
    per_lane = isolation.trials_per_lane(trainable)
    return LaneCrew(shape, sizes, mailbox, per_lane, isolation.max_growth)


class LaneCrew:
    """A number of lanes; one that died or has done its share is replaced when it is needed."""

    def __init__(
        self,
        shape: Shape,
        sizes: Sequence[int],
        mailbox: ActorHandle[Mailbox],
        per_lane: int | None,
        max_growth: int,
    ) -> None:
        self._shape, self._mailbox = shape, mailbox
        self._per_lane, self._max_growth = per_lane, max_growth
        first = self._new(sizes[0])
        self._free = [*(self._new(n, after=first) for n in sizes[1:]), first]
        self._busy: dict[str, Lane] = {}
        self._leaving: list[Lane] = []

    def start(self, job: TrialJob) -> None:
        """Begin an attempt on a free lane of its number of workers, off the machines it avoids.

        Where there is none, the others leave: they hold what the new one needs.
        """
        self._part_from_the_dead()
        fit = [one for one in reversed(self._free) if one.workers == job.workers]
        if job.avoid and fit:
            up = self._lanes_up()
            fit = [one for one in fit if one.id in up and {*job.avoid}.isdisjoint(up[one.id])]
        lane = next(iter(fit), None)
        if lane is None:
            self.keep(0)
            lane = self._new(job.workers, job.avoid)
        else:
            self._free.remove(lane)
        self._busy[job.key] = lane
        lane.start(job)

    def release(self, key: str, *, ruined: bool = False) -> None:
        """Free the attempt's lane; it takes the next one when this one has left it."""
        self._mailbox.answer.remote(key, Answer.STOP)
        lane = self._busy.pop(key)
        done = self._per_lane is not None and lane.trials >= self._per_lane
        if lane.alive and not (ruined or done or lane.recalled):
            self._free.append(lane)
        else:
            self._retire(lane)

    def keep(self, idle: int) -> None:
        """Retire free lanes, the longest unused first."""
        while len(self._free) > idle:
            self._retire(self._free.pop(0))

    def up(self) -> int:
        """Workers of lanes that came up and are there."""
        up = self._lanes_up()
        return sum(lane.workers for lane in self._all() if lane.id in up)

    def recall(self) -> None:
        """Give up busy lanes that did not come up: the mailbox tells their attempts."""
        up = self._lanes_up()
        for lane in [one for one in self._busy.values() if one.id not in up and not one.recalled]:
            lane.recall()

    def machines(self) -> dict[str, list[str]]:
        """Of busy lanes that are up."""
        up = self._lanes_up()
        return {key: up[lane.id] for key, lane in self._busy.items() if lane.id in up}

    def _lanes_up(self) -> dict[str, list[str]]:
        import ray

        machines: Any = self._mailbox.lanes_up.remote()
        try:
            return dict(ray.get(machines))
        except ray.exceptions.RayActorError:  # see `hears`
            return {}

    def _all(self) -> Iterator[Lane]:
        yield from (*self._free, *self._busy.values(), *self._leaving)

    def hears(self) -> bool:
        """Whether the mailbox is there."""
        return is_there(self._mailbox)

    def leaks(self) -> list[Leak]:
        """Of lanes that have left; those that are asked for are forgotten."""
        self._part_from_the_dead()
        gone = [lane for lane in self._leaving if not lane.alive]
        self._leaving = [lane for lane in self._leaving if lane.alive]
        return [lane.leak for lane in gone if lane.leak is not None]

    def close(self) -> None:
        """Tell all lanes to leave, and wait for it."""
        for key in list(self._busy):
            self.release(key)
        self.keep(0)
        for lane in self._leaving:
            lane.join()

    def _new(self, workers: int, avoid: tuple[str, ...] = (), after: Lane | None = None) -> Lane:
        shape = replace(self._shape, workers=workers, avoid=avoid)
        return Lane(shape, self._mailbox, self._max_growth, after)

    def _part_from_the_dead(self) -> None:
        self._leaving += [lane for lane in self._free if not lane.alive]
        self._free = [lane for lane in self._free if lane.alive]

    def _retire(self, lane: Lane) -> None:
        lane.retire()
        self._leaving.append(lane)


class ForeignCrew:
    """A fresh `TorchTrainer` for each attempt."""

    def __init__(self, shape: Shape, mailbox: ActorHandle[Mailbox]) -> None:
        self._shape, self._mailbox = shape, mailbox
        self._runs: dict[str, Any] = {}  # actors of ForeignRun

    def start(self, job: TrialJob) -> None:
        """Begin an attempt in an actor of its own."""
        import ray

        from trainables.foreign_run import ForeignRun

        with suppress(ray.exceptions.RayActorError):  # see `hears`
            ray.get(self._mailbox.begin.remote(job.key))  # before its first word
        actor: Any = ray.remote(ForeignRun)
        run = actor.options(num_cpus=0).remote()
        shape = replace(self._shape, avoid=job.avoid)
        run.fit.remote(job, shape, self._mailbox)
        self._runs[job.key] = run

    def release(self, key: str, *, ruined: bool = False) -> None:
        """End the attempt's processes: the loop cannot be told.

        Ray Train's own cleaner of what a killed run held needs the State API, which only
        `ray[default]` serves; without it the CPUs would be lost to the sweep.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        ray.kill(self._runs.pop(key))
        try:
            group: Any = ray.get(self._mailbox.forget.remote(key))
        except ray.exceptions.RayActorError:  # the mailbox died; Ray Train frees what it can
            return
        if group is not None:
            remove_placement_group(group)

    def keep(self, idle: int) -> None:
        """Nothing: no process outlives its attempt."""

    def up(self) -> int:
        """Workers of attempts under way: each comes up by itself."""
        return len(self._runs) * self._shape.workers

    def machines(self) -> dict[str, list[str]]:
        """Nothing is known before an attempt has failed."""
        return {}

    def recall(self) -> None:
        """Nothing: what waits for room has been told so by Ray Train, or will be."""

    def hears(self) -> bool:
        """Whether the mailbox is there."""
        return is_there(self._mailbox)

    def leaks(self) -> list[Leak]:
        """None: a process runs one attempt."""
        return []

    def close(self) -> None:
        """End what is under way."""
        for key in list(self._runs):
            self.release(key)
