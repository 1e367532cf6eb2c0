"""One table of what this project does on a CUDA device: `make gpu`.

Each part is a process with a time limit of its own. Parts run in the order of the table below while
the whole fits its limit; what does not fit, fails, or needs what this machine lacks is named.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch

from benchmarks.machine import machine
from benchmarks.process import ROOT, started
from results.paths import SweepPaths
from results.records.reports import Report, read_reports
from results.records.trial import TrialRecord, read_trials
from search_spaces.errors import UserError
from trainables.data.corpora.stories import make_stories
from tuning.controller.resources.gpu_shares import GpuShares

LIMIT_S = 600.0
WORTH_S = 45.0
"""A part with less time than this is left out."""
SHOWN = 20
"""Lines of a command's output."""
STORIES = ROOT / "search_spaces" / "pipelines" / "stories_gpu.yaml"
SHORT = (
    "requests.stories=10000",
    "pretrain.budget.trials=4",
    "pretrain.fixed.max_steps=1000",
    "pretrain.scheduler.max_t=1000",
    "sft.budget.trials=3",
    "sft.fixed.max_steps=300",
    "sft.scheduler.max_t=300",
    "grpo.budget.trials=2",
    "grpo.fixed.max_steps=60",
    "grpo.fixed.eval_every=10",
    "grpo.scheduler.max_t=60",
)
"""`stories_gpu.yaml` with fewer trials and steps of the same size."""
STAGES = {"pretrain": 250, "sft": 100, "grpo": 10}
"""Steps to the first report, by stage."""


@dataclass(frozen=True)
class Part:
    """One part of the table.

    Attributes:
        key: for `--only`.
        limit_s: longest time; the part is left out where less of the whole limit is left.
        command: arguments of Python, from a folder of its own.
        rows: reads lines of the table from that folder, and from what the command printed.
    """

    key: str
    title: str
    limit_s: float
    command: Callable[[Path], list[str]]
    rows: Callable[[Path, str], Iterator[str]]


def pipeline(folder: Path) -> list[str]:
    """Write TinyStories' two files with made stories; returns the arguments that run the file."""
    for name, block, count in (("train", 0, 100_000), ("valid", 1, 2_000)):
        file = folder / "data" / name / "stories.jsonl"
        file.parent.mkdir(parents=True)
        lines = (json.dumps({"text": s.text}) + "\n" for s in make_stories(0, block, count))
        file.write_text("".join(lines))
    paths = [str(folder / "data" / n / "stories.jsonl") for n in ("train", "valid")]
    changes = (f"data.paths={json.dumps(paths)}", *SHORT)
    sets = [arg for change in changes for arg in ("--set", change)]
    return ["-m", "tuning", "run", str(STORIES), *sets]


def stages(folder: Path, _: str) -> Iterator[str]:
    """One line for each stage that trains."""
    for stage, first in STAGES.items():
        paths = SweepPaths(folder / "sweeps" / "stories_gpu" / "stages" / stage)
        trials = sorted(
            ((r, read_reports(paths.trial(r.id), r.end_step)) for r in read_trials(paths)),
            key=lambda pair: pair[0].attempts[0].started,
        )
        begun = [(r, reports) for r, reports in trials if reports]
        if not begun:
            yield f"{stage}: no trial reported"
            continue
        waits = [reports[0].time - r.attempts[0].started for r, reports in begun]
        steps = [s for _, reports in begun for s in _seconds_per_step(reports)]
        last = [reports[-1].metrics for _, reports in begun]
        later = f"{statistics.median(waits[1:]):.1f} s" if waits[1:] else "none"
        yield (
            f"{stage}: first {first} steps of the first trial {waits[0]:.1f} s, of later ones "
            f"{later}; then {statistics.median(steps):.3f} s a step with evaluation and "
            f"checkpoint, {_middle(last, 'tokens_per_second')} tokens/s, MFU {_middle(last, 'mfu')}"
        )


def _seconds_per_step(reports: Sequence[Report]) -> list[float]:
    return [(b.time - a.time) / (b.step - a.step) for a, b in pairwise(reports) if b.step > a.step]


def _middle(metrics: Sequence[dict[str, float]], name: str) -> str:
    found = [m[name] for m in metrics if name in m]
    return f"{statistics.median(found):,.4g}" if found else "unknown"


LARGE = {"hidden_size": 512, "num_layers": 8, "num_heads": 8, "intermediate_size": 1024}
SMALL = {"hidden_size": 256, "num_layers": 4, "num_heads": 4, "intermediate_size": 512}


def sharing(
    part: float | str, trials: int = 4, model: dict[str, int] = LARGE, steps: int = 600
) -> Callable[[Path], list[str]]:
    """Trials of the pre-training's model, or of a smaller one, each with a part of the device."""

    def command(folder: Path) -> list[str]:
        file = folder / "shares.yaml"
        sweep = {
            "name": "shares",
            "trainable": "causal_lm",
            "metric": "eval_loss",
            "mode": "min",
            "space": {"learning_rate": {"loguniform": [3e-4, 3e-3]}},
            "fixed": {
                **model,
                **{"vocab_size": 8000, "sequence_length": 512, "batch_size": 16},
                **{"max_steps": steps, "eval_every": 200, "dtype": "auto"},
                "data": {"max_bytes": 4_000_000},
            },
            "budget": {"trials": trials},
            "scheduler": "none",
            "tracking": "none",
            "resources": {"workers": 1, "gpus_per_worker": part},
            "checkpoint": {"every": steps},
        }
        file.write_text(json.dumps(sweep))
        return ["-m", "tuning", "run", str(file)]

    return command


