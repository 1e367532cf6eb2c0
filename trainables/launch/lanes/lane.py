"""A lane: one long-lived `TorchTrainer` whose workers run trial after trial from the broker.

This is the driver's side; `trainables.launch.lanes.worker` is the other. Only the first trial of a
lane waits for processes to start.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from trainables.job import TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Leak
from trainables.launch.errors import describe_failure
from trainables.launch.lanes import LANE
from trainables.launch.lanes.worker import LaneTask, lane_loop
from trainables.launch.ray_train import WorkerGroupSpec, fit, run_config

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_WORKERS_LEFT = "the workers left before the trial ended"


class Lane:
    """The driver's side of a lane. Its workers start in the background.

    Attributes:
        id: its name in the broker.
        num_trials: number of trials that it was given.
        is_cancelled: whether its start was cancelled.
        failure: error of its processes, one line; None if there is none.
        leak: the leak for which it was retired, if any; set when it has ended.

    Args:
        spec: the resources of its workers.
        max_growth: bytes beyond its baseline after which it is retired.
        after: a lane that starts first: on few cores, one lane that is up takes a trial earlier
            than two lanes that are both still starting.
    """

    def __init__(
        self,
        spec: WorkerGroupSpec,
        broker: ActorHandle[Broker],
        max_growth: int,
        after: Lane | None = None,
    ) -> None:
        self.id = f"{LANE}{uuid.uuid4().hex[:8]}"
        self._broker, self._spec, self._after = broker, spec, after
        self.workers, self.gpus_per_worker = spec.workers, spec.gpus_per_worker
        more = spec.preload, spec.process_group_timeout_s, spec.notices
        self._task = LaneTask(self.id, broker, spec.gpus_per_worker, max_growth, *more)
        self.num_trials, self.is_cancelled = 0, False
        self.leak: Leak | None = None
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run, name=self.id, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it takes trials."""
        return self._thread.is_alive()

    def start(self, job: TrialJob) -> None:
        """Give the lane its next trial; it begins when the one before has ended."""
        self.num_trials += 1
        self._broker.submit.remote(self.id, job)

    def cancel_start(self) -> None:
        """Stop waiting for its workers to start; the broker fails its trials."""
        self.is_cancelled = True
        self._broker.cancel_start.remote(self.id)

    def retire(self) -> None:
        """Take no further trial; end after the current one."""
        self._broker.submit.remote(self.id, None)

    def join(self, wait_s: float) -> None:
        """Wait until it has ended, for at most this many seconds."""
        self._thread.join(wait_s)

    def kill(self, reason: str = _WORKERS_LEFT) -> None:
        """End its workers, also within a step. The thread then ends: it must not outlive Ray, whose
        calls end the whole process, or start another cluster, after the end of its own.
        """
        import ray
        from ray.util.placement_group import remove_placement_group

        with suppress(ray.exceptions.RayError):  # the cluster has ended too
            removal: Any = self._broker.remove_lane.remote(self.id, reason)
            leak, placement_group = ray.get(removal)
            self.leak = self.leak or leak
            if placement_group is not None:
                remove_placement_group(placement_group)

    def _run(self) -> None:
        try:
            if self._wait_to_start():
                from trainables.launch.lanes.trainer import LaneTrainer

                run = run_config(self.id, self._spec.folder)
                fit(lane_loop, {"task": self._task}, self._spec, run, LaneTrainer)
        except Exception as e:  # noqa: BLE001 - the broker fails its trials
            self.failure = describe_failure(e)
        self.kill(self.failure or _WORKERS_LEFT)

    def _wait_to_start(self) -> bool:
        import ray

        if self._after is None:
            return True
        may_start: Any = self._broker.wait_to_start.remote(self.id, self._after.id)
        return bool(ray.get(may_start))
