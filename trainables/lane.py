"""A lane: one long-lived `TorchTrainer` whose workers run trial after trial from a mailbox.

Processes, imports, process group and prepared data stay; everything of a trial goes with it
(see `trainables.base.Trainable`). Only its first trial pays for the start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from results.records import Report
from trainables.fit import Fit, Shape, TrialError, run_config
from trainables.mailbox import Ended, Event, Mailbox, Ready, Reported
from trainables.run import output_to, run_trial
from trainables.worker import Answer, TrialJob

if TYPE_CHECKING:
    from ray.actor import ActorHandle

_CLOSE_S = 20.0


@dataclass(frozen=True)
class MailboxChannel:
    """Rank 0's side of a lane's mailbox."""

    mailbox: ActorHandle[Mailbox]
    lane: str

    def report(self, report: Report) -> Answer:
        """Report and wait for the driver's answer."""
        import ray

        answer: Any = ray.get(self.mailbox.report.remote(self.lane, report))
        return Answer(answer)


def lane_loop(config: dict[str, Any]) -> None:
    """The train loop of every worker of a lane: run the mailbox's trials until it says None."""
    import ray
    import ray.train
    import torch.distributed as dist
    from ray.train.torch import get_device

    mailbox, lane = config["mailbox"], config["lane"]
    at = ray.train.get_context()
    rank, world, local = at.get_world_rank(), at.get_world_size(), at.get_local_rank()
    channel, device, number = MailboxChannel(mailbox, lane), get_device(), 0
    event: Event = Ready()
    while True:
        if world > 1:
            dist.barrier()
        if rank == 0:
            ray.get(mailbox.post.remote(lane, event))
        job = ray.get(mailbox.job.remote(lane, number))
        if job is None:
            return
        with output_to(job.paths.log(job.attempt, rank)):
            run_trial(job, channel, device, rank=rank, world_size=world, local_rank=local)
        number, event = number + 1, Ended()


class Lane:
    """The driving side of a lane; see `trainables.fit.Runner`."""

    def __init__(self, shape: Shape, mailbox: ActorHandle[Mailbox]) -> None:
        self._fit = Fit(shape, mailbox)
        given = {"mailbox": mailbox, "lane": self._fit.id}
        self._fit.run(lane_loop, given, run_config(self._fit.id, shape.folder))

    def start(self, job: TrialJob) -> None:
        """Hand the lane its next trial."""
        self._fit.call("submit", job)

    def next_event(self) -> Reported | Ended:
        """Wait for the trial's next event."""
        event = self._fit.next_event()
        if event is None:
            raise TrialError("the lane's workers left without finishing the trial")
        return event

    def answer(self, answer: Answer) -> None:
        """Answer the last report."""
        self._fit.call("answer", answer)

    def close(self) -> None:
        """Tell the workers to leave, and wait for it."""
        if self._fit.alive:
            self._fit.call("submit", None)
            self._fit.join(_CLOSE_S)
        self._fit.call("forget")
