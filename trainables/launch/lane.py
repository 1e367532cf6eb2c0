"""A lane: one long-lived `TorchTrainer` whose workers run trial after trial from a mailbox.

This is the driver's side; `trainables.launch.lane_worker` is the other. Only a lane's first trial pays
for the start.
"""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker import Broker
from trainables.launch.lane_worker import LaneTask, lane_loop
from trainables.launch.ray_train import Shape, describe, fit, run_config
from trainables.launch.trial_outcome import Leak

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_LEFT = "the workers left before the trial ended"


class Lane:
    """The driver's side of a lane. Its workers come up in the background.

    Attributes:
        failed: how its processes failed, one line; None while they have not.

    Args:
        shape: what its workers hold.
        mailbox: of the sweep.
        max_growth: bytes beyond its baseline after which it is given up.
        after: a lane whose start comes first: on few cores one lane that is up takes a trial
            earlier than two that are both half up.
    """

    def __init__(
        self,
        shape: Shape,
        broker: ActorHandle[Broker],
        max_growth: int,
        after: Lane | None = None,
    ) -> None:
        self.id = f"lane-{uuid.uuid4().hex[:8]}"
        self._mailbox, self._shape, self._after = broker, shape, after
        self.workers = shape.workers
        self._task = LaneTask(self.id, broker, shape.gpus_per_worker, max_growth)
        self.trials, self.recalled = 0, False
        self.leak: Leak | None = None
        self.failed: str | None = None
        self._thread = threading.Thread(target=self._fit, name=self.id, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it takes trials."""
        return self._thread.is_alive()

    def start(self, job: TrialJob) -> None:
        """Hand the lane its next trial; it begins when the one before has ended."""
        self.trials += 1
        self._mailbox.submit.remote(self.id, job)

    def recall(self) -> None:
        """Do without its workers, which are not up: its trials are told so."""
        self.recalled = True
        self._mailbox.recall.remote(self.id)

    def retire(self) -> None:
        """Take no further trial, and leave."""
        self._mailbox.submit.remote(self.id, None)

    def join(self, wait_s: float) -> None:
        """Wait until it has left, for some seconds at most."""
        self._thread.join(wait_s)

    def _fit(self) -> None:
        import ray
        from ray.util.placement_group import remove_placement_group

        try:
            if self._may_start():
                from trainables.launch.lane_trainer import LaneTrainer

                run = run_config(self.id, self._shape.folder)
                fit(lane_loop, {"task": self._task}, self._shape, run, trainer=LaneTrainer)
        except Exception as e:  # noqa: BLE001 - told to whoever waits for its trials
            self.failed = describe(e)
        try:
            told: Any = self._mailbox.lane_gone.remote(self.id, self.failed or _LEFT)
            left = ray.get(told)
        except ray.exceptions.RayError:  # the cluster went with it
            return
        self.leak = left.leak
        if left.group is not None:
            remove_placement_group(left.group)

    def _may_start(self) -> bool:
        import ray

        if self._after is None:
            return True
        may: Any = self._mailbox.may_start.remote(self.id, self._after.id)
        return bool(ray.get(may))
