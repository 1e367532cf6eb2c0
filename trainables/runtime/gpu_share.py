"""Limits a worker to its share of a GPU: with `gpus_per_worker: 0.25` four share a device.

Ray does not enforce the share. So each process limits its allocator and, if NVIDIA's MPS is
running, the part of the multiprocessors that its kernels use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PIPES, _THREADS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_DEFAULT_PIPES = "/tmp/nvidia-mps"
BACKEND = "gloo"
"""For ranks that may share a device: NCCL refuses two ranks of a group on one GPU."""


def is_shared(gpus_per_worker: float) -> bool:
    """Whether workers share devices."""
    return 0 < gpus_per_worker < 1


def limit_compute(gpus_per_worker: float) -> None:
    """Limit this process to its share of the multiprocessors, if MPS is running.

    Call it before CUDA starts. A limit that the environment has already is kept.
    """
    pipes = Path(os.environ.get(_PIPES, _DEFAULT_PIPES))
    if is_shared(gpus_per_worker) and pipes.exists():
        os.environ.setdefault(_THREADS, f"{100 * gpus_per_worker:g}")


def limit_memory(gpus_per_worker: float, device: torch.device) -> None:
    """Limit this process to its share of the device's memory.

    If it allocates more, torch raises `OutOfMemoryError`.
    """
    if is_shared(gpus_per_worker) and device.type == "cuda":
        import torch

        torch.cuda.set_per_process_memory_fraction(gpus_per_worker, device)
