"""The base class of worker pools, which run the attempts of a sweep for its driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from trainables.job import TrialJob
from trainables.launch.broker.actor import broker_error
from trainables.launch.broker.events import Leak

if TYPE_CHECKING:
    from ray.actor import ActorHandle

    from trainables.launch.broker.broker import Broker


class WorkerPool(ABC):
    """Runs attempts; their events come from the broker, by `TrialJob.key`."""

    def __init__(self, broker: ActorHandle[Broker]) -> None:
        self._broker = broker

    @abstractmethod
    def start(self, job: TrialJob) -> None:
        """Begin an attempt; only while fewer attempts run than the pool has places."""

    @abstractmethod
    def release(self, key: str, *, unusable: bool = False) -> None:
        """The attempt has ended for the driver; if it is still running, stop it.

        `unusable`: its processes must not run another one.
        """

    @abstractmethod
    def retire_idle(self, keep: int) -> None:
        """End processes without an attempt, except those that `keep` attempts need; the longest
        unused ones end first.
        """

    def use_gpus(self, gpus_per_worker: float) -> None:  # noqa: B027 - or no lanes
        """Let the next attempts run in processes that hold so much of a GPU."""

    def poll(self) -> None:  # noqa: B027 - a pool may have nothing to do
        """Notice dead processes; call it often."""

    @abstractmethod
    def workers_up(self) -> int:
        """The number of workers that are up."""

    @abstractmethod
    def machines(self) -> dict[str, list[str]]:
        """Ids of the machines of an attempt's workers, by its key, as far as known."""

    def cancel_starts(self) -> None:  # noqa: B027 - nor anything to cancel
        """Cancel attempts whose processes are not up: they fail without having begun."""

    def broker_error(self) -> str:
        """Why the broker does not answer, in one line; empty if it does."""
        return broker_error(self._broker)

    def take_leaks(self) -> list[Leak]:
        """What trials left behind, for which processes were replaced since the last call."""
        return []

    def hand_over(self) -> bool:
        """Forget the attempts, which have all ended; False if no process is left for other ones."""
        return False

    @abstractmethod
    def close(self) -> None:
        """End everything; bounded in time."""
