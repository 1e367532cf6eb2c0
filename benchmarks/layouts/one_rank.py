"""FSDP2 on one rank: its overhead, where there is nobody to share weights with."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from benchmarks.training.case import Case
from benchmarks.training.contenders import Stopped, Windows, trial_job
from benchmarks.training.problems import Problem
from search_spaces.layout import Layout
from trainables.parallel.mesh import Mesh
from trainables.registry import resolve
from trainables.runtime.seeding import isolated_rng
from trainables.worker import Worker


class OneRank(Mesh):
    """The only rank, whose weights FSDP2 has as if others had a part of them."""

    @property
    def is_sharded(self) -> bool:
        """It is, in a mesh of one rank."""
        return True

    @property
    def device_mesh(self) -> DeviceMesh:
        """One rank of `dp_shard`."""
        if self._device_mesh is None:
            kind = self.device.type if self.device else "cpu"
            self._device_mesh = init_device_mesh(kind, (1,), mesh_dim_names=("dp_shard",))
        return self._device_mesh


def ours_sharded(
    case: Case, folder: Path, windows: Windows, problem: Problem, device: torch.device
) -> None:
    """The public trainable by the code of `dp_shard`; takes a process group of one rank."""
    job = trial_job(case, folder)
    trainable = resolve(job.trainable)
    with isolated_rng(job.seed, 0, device):
        worker = Worker(job, windows, device)
        worker.mesh = OneRank(Layout(), 0, device)
        worker.begin(trainable.source())
        try:
            trainable.train(trainable.Config.model_validate(job.config), worker)
        except Stopped:
            return
        finally:
            worker.close()
