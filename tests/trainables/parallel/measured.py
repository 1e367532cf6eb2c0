"""One rank of some layouts, as a process of its own: measures a step of each model on each layout.

    python -m tests.trainables.parallel.measured RANK WORLD FOLDER CASE...

Cases are those of `ranks`, like `llama/fsdp2`. The rank writes what it measured to FOLDER.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from search_spaces.spec.layout import LayoutSpec
from tests.trainables.local import RecordingChannel, make_job
from tests.trainables.parallel.ranks import LAYOUTS, MODELS, STEPS, folder_of
from trainables.causal_lm.simulation import measure
from trainables.job import TrialJob
from trainables.launch.run_trial import run_trial
from trainables.registry import resolve
from trainables.training.run import TrainingRun
from trainables.training.task import open_task
from trainables.worker import Worker
from tuning.evaluation.probe import Steps

BEFORE = 2
"""Steps before the one that is measured: DDP sends the order of its buckets in the second one."""


def measured_file(folder: Path, case: str, rank: int) -> Path:
    return folder / f"{folder_of(folder, case).name}_{rank}.json"


def footprint(folder: Path, case: str, rank: int, world: int) -> dict[str, Any]:
    """Of a step with real tensors, and with the other ranks."""
    model, _, layout = case.partition("/")
    name, given = MODELS[model]
    spec = LayoutSpec.model_validate(LAYOUTS[world][layout])
    job = make_job(
        folder_of(folder, case), name, given, layout=spec, workers=world, cache=folder / "cache"
    )
    if name == "distill":
        return {"peak": probed_peak(job, rank, world)}
    worker = Worker(job, RecordingChannel(), torch.device("cpu"), rank, world, rank)
    config: Any = resolve(name).Config.model_validate(given)
    task = open_task(config, worker.cache, worker=worker)
    run = TrainingRun(task, worker, task.new_model(), "")
    found = asdict(measure(run, before=BEFORE))
    worker.close()
    return found


def probed_peak(job: TrialJob, rank: int, world: int) -> int:
    """Bytes of the second step of a whole trial, as `tune probe` measures them."""
    steps = Steps(STEPS + 1)
    place = {"rank": rank, "world_size": world, "local_rank": rank}
    run_trial(job, RecordingChannel(), torch.device("cpu"), **place, watch=steps.watch)
    return steps.peak


def main(rank: int, world: int, folder: Path, *cases: str) -> None:
    torch.set_num_threads(1)
    store, timeout = f"file://{folder / f'rendezvous_{world}'}", timedelta(seconds=60)
    if world > 1:
        dist.init_process_group(
            "gloo", init_method=store, rank=rank, world_size=world, timeout=timeout
        )
    for case in cases:
        found = footprint(folder, case, rank, world)
        measured_file(folder, case, rank).write_text(json.dumps(found))
        if world > 1:
            dist.barrier()
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
