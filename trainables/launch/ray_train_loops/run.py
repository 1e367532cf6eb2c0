"""Runs a function that builds a trainer of Ray Train, with the trainer's own workers.

On the workers the loop is a trial as on a lane; only its data sets, backend and callbacks are those
of the trainer. Stopping a trial ends its processes.
"""

from __future__ import annotations

import shutil
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

from results.records.reports import read_reports
from results.storage.log_filter import start_log_filter
from search_spaces.redaction import also_redact
from trainables.job import TrialJob
from trainables.launch.broker.broker import Broker
from trainables.launch.broker.events import Ended, Event, Failed, Reported
from trainables.launch.broker.rank_reports import ReportCounter
from trainables.launch.errors import describe_failure, without_secrets
from trainables.launch.lanes.trainer import needed_callbacks
from trainables.launch.lanes.worker import BrokerChannel
from trainables.launch.ray_train import (
    TrainWorker,
    WorkerGroupSpec,
    over_node_network,
    run_config,
    scaling_config,
    set_environment,
)
from trainables.launch.run_trial import output_to, run_trial
from trainables.user_code.loader import load, user_modules
from trainables.user_code.private_folders import enter_private_folders
from trainables.user_code.user_trainer import adopt_trainers, own_loop, refuse_fit

if TYPE_CHECKING:
    from ray.actor import ActorHandle


def trainer_worker(config: dict[str, Any]) -> None:
    """Run the trainer's loop on this worker, with its output in the trial's log."""
    from ray.train.v2._internal.execution.train_fn_utils import get_train_fn_utils

    from trainables.user_code.ray_train.session import run_loop

    job: TrialJob = config["job"]
    broker: Any = config["broker"]
    also_redact(job.redact)
    own = TrainWorker.begin(config["gpus_per_worker"], config["notices"])
    broker.register_worker.remote(job.key, own.rank, own.machine, own.group)
    join_group(own)
    counter = ReportCounter(broker, job.key, own.rank, own.world_size)
    train = partial(run_loop, loop=partial(own_loop, config), own=get_train_fn_utils())
    ranks = {n: getattr(own, n) for n in ("rank", "world_size", "local_rank")}
    try:
        with counter as reports, output_to(job.paths.log(job.attempt, own.rank)):
            channel = BrokerChannel(broker, job.key)
            run_trial(job, channel, own.device, **ranks, on_report=reports.count, train=train)
        reports.wait_for_ranks()
    except Exception as e:
        if (shown := without_secrets(e)) is e:
            raise
        raise shown from None


def join_group(own: TrainWorker) -> None:
    """Form a process group of the workers, by which their reports are one, unless there is one.

    Backends for other libraries than torch start none.
    """
    import torch.distributed as dist
    from ray.train import collective
    from ray.util import get_node_ip_address

    if dist.is_initialized() or own.world_size == 1:
        return
    here = get_node_ip_address()
    with socket.create_server((here, 0)) as free:
        address = f"tcp://{here}:{free.getsockname()[1]}"
    url = collective.broadcast_from_rank_zero(address)
    dist.init_process_group("gloo", init_method=url, rank=own.rank, world_size=own.world_size)


class AttemptRunner:
    """One attempt: an actor of its own, so that killing it ends all processes of the attempt."""

    def __init__(self, spec: WorkerGroupSpec) -> None:
        self._spec = spec

    def fit(self, job: TrialJob, broker: ActorHandle[Broker]) -> None:
        """Run the attempt to its end, and post how it ended."""
        import ray

        event: Event = Ended()
        try:
            self._call_driver(job, broker)
        except Exception as e:  # noqa: BLE001 - sent to the driver
            event = Failed(describe_failure(e))
        reports = read_reports(job.paths)
        is_last = bool(reports) and reports[-1].attempt == job.attempt and job.is_last(reports[-1])
        for each in (*([Reported(reports[-1])] if is_last else []), event):  # see `LastReport`
            posted: Any = broker.post_event.remote(job.key, each)
            ray.get(posted)  # Ray does not keep the order of calls

    def _call_driver(self, job: TrialJob, broker: ActorHandle[Broker]) -> None:
        spec = self._spec
        task = {
            "job": job,
            "broker": broker,
            "gpus_per_worker": spec.gpus_per_worker,
            "notices": spec.notices,
        }
        from ray.train import CheckpointConfig

        start_fewer_actors()
        enter_private_folders(job.paths)
        start_log_filter()
        run = run_config(
            job.paths.ray_train_attempt(job.attempt).name,
            str(job.paths.ray_train),
            checkpoint_config=CheckpointConfig(num_to_keep=1),  # the sweep has its own
        )
        with output_to(job.paths.attempt(job.attempt) / "driver.log"):
            with refuse_fit():
                driver = load(job.trainable)
            set_environment(spec, check_s=0.2)
            scaling, backend = scaling_config(spec), partial(over_node_network, spec=spec)
            own = list(user_modules(job.trainable).values())
            try:
                with adopt_trainers(trainer_worker, task, run, scaling, backend, own):
                    driver(job.config)
            finally:  # its copy of the newest checkpoint was for the driver only
                shutil.rmtree(job.paths.ray_train_attempt(job.attempt), ignore_errors=True)


def start_fewer_actors() -> None:
    """Make Ray Train start two actors less for each run of this process.

    The one that frees the placement group of a killed run asks the State API for ever where only
    `ray[default]` would serve it; `FreshWorkerPool` frees the group. The one for data sets is left
    out where there are none.
    """
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    trainer: Any = DataParallelTrainer
    original = trainer._initialize_and_run_controller

    def run(self: DataParallelTrainer, *, callbacks: list[Any], **settings: Any) -> Any:
        needed = needed_callbacks(callbacks, bool(self.datasets))
        return original(self, callbacks=needed, **settings)

    trainer._initialize_and_run_controller = run
