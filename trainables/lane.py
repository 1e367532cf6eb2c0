"""A lane: one long-lived `TorchTrainer` whose workers run trial after trial from a mailbox.

Processes, imports, process group and prepared data stay; everything of a trial goes with it
(see `trainables.base.Trainable`). Only its first trial pays for the start.
"""

from __future__ import annotations

import gc
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.records import Report
from trainables.fit import Shape, describe, fit, in_one_line, run_config
from trainables.mailbox import Mailbox, Next, Outcome
from trainables.run import output_to, run_trial
from trainables.worker import Answer, TrialJob

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_CLOSE_S = 20.0


@dataclass(frozen=True)
class MailboxChannel:
    """Rank 0's side of the mailbox, for one attempt."""

    mailbox: ActorHandle[Mailbox]
    key: str

    def report(self, report: Report) -> Answer:
        """Report and wait for the driver's answer."""
        import ray

        answer: Any = ray.get(self.mailbox.report.remote(self.key, report))
        return Answer(answer)


def lane_loop(config: dict[str, Any]) -> None:
    """The train loop of every worker of a lane: run the mailbox's trials until it says None."""
    import ray
    import ray.train
    from ray.train.torch import get_device

    mailbox, lane = config["mailbox"], config["lane"]
    at = ray.train.get_context()
    rank, world, local = at.get_world_rank(), at.get_world_size(), at.get_local_rank()
    device, number = get_device(), 0
    while (job := ray.get(mailbox.job.remote(lane, number))) is not None:
        channel, error = MailboxChannel(mailbox, job.key), None
        try:
            with output_to(job.paths.log(job.attempt, rank)):
                run_trial(job, channel, device, rank=rank, world_size=world, local_rank=local)
        except Exception as e:  # noqa: BLE001 - the trial's failure, not the lane's
            error = e
        failure = None if error is None else in_one_line(error)
        outcome = Outcome(failure, fatal=_ruins_the_process(error))
        then = ray.get(mailbox.settle.remote(lane, job.key, rank, world, outcome))
        if then is Next.LEAVE:
            raise error or RuntimeError("another rank of the trial failed")
        if world > 1 and then is Next.RENEW:
            _renew_process_group(number)
        error = None
        gc.collect()  # what the trial held in cycles is gone before the next one begins
        if not number:
            gc.freeze()  # what is imported by now stays: looking at it again would cost 0.1 s
        number += 1


def _ruins_the_process(error: Exception | None) -> bool:
    """Out of memory, or a device error, after which the device may be in any state."""
    import torch

    return isinstance(error, MemoryError | torch.OutOfMemoryError | torch.AcceleratorError)


def _renew_process_group(number: int) -> None:
    """A fresh group: in the old one the ranks may have left different collectives unfinished."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    store = PrefixStore(f"after-{number}", _get_default_store())
    dist.destroy_process_group()
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)


class Lane:
    """The driver's side of a lane. Its workers come up in the background."""

    def __init__(self, shape: Shape, mailbox: ActorHandle[Mailbox]) -> None:
        self._id = f"lane-{uuid.uuid4().hex[:8]}"
        self._mailbox, self._shape = mailbox, shape
        self.trials = 0
        self._thread = threading.Thread(target=self._fit, name=self._id, daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it takes trials."""
        return self._thread.is_alive()

    def start(self, job: TrialJob) -> None:
        """Hand the lane its next trial; it begins when the one before has ended."""
        self.trials += 1
        self._mailbox.submit.remote(self._id, job)

    def retire(self) -> None:
        """Take no further trial, and leave."""
        self._mailbox.submit.remote(self._id, None)

    def join(self) -> None:
        """Wait until it has left; bounded."""
        self._thread.join(_CLOSE_S)

    def _fit(self) -> None:
        given = {"mailbox": self._mailbox, "lane": self._id}
        reason = "the workers left before the trial ended"
        try:
            fit(lane_loop, given, self._shape, run_config(self._id, self._shape.folder))
        except Exception as e:  # noqa: BLE001 - told to whoever waits for its trials
            reason = describe(e)
        self._mailbox.lane_gone.remote(self._id, reason)
