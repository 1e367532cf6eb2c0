"""Runs one trial in this process, without Ray: alone, or as one rank under torchrun."""

from __future__ import annotations

import os

from search_spaces.errors import UserError
from trainables.job import Channel, TrialJob
from trainables.launch.run_trial import run_trial
from trainables.registry import resolve
from trainables.runtime.preemption import install_sigterm_handler


def run_local(job: TrialJob, channel: Channel) -> None:
    """Train a trial here; under torchrun every rank calls this.

    Raises:
        UserError: the trainable is a loop for Ray Train, which runs only under Ray.
        Preempted: a rank got a SIGTERM; the trial has a whole checkpoint.
    """
    import torch
    import torch.distributed as dist

    trainable = resolve(job.trainable)
    if trainable.uses_ray_train:
        raise UserError(
            f"trainable {job.trainable}: a {trainable.kind} runs under Ray only; "
            "try tune run FILE --set budget.trials=1"
        )
    rank, world, local = (
        int(os.environ.get(name, default))
        for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
    )
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if world > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    restore = install_sigterm_handler()
    try:
        run_trial(job, channel, device, rank=rank, world_size=world, local_rank=local)
    finally:
        restore()
        if world > 1:
            dist.destroy_process_group()
