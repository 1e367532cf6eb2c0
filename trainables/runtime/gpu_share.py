"""A worker's part of a GPU that it shares: lanes with `gpus_per_worker: 0.25` are four on a device.

Ray only counts fractions. That nobody takes more is up to each process: its allocator gets a
limit and, where NVIDIA's MPS is on, its kernels get a part of the multiprocessors.
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
"""Of ranks that may share a device: NCCL refuses two ranks of a group on one GPU."""


def is_shared(gpus_per_worker: float) -> bool:
    """Whether workers share devices."""
    return 0 < gpus_per_worker < 1


def before_cuda(gpus_per_worker: float) -> None:
    """What has to be said before CUDA starts in this process: its part of the compute, under MPS.

    What the environment says already is left as it is.
    """
    pipes = Path(os.environ.get(_PIPES, _DEFAULT_PIPES))
    if is_shared(gpus_per_worker) and pipes.exists():
        os.environ.setdefault(_THREADS, f"{100 * gpus_per_worker:g}")


def limit_memory(gpus_per_worker: float, device: torch.device) -> None:
    """Let this process allocate its part of the device's memory and no more.

    Beyond it torch raises `OutOfMemoryError`, in the process that asks for too much.
    """
    if is_shared(gpus_per_worker) and device.type == "cuda":
        import torch

        torch.cuda.set_per_process_memory_fraction(gpus_per_worker, device)
