"""Launches trials in `TorchTrainer`s. Nobody outside knows in which of two ways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from trainables.job import TrialJob
from trainables.launch.broker import Broker
from trainables.launch.fresh_pool import FreshWorkerPool
from trainables.launch.lane_pool import LanePool
from trainables.launch.ray_train import Shape
from trainables.launch.trial_outcome import Leak
from trainables.registry import resolve

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class WorkerPool(Protocol):
    """Runs attempts, in the driver; what they say is heard from the mailbox, by `TrialJob.key`."""

    def start(self, job: TrialJob) -> None:
        """Begin an attempt; only while fewer than the crew's size are under way."""
        ...

    def release(self, key: str, *, unusable: bool = False) -> None:
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

    def is_alive(self) -> bool:
        """Whether the mailbox is there, without which nobody is heard of."""
        ...

    def why_gone(self, key: str, wait_s: float) -> str | None:
        """How an attempt's processes failed, one line, where they do within some seconds."""
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
    broker: ActorHandle[Broker],
) -> WorkerPool:
    """A crew for a sweep; what can come up before the first trial does so in the background.

    Args:
        trainable: registered name, `script.py:function`, `package.module:function` or a class.
        isolation: how much trials share. Loops written for Ray Train share nothing.
        shape: what the workers of one trial hold; how many there are, each attempt says.
        sizes: of each trial at once, its workers to begin with.
        mailbox: of the sweep.
    """
    if resolve(trainable).uses_ray_train:
        return FreshWorkerPool(shape, broker)
    # Here, because modules that import each other must not be imported by two threads at once.
    import_module("trainables.launch.lane_trainer")
    per_lane = isolation.trials_per_lane(trainable)
    return LanePool(shape, sizes, broker, per_lane, isolation.max_growth)
