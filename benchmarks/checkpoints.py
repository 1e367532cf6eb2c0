"""What a checkpoint costs: the stall of the training, bytes per second, and the way back.

    python -m benchmarks.checkpoints [--mib 200] [--saves 5] [--folder DIR]

Saves the same model and AdamW state through `Worker.report`, with `checkpoint.mode` sync and async,
and copies the same bytes with `cp` and an fsync of each file. All in one process, on one folder's
file system, medians. The async stall is what `report` takes; between two saves it waits for the
first to be on the disk, as a step of training that is long enough would.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from results.checkpoint import newest_whole
from results.paths import TrialPaths
from results.records import Report
from results.retention import Retention
from trainables.saving import Rest, SaveFn, together
from trainables.state import copy_weights
from trainables.training import copy_progress, load_progress
from trainables.worker import Answer, TrialJob, Worker

WIDTH = 1024


class Silent:
    """Nobody listens."""

    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=200, help="of a checkpoint")
    parser.add_argument("--saves", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where; default: temporary")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        measure(Path(name), given.mib, given.saves)


def measure(folder: Path, mib: int, saves: int) -> None:
    model, optimizer = make_model(mib)
    stalls, whole = {}, {}
    for mode in ("sync", "async"):
        worker = make_worker(folder / mode, asynchronous=mode == "async")
        stalls[mode], whole[mode] = save_often(worker, saver(worker, model, optimizer), saves)
    found = newest_whole(TrialPaths(folder / "sync"))
    assert found is not None
    size = sum(entry.size for entry in found.manifest.files.values())
    copied = statistics.median(copy(found.folder, folder / "copy") for _ in range(saves))
    rate, cp = size / whole["async"] / 2**20, size / copied / 2**20
    print(f"checkpoint               {size / 2**20:8.1f} MiB, {saves} saves each, medians")
    print(f"stall, sync              {stalls['sync']:8.3f} s")
    print(f"stall, async             {stalls['async']:8.3f} s")
    print(f"async / sync             {stalls['async'] / stalls['sync']:8.1%}   (target <= 10 %)")
    print(f"until it is on the disk  {whole['async']:8.3f} s, {rate:.0f} MiB/s")
    print(f"cp and fsync             {copied:8.3f} s, {cp:.0f} MiB/s")
    print(f"of cp                    {rate / cp:8.1%}   (target >= 70 %)")
    print(f"resume                   {resume(folder / 'sync', model, optimizer):8.3f} s")


def make_model(mib: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose checkpoint with AdamW's two averages has about so many MiB."""
    layers = max(1, round(mib * 2**20 / (3 * 4 * WIDTH**2)))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(1, WIDTH)).sum().backward()
    optimizer.step()
    return model, optimizer


def make_worker(folder: Path, *, asynchronous: bool) -> Worker:
    job = TrialJob(
        trial_id="t0000",
        folder=str(folder),
        trainable="",
        config={},
        seed=0,
        attempt=1,
        cache="",
        checkpoint_every=1,
        checkpoint_async=asynchronous,
        retention=Retention(newest=2),
    )
    return Worker(job, Silent(), torch.device("cpu"))


def saver(worker: Worker, model: nn.Module, optimizer: torch.optim.Optimizer) -> SaveFn:
    def save(folder: Path) -> Rest:
        weights = copy_weights(model)
        progress = copy_progress(folder, worker, optimizer, None, "")

        return together(lambda: save_file(weights, folder / "model.safetensors"), progress)

    return save


def save_often(worker: Worker, save: SaveFn, saves: int) -> tuple[float, float]:
    """Medians of the seconds that a report takes, and until its checkpoint is on the disk."""
    stalls, whole = [], []
    for step in range(1, saves + 2):
        began = time.perf_counter()
        worker.report(step=step, metrics={}, checkpoint=save)
        stalls.append(time.perf_counter() - began)
        worker.close()  # waits
        whole.append(time.perf_counter() - began)
    return statistics.median(stalls[1:]), statistics.median(whole[1:])


def copy(source: Path, target: Path) -> float:
    """Seconds of `cp -r` and an fsync of every file."""
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    for path in target.rglob("*"):
        with open(path, "rb") as f:
            os.fsync(f.fileno())
    return time.perf_counter() - began


def resume(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Seconds to verify every byte of the newest checkpoint, and to load it."""
    worker = make_worker(folder, asynchronous=True)
    began = time.perf_counter()
    found = worker.resume()
    assert found is not None
    model.load_state_dict(load_file(found.folder / "model.safetensors"))
    load_progress(found.folder, worker, found.step, optimizer, None)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
