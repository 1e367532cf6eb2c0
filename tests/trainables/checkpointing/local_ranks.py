"""One of two ranks with disks of their own, as a process: trains `Own`, cut in two parts.

python -m tests.trainables.checkpointing.local_ranks RANK FOLDER ATTEMPT DISK
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from results.trial_paths import TrialPaths
from search_spaces.spec.layout import LayoutSpec
from tests.trainables.local import run_trial

WORLD = 2


def main(rank: int, folder: Path, attempt: int, disk: str) -> None:
    torch.set_num_threads(1)
    store, timeout = f"file://{folder / f'rendezvous_{attempt}'}", timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=WORLD, timeout=timeout)
    if rank == 0:
        TrialPaths(folder / "trial").attempt(attempt).mkdir(parents=True)
    dist.barrier()
    run_trial(
        folder / "trial",
        "tests.trainables.parallel.own:Own",
        {},
        rank=rank,
        world_size=WORLD,
        attempt=attempt,
        checkpoint_every=1,
        layout=LayoutSpec(dp_shard=WORLD),
        local=str(folder / f"{disk}_{rank}"),
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
