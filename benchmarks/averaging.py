"""Averages of large models: time, memory and error, beside other ways to make them.

    python -m benchmarks.averaging [--models 16] [--megabytes 400] [--dtype float32] [--repeats 3]

Ours is compared with loading all models and adding them up, and with `mergekit-pytorch` (linear)
where `MERGEKIT_PYTHON` names a Python that has it. Each runs in a process of its own, in turn, with
the files in the page cache. Seconds are medians of wall-clock time, without imports; of mergekit,
which has no other way in than its program, those that it takes beyond a merge of two tiny models.
Memory is the largest anonymous resident set beyond what the process had before it began (the page
cache, which the system may take back, is not counted). Errors are beside the float64 mean, rounded
once. Needs twice the models' size on the disk, and of memory for loading all.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TENSORS = 16
PERIOD_S = 0.002


def make_models(folder: Path, count: int, megabytes: int, dtype: torch.dtype) -> list[Path]:
    """Models of equal tensors, each a little off the first."""
    size = megabytes * 1_000_000 // dtype.itemsize // TENSORS
    paths = []
    for number in range(count):
        draw = torch.Generator().manual_seed(number)
        model = {f"w{i:02d}": torch.randn(size, generator=draw).to(dtype) for i in range(TENSORS)}
        paths.append(folder / f"m{number:02d}" / "model.safetensors")
        paths[-1].parent.mkdir(parents=True)
        save_file(model, paths[-1], {"format": "pt"})
    return paths


def ours(paths: list[Path], target: Path) -> None:
    from results.averaging import average, make_method

    average(paths, target, method=make_method("uniform"))


def load_all(paths: list[Path], target: Path) -> None:
    models = [load_file(path) for path in paths]
    mean = {k: sum(m[k].float() for m in models) / len(models) for k in models[0]}
    save_file({k: v.to(models[0][k].dtype) for k, v in mean.items()}, target)


def anonymous(pid: int | str = "self") -> int:
    """Anonymous resident bytes of a process; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon")), 0)


class Peak:
    """The largest anonymous memory of a process while it is watched."""

    def __init__(self, pid: int | str = "self") -> None:
        self.largest = 0
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.largest = max(self.largest, anonymous(self._pid))


def contend(name: str, folder: Path) -> None:
    """In a process of its own: average once, and print what it took as JSON."""
    paths = sorted(folder.glob("m*/model.safetensors"))
    run = {"ours": ours, "load_all": load_all}[name]
    run([paths[0]] * 2, folder / "warm.safetensors")  # imports are no part of the measurement
    before, since = anonymous(), time.perf_counter()
    with Peak() as peak:
        run(paths, folder / f"{name}.safetensors")
    seconds = time.perf_counter() - since
    print(json.dumps({"seconds": seconds, "bytes": max(0, peak.largest - before)}))


def measure(name: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.averaging", "--contender", name, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def mergekit(folder: Path) -> dict[str, float]:
    """What `mergekit-pytorch` takes beyond a merge of models of next to nothing."""
    paths = sorted(folder.glob("m*/model.safetensors"))
    least = _merged(sorted(folder.glob("tiny/m*/model.safetensors")), folder)
    whole = _merged(paths, folder)
    return {key: max(0.0, whole[key] - least[key]) for key in whole}


def _merged(paths: list[Path], folder: Path) -> dict[str, float]:
    models = [{"model": str(p), "parameters": {"weight": 1}} for p in paths]
    recipe, out = folder / "linear.yml", folder / "mergekit"
    recipe.write_text(json.dumps({"merge_method": "linear", "models": models}))
    program = str(Path(os.environ["MERGEKIT_PYTHON"]).with_name("mergekit-pytorch"))
    shutil.rmtree(out, ignore_errors=True)
    since = time.perf_counter()
    process = subprocess.Popen([program, "--quiet", str(recipe), str(out)])
    with Peak(process.pid) as peak:
        if process.wait():
            raise SystemExit(f"{program} failed with {process.returncode}")
    seconds = time.perf_counter() - since
    next(out.glob("*.safetensors")).replace(folder / "mergekit.safetensors")
    return {"seconds": seconds, "bytes": float(peak.largest)}


def error(folder: Path, name: str) -> tuple[int, float, float]:
    """Beside the float64 mean, rounded once: elements that differ, as a part, and L2 distance."""
    paths, counts = sorted(folder.glob("m*/model.safetensors")), [0, 0]
    squares = [0.0, 0.0]
    with safe_open(folder / f"{name}.safetensors", "pt") as found:
        for key in found.keys():  # noqa: SIM118 - not a dict
            total: Any = 0.0
            for path in paths:
                with safe_open(path, "pt") as model:
                    total = total + model.get_tensor(key).double()
            tensor = found.get_tensor(key)
            expected = (total / len(paths)).to(tensor.dtype)
            counts[0] += int((tensor != expected).sum())
            counts[1] += tensor.numel()
            squares[0] += float(((tensor.double() - expected.double()) ** 2).sum())
            squares[1] += float((expected.double() ** 2).sum())
    return counts[0], counts[0] / counts[1], (squares[0] / squares[1]) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contender", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        contend(given.contender[0], Path(given.contender[1]))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dtype = getattr(torch, given.dtype)
        make_models(folder, given.models, given.megabytes, dtype)
        make_models(folder / "tiny", 2, 1, dtype)
        runs = {name: partial(measure, name, folder) for name in ("ours", "load_all")}
        if os.environ.get("MERGEKIT_PYTHON"):
            runs["mergekit"] = partial(mergekit, folder)
        rounds = [{name: run() for name, run in runs.items()} for _ in range(given.repeats)]
        print(
            f"{given.models} models of {given.megabytes} MB, {given.dtype}; {os.cpu_count()} cores"
        )
        print("| contender | seconds | MB beyond baseline | elements off | relative error |")
        print("|---|---|---|---|---|")
        for name in runs:
            differ, part, far = error(folder, name)
            seconds = statistics.median(one[name]["seconds"] for one in rounds)
            most = max(one[name]["bytes"] for one in rounds)
            took = f"{seconds:.1f} | {most / 1e6:.0f}"
            print(f"| {name} | {took} | {differ:,} ({part:.1%}) | {far:.1e} |")


if __name__ == "__main__":
    main()
