"""A lane's worker: runs trial after trial from the broker, in one process.

Processes, imports, process group and prepared data stay; everything else of a trial is undone
after it (see `trainables.runtime.seeding`). A lane in which memory stays behind is retired.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, cast

from results.paths import SweepPaths
from results.records.trial import Report
from search_spaces.redaction import also_redact, redact
from search_spaces.spec.failure import Notices
from trainables.job import Answer, Pruned, TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import LaneAction, RankOutcome
from trainables.launch.broker.rank_reports import ReportCounter, ask
from trainables.launch.errors import error_line, without_secrets
from trainables.launch.ray_train import TrainWorker
from trainables.launch.run_trial import output_to, run_trial
from trainables.registry import resolve
from trainables.runtime.gpu_share import wait_for_device
from trainables.runtime.leftovers import KEPT, LeakDetector, Leftovers
from trainables.runtime.preemption import Preempted, install_sigterm_handler_deferred

if TYPE_CHECKING:
    import torch
    from ray.actor import ActorHandle


@dataclass(frozen=True)
class LaneTask:
    """The settings that the workers of a lane get at their start.

    Attributes:
        lane_id: its name in the broker.
        gpus_per_worker: below 1, the part of a device that each worker may use.
        max_growth: bytes beyond the baseline that do not count as a leak.
        preload: a trainable to import before the first trial; empty for none.
        process_group_timeout_s: after which a collective fails.
        notices: see `watch_node`.
    """

    lane_id: str
    broker: ActorHandle[Broker]
    gpus_per_worker: float
    max_growth: int
    preload: str = ""
    process_group_timeout_s: float = 1800.0
    notices: Notices = "auto"


@dataclass(frozen=True)
class BrokerChannel:
    """Rank 0's connection to the broker, for one attempt."""

    broker: ActorHandle[Broker]
    key: str

    def report(self, report: Report) -> Answer:
        """Report and wait for the driver's answer."""
        return Answer(ask(self.broker.report.remote, self.key, report))


def lane_loop(config: dict[str, Any]) -> None:
    """The train loop of every worker of a lane: run trials from the broker until it sends None."""
    task: LaneTask = config["task"]
    worker, number = TrainWorker.begin(task.gpus_per_worker, task.notices), 0
    rank, world_size, device = worker.rank, worker.world_size, worker.device
    task.broker.register_lane_worker.remote(task.lane_id, rank, worker.machine, worker.group)
    install_sigterm_handler_deferred()
    if task.preload:
        _preload(task.preload, world_size)
    leak_detector, sweep, group = LeakDetector(device, task.max_growth), None, _Group.of(task)
    failed_before = False
    take = partial(ask, task.broker.take_job.remote, task.lane_id)
    while (job := cast("TrialJob | None", take(number))) is not None:
        before, sweep = sweep, SweepPaths.of_trial(job.paths)
        if before not in (None, sweep):  # another one may hold more from its first trial
            leak_detector = LeakDetector(device, task.max_growth)
            KEPT.keep(None, None)
        is_known, before_trial = resolve(job.trainable).is_known, Leftovers()
        error = _run(job, task.broker, worker)
        outcome = _outcome(error, device, leak_detector)
        if not is_known:
            is_suspect = number > 0 and not failed_before
            outcome = _of_unknown_code(outcome, before_trial, is_suspect=is_suspect)
        failed_before = failed_before or error is not None
        action = ask(
            task.broker.finish_trial.remote, task.lane_id, job.key, rank, world_size, outcome
        )
        if action is LaneAction.RETIRE:
            return
        if action is LaneAction.ABORT:
            raise without_secrets(error or RuntimeError("another rank of the trial failed"))
        if action is LaneAction.RENEW_GROUP:
            group.renew(number)
        number += 1


def _preload(trainable: str, world_size: int) -> None:
    """Import and hash what the first trial needs; an error is raised again in that trial."""
    with suppress(Exception, SystemExit):
        found = resolve(trainable)
        needed = ("torch._dynamo",) if found.is_known or world_size > 1 else ()  # DDP imports it
        for module in (*needed, *found.modules):
            with suppress(Exception, SystemExit):
                import_module(module)
        found.source()


def _run(job: TrialJob, broker: ActorHandle[Broker], own: TrainWorker) -> Exception | None:
    """Train one trial; returns its exception without the frames, which would keep its model."""
    also_redact(job.redact)
    channel = BrokerChannel(broker, job.key)
    counter = ReportCounter(broker, job.key, own.rank, own.world_size)
    ranks = {n: getattr(own, n) for n in ("rank", "world_size", "local_rank")}
    try:
        with counter as reports, output_to(job.paths.log(job.attempt, own.rank)):
            run_trial(job, channel, own.device, **ranks, on_report=reports.count)
            wait_for_device(own.device)  # an error of its last kernels is this trial's
            reports.wait_for_ranks()
    except Exception as e:  # noqa: BLE001 - the trial's failure, not the lane's
        e.__cause__ = e.__context__ = None
        return e.with_traceback(None)
    return None


def _of_unknown_code(outcome: RankOutcome, before: Leftovers, *, is_suspect: bool) -> RankOutcome:
    """Also what the trial left behind, and whether its failure may be due to an earlier trial."""
    failed = outcome.failure if is_suspect and not outcome.fatal else None
    again = f"failed where another trial had run: {failed}" if failed else None
    return replace(
        outcome,
        leak=again or before.find() or outcome.leak,
        again=failed is not None,
        renew=before.has_lost_group,
    )


def _outcome(
    error: Exception | None, device: torch.device, leak_detector: LeakDetector
) -> RankOutcome:
    fatal, gave_up = _is_fatal(error, device), isinstance(error, Pruned)
    return RankOutcome(
        None if error is None or gave_up else error_line(error),
        fatal=fatal,
        leak=None if fatal else leak_detector.after_trial(failed=error is not None),
        pruned=redact(str(error)) if gave_up else "",
    )


def _is_fatal(error: Exception | None, device: torch.device) -> bool:
    """Whether no other trial may run here: out of memory, a SIGTERM, or a device that fails.

    After an error of a kernel every later call fails, also where the trial raised another error.
    A collective of NCCL that a rank has left unfinished blocks its device.
    """
    import torch
    import torch.distributed as dist

    if error is None:
        return False
    is_group = dist.is_initialized() and dist.get_world_size() > 1
    if is_group and dist.get_backend() == dist.Backend.NCCL:
        return True
    try:
        wait_for_device(device)
    except RuntimeError:
        return True
    fatal = MemoryError | torch.OutOfMemoryError | torch.AcceleratorError | Preempted
    return isinstance(error, fatal)


@dataclass(frozen=True)
class _Group:
    """The process group of a lane's workers, as it was made."""

    store: Any
    backend: str
    rank: int
    world_size: int
    timeout: timedelta

    @classmethod
    def of(cls, task: LaneTask) -> Self:
        """The one that there is now."""
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_default_store

        timeout = timedelta(seconds=task.process_group_timeout_s)
        ranks = dist.get_rank(), dist.get_world_size()
        return cls(_get_default_store(), dist.get_backend(), *ranks, timeout)

    def renew(self, number: int) -> None:
        """Create a new one: ranks may have left different collectives unfinished in the old one."""
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import PrefixStore

        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group(
            self.backend,
            store=PrefixStore(f"after-{number}", self.store),
            rank=self.rank,
            world_size=self.world_size,
            timeout=self.timeout,
        )
