"""A lane's worker: runs trial after trial from the mailbox, in one process.

Processes, imports, process group and prepared data stay; everything of a trial goes with it
(see `trainables.runtime.global_state`), and a lane in which memory stays behind is given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from results.records.trial import Report
from trainables.job import Answer, TrialJob
from trainables.launch.broker import Broker
from trainables.launch.ray_train import in_one_line, this_machine
from trainables.launch.run_trial import output_to, run_trial
from trainables.launch.trial_outcome import Next, Outcome
from trainables.runtime.gpu_share import before_cuda, limit_memory
from trainables.runtime.memory import LeakDetector
from trainables.runtime.preemption import Preempted, install_sigterm_handler_deferred

if TYPE_CHECKING:
    import torch
    from ray.actor import ActorHandle


@dataclass(frozen=True)
class LaneTask:
    """What the workers of a lane are told when they start.

    Attributes:
        lane: its id in the mailbox.
        gpus_per_worker: below 1, the part of a device that each may take.
        max_growth: bytes beyond the baseline that are not called a leak.
    """

    lane: str
    broker: ActorHandle[Broker]
    gpus_per_worker: float
    max_growth: int


@dataclass(frozen=True)
class BrokerChannel:
    """Rank 0's side of the mailbox, for one attempt."""

    broker: ActorHandle[Broker]
    key: str

    def report(self, report: Report) -> Answer:
        """Report and wait for the driver's answer."""
        import ray

        answer: Any = ray.get(self.broker.report.remote(self.key, report))
        return Answer(answer)


def lane_loop(config: dict[str, Any]) -> None:
    """The train loop of every worker of a lane: run the mailbox's trials until it says None."""
    import ray
    import ray.train
    from ray.train.torch import get_device
    from ray.util.placement_group import get_current_placement_group

    task: LaneTask = config["task"]
    before_cuda(task.gpus_per_worker)
    device, at = get_device(), ray.train.get_context()
    limit_memory(task.gpus_per_worker, device)
    rank, world, number = at.get_world_rank(), at.get_world_size(), 0
    task.broker.hold_lane.remote(task.lane, rank, this_machine(), get_current_placement_group())
    install_sigterm_handler_deferred()
    gauge = LeakDetector(device, task.max_growth)
    while (job := _next(task, number)) is not None:
        channel = BrokerChannel(task.broker, job.key)
        error = _run(job, channel, device, rank, world, at.get_local_rank())
        outcome = Outcome(
            None if error is None else in_one_line(error),
            fatal=_ruins_the_process(error),
            leak=gauge.after_trial(failed=error is not None),
        )
        then: Any = ray.get(task.broker.settle.remote(task.lane, job.key, rank, world, outcome))
        if then is Next.RETIRE:
            return
        if then is Next.LEAVE:
            raise error or RuntimeError("another rank of the trial failed")
        if world > 1 and then is Next.RENEW:
            _renew_process_group(number)
        number += 1


def _next(task: LaneTask, number: int) -> TrialJob | None:
    import ray

    job: Any = task.broker.job.remote(task.lane, number)
    return cast("TrialJob | None", ray.get(job))


def _run(
    job: TrialJob,
    channel: BrokerChannel,
    device: torch.device,
    rank: int,
    world: int,
    local: int,
) -> Exception | None:
    """Train one trial; gives what it raised, without the frames, which hold its model."""
    try:
        with output_to(job.paths.log(job.attempt, rank)):
            run_trial(job, channel, device, rank=rank, world_size=world, local_rank=local)
    except Exception as e:  # noqa: BLE001 - the trial's failure, not the lane's
        e.__cause__ = e.__context__ = None
        return e.with_traceback(None)
    return None


def _ruins_the_process(error: Exception | None) -> bool:
    """Out of memory, a device error, after which the device may be in any state, or a SIGTERM."""
    import torch

    ends = MemoryError | torch.OutOfMemoryError | torch.AcceleratorError | Preempted
    return isinstance(error, ends)


def _renew_process_group(number: int) -> None:
    """A fresh group: in the old one the ranks may have left different collectives unfinished."""
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    rank, world, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    store = PrefixStore(f"after-{number}", _get_default_store())
    dist.destroy_process_group()
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
