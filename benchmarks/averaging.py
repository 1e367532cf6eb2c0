"""Averages of large models: time, memory and error, compared with other tools.

    python -m benchmarks.averaging [--models 16] [--megabytes 400] [--dtype float32] [--repeats 3]

The alternatives are loading all models and adding them, and `mergekit-pytorch` (linear) if
`MERGEKIT_PYTHON` names a Python that has it. Each runs in processes of its own, in turn, with the
files in the page cache. All are timed in the same two ways, as medians of wall-clock time:

- the average alone, in a process that has averaged small models before, so that everything is
  imported: from before the first read to after the last write (ours waits for the disk, the others
  leave their file in the page cache),
- a process with one average, from its start to its end, imports included.

Memory is the largest anonymous resident set beyond that of the process before it began (without the
page cache, which the system may reclaim). The error is the difference from the float64 mean,
rounded once. Needs disk space of twice the size of the models, and as much memory to load all.
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
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

TENSORS = 16
PERIOD_S = 0.002
ROOT = Path(__file__).resolve().parents[1]


def make_models(folder: Path, count: int, megabytes: int, dtype: torch.dtype) -> list[Path]:
    """Models with the same tensors, each with other random values."""
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


def mergekit(paths: list[Path], target: Path) -> None:
    """Calls the program as its console script does; needs a Python that has mergekit."""
    from mergekit.scripts.merge_raw_pytorch import main as program  # type: ignore[import-not-found]

    models = [{"model": str(p), "parameters": {"weight": 1}} for p in paths]
    recipe, out = target.with_suffix(".yml"), target.with_suffix(".out")
    recipe.write_text(json.dumps({"merge_method": "linear", "models": models}))
    program.main(["--quiet", str(recipe), str(out)], standalone_mode=False)
    next(out.glob("*.safetensors")).replace(target)
    shutil.rmtree(out)


CONTENDERS = {"ours": ours, "load_all": load_all, "mergekit": mergekit}


def anonymous() -> int:
    """Anonymous resident bytes of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon"))


class Peak:
    """The largest anonymous memory of this process, sampled by a thread."""

    def __init__(self) -> None:
        self.largest = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PERIOD_S):
            self.largest = max(self.largest, anonymous())


class Cost(NamedTuple):
    """Time and memory of one average."""

    seconds: float
    bytes: int


def contend(name: str, folder: Path, warm: bool) -> Cost:
    """Average once; runs in a process of its own."""
    paths = sorted(folder.glob("m*/model.safetensors"))
    if warm:
        small = sorted(folder.glob("small/m*/model.safetensors"))
        CONTENDERS[name](small, folder / "warm.safetensors")
    before, since = anonymous(), time.perf_counter()
    with Peak() as peak:
        CONTENDERS[name](paths, folder / f"{name}.safetensors")
    return Cost(time.perf_counter() - since, max(0, peak.largest - before))


class Sample(NamedTuple):
    """One measurement of a contender: `alone` without imports, `whole_s` of a whole process."""

    alone: Cost
    whole_s: float


def measure(name: str, folder: Path) -> Sample:
    alone = _process(name, folder, "--warm")
    since = time.perf_counter()
    _process(name, folder)
    return Sample(alone, time.perf_counter() - since)


def _process(name: str, folder: Path, *more: str) -> Cost:
    python = os.environ["MERGEKIT_PYTHON"] if name == "mergekit" else sys.executable
    command = [python, "-m", "benchmarks.averaging", "--contender", name, str(folder), *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed with {done.returncode}: {done.stderr[-2000:]}")
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def error(folder: Path, name: str) -> tuple[int, float, float]:
    """Difference from the rounded float64 mean: elements, their share, relative L2 distance."""
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
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        name, folder = given.contender
        print(json.dumps(contend(name, Path(folder), given.warm)))
        return
    names = [n for n in CONTENDERS if n != "mergekit" or os.environ.get("MERGEKIT_PYTHON")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dtype = getattr(torch, given.dtype)
        make_models(folder, given.models, given.megabytes, dtype)
        make_models(folder / "small", 2, 4, dtype)
        rounds = [{name: measure(name, folder) for name in names} for _ in range(given.repeats)]
        what = f"{given.models} models of {given.megabytes} MB, {given.dtype}"
        print(f"{what}; {os.cpu_count()} cores, {given.repeats} times")
        print(
            "| contender | seconds | seconds, whole process | additional MB |"
            " elements that differ | relative error |"
        )
        print("|---|---:|---:|---:|---:|---:|")
        for name in names:
            print(f"| {name} | {_figures(name, folder, [one[name] for one in rounds])} |")


def _figures(name: str, folder: Path, samples: list[Sample]) -> str:
    """The columns of a contender after its name."""
    seconds = statistics.median(s.alone.seconds for s in samples)
    whole = statistics.median(s.whole_s for s in samples)
    most = max(s.alone.bytes for s in samples)
    differ, part, far = error(folder, name)
    took = f"{seconds:.1f} | {whole:.1f} | {most / 1e6:.0f}"
    return f"{took} | {differ:,} ({part:.1%}) | {far:.1e}"


if __name__ == "__main__":
    main()
