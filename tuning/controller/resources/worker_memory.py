"""The memory of one worker, for `resources.layout: auto`."""

from __future__ import annotations

import functools
import shutil
import subprocess
from dataclasses import dataclass

from search_spaces.spec.resources import ResourcesSpec
from trainables.runtime.gpu_share import tensors_share

_LIST_GPUS = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
_ANSWER_S = 30.0


@dataclass(frozen=True)
class WorkerMemory:
    """What a worker has for the tensors of a training step.

    Attributes:
        bytes: of them.
        on_gpu: whether it is a GPU's.
    """

    bytes: int
    on_gpu: bool

    def __str__(self) -> str:
        return gib(self.bytes)


def gib(num_bytes: int) -> str:
    """Memory in words."""
    return f"{num_bytes / 2**30:.3g} GiB" if num_bytes >= 2**28 else f"{num_bytes / 2**20:.3g} MiB"


def worker_memory(resources: ResourcesSpec) -> WorkerMemory | None:
    """As the sweep file says it; else that of the smallest GPU of this machine, or of a part of it.

    Of a GPU, CUDA and NCCL take some. None: neither is known.
    """
    share = resources.gpus_per_worker
    gpus = () if share == 0 else gpu_memories()
    on_gpu = bool(gpus) if share == "auto" else share > 0
    if resources.memory_per_worker is not None:
        return WorkerMemory(int(resources.memory_per_worker * 2**30), on_gpu)
    if not gpus:
        return None
    total = min(gpus)
    part = 1.0 if share == "auto" else min(1.0, share)
    return WorkerMemory(int(tensors_share(part, total) * total), on_gpu)


@functools.cache
def gpu_memories() -> tuple[int, ...]:
    """Bytes of each GPU of this machine, without a start of CUDA in this process."""
    if shutil.which(_LIST_GPUS[0]) is None:
        return ()
    try:
        output = subprocess.run(
            _LIST_GPUS, capture_output=True, text=True, timeout=_ANSWER_S, check=True
        ).stdout
        return tuple(int(line) * 2**20 for line in output.split())
    except (OSError, subprocess.SubprocessError, ValueError):  # no driver, or `[N/A]`
        return ()
