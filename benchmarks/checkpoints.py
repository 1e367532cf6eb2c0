"""The cost of checkpoints: how long training waits, bytes per second, and the time to resume.

    python -m benchmarks.checkpoints [--mib 200] [--rounds 7] [--folder DIR]

Saves the same model and AdamW state through `Worker.report` with `checkpoint.mode` sync and async,
writes the same tensors with safetensors' `save_file` and an fsync, and copies the same bytes with
`cp` and an fsync of each file. All run in one process and on one file system, in turns, so that
other load affects all of them; medians over the rounds. The async stall is the duration of
`report`; before the next save the benchmark waits until the first one is complete, as a long enough
training step would. The first save of a trial allocates its memory and is shown separately.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.records.trial import Report
from results.trial_paths import TrialPaths
from trainables.checkpointing.saver import DeferredWrite, SaveFn, in_parallel
from trainables.checkpointing.tensor_file import write_tensors
from trainables.checkpointing.training_state import copy_tree, copy_weights
from trainables.job import Answer, TrialJob
from trainables.training.checkpoint import copy_progress, load_progress
from trainables.worker import Worker

WIDTH = 1024


class NullClient:
    """Ignores reports and continues every trial."""

    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=200, help="size of a checkpoint")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=None, help="default: a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        measure(Path(name), given.mib, given.rounds)


def measure(folder: Path, mib: int, rounds: int) -> None:
    model, optimizer = make_model(mib)
    workers = {mode: make_worker(folder / mode, mode) for mode in ("sync", "async")}
    saves = {mode: saver(worker, model, optimizer) for mode, worker in workers.items()}
    first = {mode: save(workers[mode], saves[mode], 1) for mode in workers}
    found = newest_intact(TrialPaths(folder / "sync"))
    assert found is not None
    size = sum(entry.size for entry in found.manifest.files.values())
    plain = plain_save(model, optimizer)
    seconds: dict[str, list[float]] = defaultdict(list)
    for step in range(2, rounds + 2):
        for mode, worker in workers.items():
            stall, whole = save(worker, saves[mode], step)
            seconds[mode].append(stall)
            seconds[f"{mode}, on the disk"].append(whole)
        seconds["save_file"].append(timed(plain, folder / "plain"))
        source = workers["sync"].job.paths.checkpoint(step)
        seconds["cp"].append(
            timed(lambda target, source=source: copy(source, target), folder / "cp")
        )
    for worker in workers.values():
        worker.close()
    back = median(time_resume(folder / "async", model, optimizer) for _ in range(rounds))
    show({name: median(times) for name, times in seconds.items()}, size, rounds)
    print(f"stall, first async save  {first['async'][0]:8.3f} s")
    print(f"resume, all verified     {back:8.3f} s, {size / back / 2**20:.0f} MiB/s")


def show(seconds: dict[str, float], size: int, rounds: int) -> None:
    sync, stall, plain = seconds["sync"], seconds["async"], seconds["save_file"]
    whole, copied = seconds["async, on the disk"], seconds["cp"]
    print(f"checkpoint               {size / 2**20:8.1f} MiB, {rounds} rounds, medians")
    print(f"stall, sync              {sync:8.3f} s")
    print(f"save_file and fsync      {plain:8.3f} s (no hash, nothing published)")
    print(f"stall, async             {stall:8.3f} s, {size / stall / 2**30:.1f} GiB/s")
    print(f"async / sync             {stall / sync:8.1%}   (target <= 10 %)")
    print(f"async / save_file        {stall / plain:8.1%}")
    print(f"async / until on disk    {stall / whole:8.1%}   (sync without reading it back)")
    print(f"async, until on the disk {whole:8.3f} s, {size / whole / 2**20:.0f} MiB/s")
    print(f"cp and fsync             {copied:8.3f} s, {size / copied / 2**20:.0f} MiB/s")
    print(f"cp / until on the disk   {copied / whole:8.1%}   (target >= 70 %)")


def make_model(mib: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose checkpoint, with AdamW's two averages, has about this many MiB."""
    layers = max(1, round(mib * 2**20 / (3 * 4 * WIDTH**2)))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(1, WIDTH)).sum().backward()
    optimizer.step()
    return model, optimizer


def make_worker(folder: Path, mode: str) -> Worker:
    job = TrialJob(
        trial_id="t0000",
        folder=str(folder),
        trainable="",
        config={},
        seed=0,
        attempt=1,
        cache="",
        checkpoint_every=1,
        checkpoint_async=mode == "async",
        retention=Retention(newest=2),
    )
    return Worker(job, NullClient(), torch.device("cpu"))


def saver(worker: Worker, model: nn.Module, optimizer: torch.optim.Optimizer) -> SaveFn:
    def save(folder: Path) -> DeferredWrite:
        weights = copy_weights(model)
        progress = copy_progress(folder, worker, optimizer, None, "")
        return in_parallel(lambda: write_tensors(folder / "model.safetensors", weights), progress)

    return save


def save(worker: Worker, save: SaveFn, step: int) -> tuple[float, float]:
    """Seconds of a report, and seconds until its checkpoint is on the disk."""
    began = time.perf_counter()
    worker.report(step=step, metrics={}, checkpoint=save)
    stall = time.perf_counter() - began
    worker.saver.wait()
    whole = time.perf_counter() - began
    worker.saver.drain()
    return stall, whole


def timed(write: Callable[[Path], None], target: Path) -> float:
    """Seconds to write into a new folder."""
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    write(target)
    return time.perf_counter() - began


def plain_save(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[Path], None]:
    """A save as in a plain training script: the library's writer, then an fsync."""
    tensors = copy_tree({"model": model.state_dict(), "optimizer": optimizer.state_dict()}).tensors

    def write(folder: Path) -> None:
        folder.mkdir()
        save_file(tensors, folder / "model.safetensors")
        flush(folder)

    return write


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    flush(target)


def flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        with open(path, "rb") as f:
            os.fsync(f.fileno())


def time_resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Seconds to verify every byte of the newest checkpoint and load it."""
    worker = make_worker(folder, "async")
    began = time.perf_counter()
    found = worker.resume()
    assert found is not None
    model.load_state_dict(load_file(found.folder / "model.safetensors"))
    load_progress(found.folder, worker, found.step, optimizer, None)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
