"""Limits a worker to its share of a GPU: with `gpus_per_worker: 0.25` four share a device.

Ray does not enforce the share. So each process limits its allocator and, if NVIDIA's MPS is
running, the part of the multiprocessors that its kernels use. From a worker with no GPU, Ray does
not hide the devices: it would train on the first one, beside the trials that hold it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PIPES, THREADS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_DEFAULT_PIPES = "/tmp/nvidia-mps"
VISIBLE = "CUDA_VISIBLE_DEVICES"
CONTEXT = 1.3 * 2**30
"""Bytes of a device that a process holds beside its tensors: CUDA's context and libraries 0.7 GiB,
a communicator of NCCL 0.5 GiB (torch 2.11, H100)."""
BACKEND = "gloo"
"""For ranks that may share a device: NCCL refuses two ranks of a group on one GPU."""


def is_shared(gpus_per_worker: float) -> bool:
    """Whether workers share devices."""
    return 0 < gpus_per_worker < 1


def mps_is_running() -> bool:
    """Whether NVIDIA's MPS lets the processes of this machine compute on a GPU side by side."""
    return Path(os.environ.get(_PIPES, _DEFAULT_PIPES)).exists()


def limit_compute(gpus_per_worker: float) -> None:
    """Limit this process to its share of the multiprocessors, if MPS is running.

    Call it before CUDA starts. A limit that the environment has already is kept.
    """
    if is_shared(gpus_per_worker) and mps_is_running():
        os.environ.setdefault(THREADS, f"{100 * gpus_per_worker:g}")


def limit_memory(gpus_per_worker: float, device: torch.device) -> None:
    """Limit this process to its share of the device's memory, less what it holds beside tensors.

    If it allocates more, torch raises `OutOfMemoryError`.
    """
    if is_shared(gpus_per_worker) and device.type == "cuda":
        import torch

        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(tensors_share(gpus_per_worker, total), device)


def tensors_share(gpus_per_worker: float, total: int) -> float:
    """The part of a device's memory that the tensors of a process may have.

    Args:
        total: memory of the device, bytes.
    """
    return max(gpus_per_worker - CONTEXT / total, gpus_per_worker / 2)


def wait_for_device(device: torch.device) -> None:
    """Wait for the kernels that this process started.

    Raises:
        RuntimeError: one of them failed; the process cannot use the device again.
    """
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
