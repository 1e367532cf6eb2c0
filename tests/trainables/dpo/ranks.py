"""One of two gloo ranks, as a process: `python -m tests.trainables.dpo.ranks RANK FOLDER`.

Rank 0 prints the curve of each loss as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.trainables.examples import EXAMPLES
from tests.trainables.local import run_trial

LOSSES = ("orpo", "kto")
CONFIG: dict[str, Any] = {**EXAMPLES["dpo"].config, "max_steps": 4, "micro_batch_size": 1}


def curves(folder: Path, **ranks: int) -> dict[str, dict[str, dict[str, float]]]:
    """The metrics of each loss by step."""
    found = {}
    for loss in LOSSES:
        given = {**CONFIG, "loss": loss}
        curve = run_trial(folder / loss, "dpo", given, cache=folder / "cache", **ranks).curve
        found[loss] = {str(step): metrics for step, metrics in curve.items()}
    return found


if __name__ == "__main__":
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    found = curves(folder, rank=rank, world_size=2)
    if rank == 0:
        sys.stdout.write(json.dumps(found))
    dist.destroy_process_group()
