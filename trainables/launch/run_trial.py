"""Runs one trial of ours on this rank: the same in a lane, under torchrun and without either."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from search_spaces.redaction import redact_file
from trainables.job import Channel, TrialJob
from trainables.registry import resolve
from trainables.runtime.seeding import isolated_rng
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
) -> None:
    """Train one trial to its end, or until it is told to stop.

    The process is left as it was: generators, torch's settings, environment. Whatever the
    trainable raises goes to the caller. torch.distributed must be up when `world_size > 1`.
    """
    trainable = resolve(job.trainable)
    config = trainable.Config.model_validate(job.config)
    with isolated_rng(job.seed, rank, device):
        worker = Worker(job, channel, device, rank, world_size, local_rank)
        worker.begin(trainable.source())
        try:
            trainable.train(config, worker)
        finally:
            worker.close()


@contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Send this process's stdout and stderr, also of C++ libraries, to a file for a while.

    An exception that passes through is written to the file with its traceback. Secrets are struck
    out of the file at the end, and what is written meanwhile is the user's alone.
    """
    os.umask(0o077)
    log.parent.mkdir(parents=True, exist_ok=True)
    saved = [os.dup(fd) for fd in (1, 2)]
    with open(log, "ab") as f:
        try:
            for fd in (1, 2):
                os.dup2(f.fileno(), fd)
            yield
        except BaseException:
            os.write(f.fileno(), traceback.format_exc().encode())
            raise
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for fd, old in zip((1, 2), saved, strict=True):
                os.dup2(old, fd)
                os.close(old)
            redact_file(log)
