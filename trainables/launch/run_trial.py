"""Runs one trial on this rank: in a lane, under torchrun, or alone in this process."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.storage.log_filter import filtered_log, no_core_dumps
from results.storage.sharing import use_modes_of
from search_spaces.errors import UserError
from trainables.job import Channel, TrialJob
from trainables.parallel.mesh import Mesh
from trainables.registry import resolve
from trainables.runtime.preemption import install_sigterm_handler
from trainables.runtime.seeding import isolated_rng
from trainables.user_code.frames import note_user_lines
from trainables.worker import Worker

if TYPE_CHECKING:
    import torch


def run_trial(
    job: TrialJob,
    channel: Channel,
    device: torch.device,
    *,
    rank: int = 0,
    world_size: int = 1,
    local_rank: int = 0,
    watch: Callable[[Worker], None] = lambda worker: None,
    on_report: Callable[[], None] = lambda: None,
    train: Callable[[Worker], None] | None = None,
) -> None:
    """Train one trial to its end, or until its channel answers otherwise.

    Random generators, torch's settings and the environment are restored afterwards. An exception
    of the trainable is raised as it is. torch.distributed must be initialised when
    `world_size > 1`. `watch` is called with the worker before the training, and `on_report` when a
    report begins on this rank. `train` takes the place of the trainable's method.
    """
    trainable = resolve(job.trainable)
    config = trainable.Config.model_validate(job.config)
    if trainable.runs_on_mps and world_size == 1:  # gloo does not take its tensors
        device = mps_instead_of_cpu(device)
    # ranks with the same samples draw the same numbers: dropout keeps their copies equal
    part = Mesh(job.layout_on(world_size), rank).dp_rank
    with isolated_rng(job.seed, part, device):
        worker = Worker(job, channel, device, rank, world_size, local_rank, on_report)
        worker.begin(trainable.source(), trainable.device_meter(device))
        watch(worker)
        try:
            if train is None:
                trainable.train(config, worker)
            else:
                train(worker)
        finally:
            worker.close()


def mps_instead_of_cpu(device: torch.device) -> torch.device:
    """Apple's GPU if there is one and `device` is the CPU; else `device`."""
    import torch

    mps = device.type == "cpu" and torch.backends.mps.is_available()
    return torch.device("mps") if mps else device


def run_local(
    job: TrialJob, channel: Channel, watch: Callable[[Worker], None] = lambda worker: None
) -> None:
    """Train a trial in this process without Ray; under torchrun every rank calls this.

    See `run_trial`.

    Raises:
        UserError: the trainable starts workers of Ray Train, which needs Ray.
        Preempted: a rank got a SIGTERM; the trial has a complete checkpoint.
    """
    import torch
    import torch.distributed as dist

    trainable = resolve(job.trainable)
    if trainable.uses_ray_train:
        raise UserError(
            f"trainable {job.trainable}: a {trainable.kind} runs under Ray only; "
            "try tune run FILE --set budget.trials=1"
        )
    rank, world_size, local_rank = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    # one rank has a group, too, as a lane of one worker: loops use it
    store = None if world_size > 1 else dist.HashStore()  # type: ignore[attr-defined]
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    restore = install_sigterm_handler()
    try:
        ranks: dict[str, Any] = {"rank": rank, "world_size": world_size, "local_rank": local_rank}
        run_trial(job, channel, device, **ranks, watch=watch)
    finally:
        restore()
        if dist.is_initialized():  # a loop may have ended it
            dist.destroy_process_group()


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Redirect this process's stdout and stderr, also of C++ libraries, to a file in this block.

    An exception that leaves the block is written to the file with its traceback, and keeps the
    user's lines in it as a note. Secrets are replaced on the way to the file.
    """
    use_modes_of(log.parent)
    log.parent.mkdir(parents=True, exist_ok=True)
    with no_core_dumps(), filtered_log(log) as output:
        saved = [os.dup(fd) for fd in (1, 2)]
        try:
            for fd in (1, 2):
                os.dup2(output, fd)
            yield
        except BaseException as e:
            os.write(output, traceback.format_exc().encode())
            note_user_lines(e)
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for fd, old in zip((1, 2), saved, strict=True):
                os.dup2(old, fd)
                os.close(old)
