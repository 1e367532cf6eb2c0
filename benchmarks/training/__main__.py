"""Speed of the trainables beside a plain PyTorch loop, `transformers.Trainer` and trl.

Each has the same model, batch, precision, optimizer and text. Each run is a new process. On the CPU
the contenders take turns, window by window; a GPU has one of them at a time.
`python -m benchmarks.training --help`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.training.case import Case, Result, write_text
from benchmarks.training.turns import measure

GPU = (
    Case(
        "124M",
        {"size": "small", "vocab_size": 50304, "sequence_length": 1024, "batch_size": 64}
        | {"dtype": "bfloat16"},
        "cuda",
        every=6,
        windows=4,
        words=1_500_000,
    ),
    Case(
        "1.1B",
        {"size": "large", "vocab_size": 32000, "sequence_length": 2048, "batch_size": 16}
        | {"dtype": "bfloat16"},
        "cuda",
        every=4,
        windows=4,
        words=1_500_000,
    ),
)
SHAPE = {"hidden_size": 128, "num_layers": 4, "vocab_size": 4096}
CPU = (
    Case(
        "causal_lm",
        {**SHAPE, "sequence_length": 128, "batch_size": 16},
        "cpu",
        every=4,
        windows=22,
    ),
    Case(
        "sft",
        {**SHAPE, "sequence_length": 192, "batch_size": 32, "packing": "none", "eval_answers": 0},
        "cpu",
        every=4,
        windows=14,
        trainable="sft",
    ),
    Case(
        "images",
        {"model": "resnet8", "batch_size": 64},
        "cpu",
        windows=12,
        trainable="image_classifier",
    ),
)
CONTENDERS = ("ours", "plain", "trainer", "trl")


def table(case: Case, runs: dict[str, list[Result]]) -> str:
    """Medians over the rounds, as Markdown."""
    head = [case.title, f"{case.unit}/s", "to the fastest other", "spread of rounds"]
    gpu = ["MFU", "peak memory", "first window"] if case.device == "cuda" else []
    head += gpu or [f"{case.unit} per CPU second", "to the best other"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    speeds = {name: windows(found) for name, found in runs.items()}
    cpu = {name: float(np.median([r.cpu_speed for r in found])) for name, found in runs.items()}
    for name, found in runs.items():
        others = [each for other, each in speeds.items() if other != name]
        row = [
            TITLES[name].format(case.trainable),
            f"{np.median(speeds[name]):,.0f}",
            _ratio(speeds[name], others),
        ]
        each = [r.speed for r in found]
        row.append(f"{min(each):,.0f} to {max(each):,.0f}")
        if gpu:
            last = found[-1]
            memory = f"{last.peak_memory_gib or 0:.1f} GiB"
            row += [f"{100 * (last.mfu or 0):.1f} %", memory, f"{last.first_s:.0f} s"]
        else:
            rest = [np.array([speed]) for other, speed in cpu.items() if other != name]
            row += [f"{cpu[name]:,.0f}", _ratio(np.array([cpu[name]]), rest)]
        lines.append(row)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


TITLES = {
    "ours": "this platform, `{}`",
    "plain": "a plain PyTorch loop",
    "trainer": "`transformers.Trainer`",
    "trl": "trl's `SFTTrainer`",
}


TRAINABLES = {"trainer": ("causal_lm", "sft"), "trl": ("sft",)}
"""What a contender can train, where that is not everything."""

Speeds = npt.NDArray[np.float64]


def windows(found: Sequence[Result]) -> Speeds:
    """Speeds of all windows that count, of all rounds."""
    return np.concatenate([r.tokens_per_second[2:] or [np.nan] for r in found])


def _ratio(speeds: Speeds, others: Sequence[Speeds]) -> str:
    """Median of the ratios to the fastest other, window by window where both have them."""
    known = [other for other in others if np.isfinite(other).all()]
    if not known or not np.isfinite(speeds).all():
        return "-"
    best = max(known, key=lambda other: float(np.median(other)))
    pairs = speeds / best if len(speeds) == len(best) else np.median(speeds) / np.median(best)
    return f"{np.median(pairs):.3f}"


def _run_one(name: str, case: Case, folder: Path) -> None:
    from benchmarks.training.contenders import run

    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        import torch.distributed as dist

        dist.init_process_group("gloo" if case.device == "cpu" else "nccl")
    print(json.dumps(asdict(run(name, case, folder))), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--gpu", action="store_true", help="124M and 1.1B in bfloat16 on one GPU; else on the CPU")
    add("--sizes", nargs="+", default=[c.title for c in GPU + CPU], help="the cases")
    add("--workers", type=int, nargs="+", default=[1, 2], help="on the CPU: DDP workers")
    add("--rounds", type=int, default=2, help="runs of each contender, which take turns")
    add("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS, help="contenders")
    add("--timeout", type=float, default=600, help="seconds for each run")
    add("--profile", action="store_true", help="print our kernels of one more window")
    add("--json", type=Path, help="a file for the figures")
    add("--run", nargs=3, metavar=("NAME", "CASE", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args()


def machine(gpu: bool) -> str:
    import torch
    import transformers

    where = torch.cuda.get_device_name() if gpu else f"{os.cpu_count()} cores"
    return (
        f"{where}, Python {platform.python_version()}, torch {torch.__version__},"
        f" transformers {transformers.__version__}"
    )


def main() -> None:
    """Measure every case, print a table for each, and write the figures."""
    given = _arguments()
    if "trl" in given.only and importlib.util.find_spec("trl") is None:
        print("trl is not installed, and left out: pip install trl==1.16.0", file=sys.stderr)
        given.only = [name for name in given.only if name != "trl"]
    if given.run:
        name, case, folder = given.run
        return _run_one(name, Case.loads(case), Path(folder))
    jobs = [(c, 1) for c in GPU if c.title in given.sizes] if given.gpu else []
    small = [c for c in CPU if c.title in given.sizes]
    jobs = jobs or [(case, workers) for case in small for workers in given.workers]
    figures = []
    for shape, workers in jobs:
        case = replace(shape, profile=given.profile)
        names = [n for n in given.only if case.trainable in TRAINABLES.get(n, (case.trainable,))]
        runs: dict[str, list[Result]] = {name: [] for name in names}
        with tempfile.TemporaryDirectory(prefix="tune-bench-") as folder:
            write_text(Path(folder), case)
            at_once = [[name] for name in names] if given.gpu else [names]
            for group in at_once * given.rounds:
                for each in measure(group, case, Path(folder), workers, given.timeout):
                    runs[each.contender].append(each)
                    print(each.contender, each.error or round(each.speed), file=sys.stderr)
        print(f"\n{workers} worker(s)\n\n{table(case, runs)}\n", flush=True)
        if given.profile and "ours" in runs:
            print(runs["ours"][-1].profile)
        figures.append(
            {"case": asdict(case), "workers": workers}
            | {"runs": {name: [asdict(r) for r in found] for name, found in runs.items()}}
        )
        if given.json:
            given.json.write_text(json.dumps(figures, indent=1))
    print(machine(given.gpu))


if __name__ == "__main__":
    main()
