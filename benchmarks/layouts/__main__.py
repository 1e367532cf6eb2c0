"""Speed and memory of `causal_lm` on each layout, beside plain torch code of the same layout.

Both have the same model, batch, precision, optimizer and text. On the CPU they take turns, window
by window. With --gpu: on one GPU, what FSDP2 and `torch.compile` cost where there is one rank,
without Ray. `python -m benchmarks.layouts --help`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from benchmarks.training.__main__ import GPU, machine, windows
from benchmarks.training.case import Case, Result, write_text
from benchmarks.training.turns import measure

LAYOUTS: dict[int, dict[str, dict[str, int]]] = {
    2: {
        "ddp2": {"dp_replicate": 2},
        "fsdp2": {"dp_shard": 2},
        "tp2": {"tp": 2},
        "pp2": {"pp": 2},
        "cp2": {"cp": 2},
        "ep2": {"dp_shard": 2, "ep": 2},
    },
    4: {
        "ddp4": {"dp_replicate": 4},
        "fsdp4": {"dp_shard": 4},
        "tp4": {"tp": 4},
        "pp4": {"pp": 4},
        "cp4": {"cp": 4},
        "ep4": {"dp_shard": 4, "ep": 4},
    },
}
"""By the number of ranks."""
SHAPE = {"hidden_size": 128, "num_layers": 4, "num_heads": 4, "vocab_size": 4096}
CPU = Case(
    "causal_lm",
    {**SHAPE, "sequence_length": 128, "batch_size": 32, "learning_rate": 1e-3},
    "cpu",
    every=4,
    windows=18,
)
EXPERTS = {"experts": {"count": 4, "balance": 0.0}}
ALONE = {
    "ours": "`causal_lm`",
    "ours_sharded": "`causal_lm` by the code of `dp_shard`",
    "plain_sharded": "plain torch: `fully_shard`, compiled blocks and loss",
}
"""The contenders of one rank on a GPU."""


def case_of(name: str, layout: dict[str, int], given: Case = CPU) -> Case:
    """What is measured on a layout; with `ep`, a mixture of experts."""
    config = given.config | (EXPERTS if "ep" in layout else {})
    return replace(given, title=name, config=config, layout=layout)


def row(name: str, ours: Sequence[Result], plain: Sequence[Result]) -> str:
    """Medians over the windows of all rounds; the ratio is that of windows of one turn."""
    mine, theirs = windows(ours), windows(plain)
    both = len(mine) == len(theirs)
    ratio = np.median(mine / theirs) if both else np.median(mine) / np.median(theirs)
    cpu = [np.median([r.cpu_speed for r in found]) for found in (ours, plain)]
    memory = [max(max(r.peaks_mib, default=0.0) for r in runs) for runs in (ours, plain)]
    cells = [
        name,
        f"{np.median(mine):,.0f}",
        f"{np.median(theirs):,.0f}",
        f"{ratio:.3f}",
        f"{cpu[0] / cpu[1]:.3f}",
        *(f"{peak:,.0f}" for peak in memory),
        " ".join(f"{found[-1].losses[-1]:.4f}" for found in (ours, plain) if found[-1].losses),
    ]
    return f"| {' | '.join(cells)} |"


COLUMNS = ("tokens/s", "plain torch", "ratio", "per CPU second", "MiB of a rank", "plain torch")
HEAD = f"""| layout | {" | ".join(COLUMNS)} | last losses |
| --- | {"---: | " * len(COLUMNS)}--- |"""
"""Tokens per CPU second are of the first rank: other work on the machine changes them less."""


def gpu_table(runs: dict[str, list[Result]]) -> str:
    """Medians of one GPU."""
    lines = ["| | tokens/s | to the first | MFU | peak memory | first window | last loss |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    first = next(iter(runs.values()))[-1].speed
    for name, found in runs.items():
        one = found[-1]
        cells = [
            ALONE[name],
            f"{one.speed:,.0f}",
            f"{one.speed / first:.3f}",
            f"{100 * (one.mfu or 0):.1f} %",
            f"{one.peak_memory_gib or 0:.1f} GiB",
            f"{one.first_s:.0f} s",
            f"{one.losses[-1]:.4f}" if one.losses else "-",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _run_one(name: str, case: Case, folder: Path) -> None:
    """One contender in this process."""
    import torch.distributed as dist

    from benchmarks.layouts.contenders import contender_of
    from benchmarks.training.contenders import run_contender

    backend = "gloo" if case.device == "cpu" else "nccl"
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group(backend)
    elif name != "ours":
        store = (folder / f"store-{os.getpid()}").as_uri()
        dist.init_process_group(backend, init_method=store, rank=0, world_size=1)
    found = run_contender(name, contender_of(name, case.layout), case, folder)
    print(json.dumps(asdict(found)), flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def _several_ranks(given: argparse.Namespace) -> list[dict[str, object]]:
    """Every layout beside plain torch code."""
    figures: list[dict[str, object]] = []
    print(f"{given.ranks} ranks\n\n{HEAD}", flush=True)
    for name, layout in LAYOUTS[given.ranks].items():
        if given.only and name not in given.only:
            continue
        case = case_of(name, layout, replace(CPU, windows=given.windows))
        runs = _runs(("ours", "plain"), case, given, given.ranks, together=True)
        if not any(r.error for found in runs.values() for r in found):
            print(row(name, runs["ours"], runs["plain"]), flush=True)
        figures.append({"layout": name, "runs": _as_dicts(runs)})
    return figures


def _one_rank(given: argparse.Namespace) -> list[dict[str, object]]:
    """The overhead of FSDP2 on one rank."""
    shape = next(c for c in GPU if c.title == given.size) if given.gpu else CPU
    case = replace(shape, windows=given.windows if not given.gpu else 7)
    if not given.gpu:
        case = replace(case, config={**case.config, "compile": True})
    runs = _runs(given.only or tuple(ALONE), case, given, 1, together=False)
    print(f"\n{case.title}, one rank\n\n{gpu_table(runs)}\n", flush=True)
    return [{"layout": "one rank", "runs": _as_dicts(runs)}]


def _runs(
    names: Sequence[str], case: Case, given: argparse.Namespace, ranks: int, *, together: bool
) -> dict[str, list[Result]]:
    runs: dict[str, list[Result]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="tune-bench-") as folder:
        write_text(Path(folder), case)
        groups = [list(names)] if together else [[name] for name in names]
        for group in groups * given.rounds:
            for found in measure(
                group, case, Path(folder), ranks, given.timeout, "benchmarks.layouts"
            ):
                runs[found.contender].append(found)
                shown = found.error or f"{found.speed:,.0f}"
                print(case.title, found.contender, shown, file=sys.stderr, flush=True)
    return runs


def _as_dicts(runs: dict[str, list[Result]]) -> dict[str, list[dict[str, object]]]:
    return {name: [asdict(one) for one in found] for name, found in runs.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layouts",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--gpu", action="store_true", help="one rank on a GPU in bfloat16")
    add("--size", default="124M", choices=[c.title for c in GPU], help="with --gpu: the model")
    add("--ranks", type=int, default=2, choices=[1, 2, 4], help="on the CPU: 1 as --gpu does")
    add("--only", nargs="+", default=[], help="some layouts, or contenders of one rank")
    add("--windows", type=int, default=CPU.windows, help="of each run; the first two do not count")
    add("--rounds", type=int, default=1, help="runs of each contender")
    add("--timeout", type=float, default=300, help="seconds for each window")
    add("--json", type=Path, help="a file for the figures")
    add("--run", nargs=3, metavar=("NAME", "CASE", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table."""
    given = _arguments()
    if given.run:
        name, case, folder = given.run
        return _run_one(name, Case.loads(case), Path(folder))
    alone = given.gpu or given.ranks == 1
    figures = _one_rank(given) if alone else _several_ranks(given)
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1))
    print(machine(given.gpu))


if __name__ == "__main__":
    main()
