"""Launches trials in `TorchTrainer`s: in lanes, or in fresh processes for each attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from trainables.job import TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Leak
from trainables.launch.lanes.pool import LanePool
from trainables.launch.ray_train import WorkerGroupSpec
from trainables.launch.ray_train_loops.pool import FreshWorkerPool
from trainables.registry import resolve

if TYPE_CHECKING:
    from ray.actor import ActorHandle


class WorkerPool(Protocol):
    """Runs attempts for the driver; their events come from the broker, by `TrialJob.key`."""

    def start(self, job: TrialJob) -> None:
        """Begin an attempt; only while fewer attempts run than the pool has places."""

    def release(self, key: str, *, unusable: bool = False) -> None:
        """The attempt has ended for the driver; if it is still running, stop it.

        `unusable`: its processes must not run another one.
        """

    def retire_idle(self, keep: int) -> None:
        """End processes without an attempt, except those that `keep` attempts need."""

    def poll(self, more: Callable[[], bool]) -> None:
        """Start processes ahead of their attempts, and notice dead ones; call it often.

        Args:
            more: whether another attempt will follow those that run.
        """

    def workers_up(self) -> int:
        """The number of workers that are up."""

    def machines(self) -> dict[str, list[str]]:
        """Ids of the machines of an attempt's workers, by its key, as far as known."""

    def cancel_starts(self) -> None:
        """Cancel attempts whose processes are not up: they fail without having begun."""

    def broker_error(self) -> str:
        """Why the broker does not answer, in one line; empty if it does."""

    def take_leaks(self) -> list[Leak]:
        """Memory leaks for which processes were replaced since the last call."""

    def hand_over(self) -> bool:
        """Forget the attempts, which have all ended; False if no process is left for other ones."""

    def close(self) -> None:
        """End everything; bounded in time."""


@dataclass(frozen=True)
class Isolation:
    """The degree to which trials share processes.

    Attributes:
        kind: `lane` runs trial after trial in the same processes, `trial` in fresh ones.
        max_trials: that a lane may run; None for any number.
        max_growth: bytes that a process may hold beyond what it held after its first trial.
        spares: whether processes of loops are started ahead of their attempt, if memory allows.
    """

    kind: str
    max_trials: int | None
    max_growth: int
    spares: bool = True

    def trials_per_lane(self, trainable: str) -> int | None:
        """1 if the sweep or the trainable asks for fresh processes."""
        fresh = "trial" in (self.kind, resolve(trainable).isolation)
        return 1 if fresh else self.max_trials


def launch(
    trainable: str,
    isolation: Isolation,
    spec: WorkerGroupSpec,
    sizes: Sequence[int],
    broker: ActorHandle[Broker],
) -> WorkerPool:
    """Create the worker pool of a sweep; lanes start in the background before the first trial.

    Args:
        trainable: registered name, `script.py:function`, `package.module:function` or a class.
        isolation: of trials. Loops written for Ray Train share nothing.
        spec: resources of the workers of one trial; each attempt has its own number of workers.
        sizes: initial number of workers of each concurrent trial.
    """
    if resolve(trainable).uses_ray_train:
        return FreshWorkerPool(spec, broker, trainable, isolation.spares)
    # Not in the lanes' threads: two threads must not import modules that import each other.
    import_module("trainables.launch.lanes.trainer")
    trials_per_lane = isolation.trials_per_lane(trainable)
    return LanePool(spec, sizes, broker, trials_per_lane, isolation.max_growth)