def shared(folder: Path, _: str) -> Iterator[str]:
    """Tokens per second of the device, from the first report of the last trial to begin."""
    paths = SweepPaths(folder / "sweeps" / "shares")
    found = [(r, read_reports(paths.trial(r.id), r.end_step)) for r in read_trials(paths)]
    rates = [_middle([reports[-1].metrics], "tokens_per_second") for _, reports in found if reports]
    yield f"tokens/s of each trial: {', '.join(rates)}; whole sweep {_span(found):.1f} s"


def chosen(folder: Path, _: str) -> Iterator[str]:
    """Tokens per second of the device with each share that was tried, and what was decided."""
    paths = SweepPaths(folder / "sweeps" / "shares")
    state = GpuShares.read(paths)
    for share in sorted({m.share for m in state.measured}, reverse=True):
        found = state.measured_with(share)
        idle = statistics.median(m.idle for m in found)
        memory = max(m.memory for m in found)
        yield (
            f"gpus_per_worker {share:g}: {state.gpu_rate(share):,.4g} {found[0].unit} of the "
            f"device, idle {idle:.0%}; memory of a trial {memory:.0%}, of {len(found)} trials"
        )
    yield from state.decisions or ["nothing was decided: too few trials measured their device"]
    held = [r.attempts[-1].gpus for r in read_trials(paths) if r.attempts]
    yield f"GPUs of each trial, in order: {', '.join(f'{gpus:g}' for gpus in held)}"


def _span(found: Sequence[tuple[TrialRecord, list[Report]]]) -> float:
    began = min(r.attempts[0].started for r, _ in found)
    return max(reports[-1].time for _, reports in found if reports) - began


def module(name: str, *args: str) -> Callable[[Path], list[str]]:
    """A benchmark of this folder."""
    return lambda _: ["-m", f"benchmarks.{name}", *args]


def tests(*files: str) -> Callable[[Path], list[str]]:
    """Tests of `tests/gpu`."""
    return lambda folder: [
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-rsxX", f"--basetemp={folder / 't'}"),
        *(str(ROOT / "tests" / "gpu" / f"test_{f}.py") for f in files),
    ]


def printed(_: Path, text: str) -> Iterator[str]:
    """What the command printed, at most its last lines."""
    yield from _end(text)


PARTS = (
    Part("pipeline", "stories_gpu.yaml, shortened", 300, pipeline, stages),
    Part("generation", "generation", 90, module("generation"), printed),
    Part("adapters", "four adapters of one base", 60, module("adapters"), printed),
    Part("training", "training without Ray", 150, tests("training"), printed),
    Part("memory", "memory estimate", 100, tests("layout_memory"), printed),
    Part("alone", "four trials, one after the other", 120, sharing(1), shared),
    Part("shared", "four trials at once", 120, sharing(0.25), shared),
    Part("auto", "small trials, shares chosen", 240, sharing("auto", 14, SMALL, 1600), chosen),
    Part(
        "platform",
        "lanes and language model",
        200,
        tests("platform_language_model", "platform_lanes"),
        printed,
    ),
    Part("faults", "shares and faults", 240, tests("platform_shares", "platform_faults"), printed),
)


def run(part: Part, left_s: float) -> bool:
    """Run a part, and print its lines; False if it failed."""
    if left_s < min(part.limit_s, WORTH_S):
        return _show([f"left out: {left_s:.0f} s are left"])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command, began = [sys.executable, *part.command(folder)], time.monotonic()
        said = _ended(command, folder, min(part.limit_s, left_s))
        text = (folder / "log").read_text(errors="replace")
        _show([f"{time.monotonic() - began:.0f} s{said}", *(_end(text) if said else ())])
        try:
            return _show(part.rows(folder, text)) and not said
        except (ArithmeticError, LookupError, OSError, UserError, ValueError) as error:
            print(f"  no figures: {type(error).__name__}: {error}", flush=True)
            return False


def _show(lines: Iterable[str]) -> bool:
    for line in lines:
        print(f"  {line}", flush=True)
    return True


def _end(text: str) -> list[str]:
    return text.splitlines()[-SHOWN:]


def _ended(command: Sequence[str], folder: Path, limit_s: float) -> str:
    """Run a command to its end; says how it ended, if not well."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    with started(command, folder / "log", {"PYTHONPATH": path}, folder) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f", ended at its limit of {limit_s:.0f} s"
    return f", exit code {code}" if code else ""


def main() -> None:
    """Print the table; the exit code is 1 where a part failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for all parts")
    parser.add_argument("--only", nargs="+", choices=[p.key for p in PARTS], help="parts to run")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device: torch.cuda.is_available() is False")
    print(f"{torch.cuda.get_device_name()}; {machine()}", flush=True)
    end, well = time.monotonic() + args.limit, True
    for part in PARTS:
        if not args.only or part.key in args.only:
            print(f"\n{part.title}", flush=True)
            well = run(part, end - time.monotonic()) and well
    raise SystemExit(not well)


if __name__ == "__main__":
    main()
