"""Weak scaling of a trial over machines: each worker has as much to do, however many there are.

    RAY_ADDRESS=auto python -m benchmarks.scaling --per-node 8 --gpus 1 --size large --storage DIR

One sweep for each number of machines, of which each trial is one measurement: warm-up steps, then
the steps that count. Beside the speed is the share of time in which workers wait for gradients, as
`tune show` has it. Without a cluster the "machines" are workers on this one, which share its cores:
that shows the method, and measures no network.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ours import run_file
from benchmarks.process import ROOT
from results.analysis.phases import phase_means
from results.paths import Storage
from results.records.trial import read_reports, read_trials
from results.records.worker_samples import phase_seconds
from tuning.controller.resources.efficiency import TARGETS


@dataclass(frozen=True)
class Measured:
    """Trials on so many machines.

    Attributes:
        speeds: tokens per second of each trial, of all workers together.
        waits: the share of each trial's time after its start that is communication.
    """

    nodes: int
    speeds: list[float]
    waits: list[float]


def sweep_of(given: argparse.Namespace, nodes: int, storage: Path) -> dict[str, Any]:
    """The sweep of so many machines."""
    workers = nodes * given.per_node
    return {
        "name": f"scaling-{nodes}",
        "trainable": "causal_lm",
        "metric": "eval_loss",
        "mode": "min",
        "space": {"learning_rate": {"loguniform": [1e-4, 1e-3]}},
        "fixed": {
            **(json.loads(given.config) if given.config else {}),
            **({"size": given.size} if given.size else {}),
            "batch_size": given.batch * workers,
            "max_steps": given.warmup + given.steps,
            "eval_every": given.warmup,
            "eval_sequences": workers,
            "dtype": "auto",
        },
        "search": {"name": "random"},
        "scheduler": {"name": "none"},
        "budget": {"trials": given.repeats},
        "resources": {
            "workers": workers,
            "cpus_per_worker": 1,
            "gpus_per_worker": given.gpus,
            "concurrency": 1,
            "layout": given.layout,
        },
        "checkpoint": {"every": 10**9},
        "storage": str(storage),
    }


def measure(given: argparse.Namespace, nodes: int, storage: Path) -> Measured:
    """Run the sweep of so many machines, and read its records."""
    with tempfile.TemporaryDirectory() as folder:
        command = run_file(sweep_of(given, nodes, storage), Path(folder))
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    sweep, speeds, waits = Storage(storage).sweep(f"scaling-{nodes}"), [], []
    for record in read_trials(sweep):
        files = sweep.trial(record.id)
        rates = [r.metrics["tokens_per_second"] for r in read_reports(files)[1:]]
        speeds.append(statistics.harmonic_mean(rates))  # of equally many steps each
        means = phase_means(phase_seconds(files, record))
        means.pop("start", None)
        waits.append(means.get("communication", 0.0) / sum(means.values()))
    return Measured(nodes, speeds, waits)


def table(found: list[Measured], per_node: int) -> str:
    """Medians, and the efficiency against the first row, per worker."""
    lines = ["| machines | workers | tokens/s | slowest to fastest | efficiency | target | waits |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    first = statistics.median(found[0].speeds) / found[0].nodes
    for one in found:
        speed = statistics.median(one.speeds)
        efficiency, target = speed / one.nodes / first, TARGETS.get(one.nodes)
        held = f"{'holds' if efficiency >= target else 'misses'} {target:.0%}" if target else "-"
        cells = [
            f"{one.nodes} | {one.nodes * per_node} | {speed:,.0f}",
            f"{min(one.speeds):,.0f} to {max(one.speeds):,.0f}",
            f"{efficiency:.1%} | {held} | {statistics.median(one.waits):.1%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--nodes", type=int, nargs="+", default=[1, 2, 4, 8], help="numbers of machines")
    add("--per-node", type=int, default=1, help="workers of a machine (default: 1)")
    add("--gpus", type=float, default=0, help="GPUs of a worker (default: 0)")
    add("--batch", type=int, default=16, help="sequences of a worker in a step (default: 16)")
    add("--size", help="of the model: small, medium, large (default: a tiny one)")
    add("--config", help="JSON of other hyperparameters of causal_lm")
    add("--layout", default="ddp", help="resources.layout: ddp or fsdp (default: ddp)")
    add("--steps", type=int, default=200, help="that count (default: 200)")
    add("--warmup", type=int, default=50, help="steps before (default: 50)")
    add("--repeats", type=int, default=5, help="trials of each number of machines (default: 5)")
    add("--storage", type=Path, help="a new folder that all machines share (default: temporary)")
    return parser.parse_args()


def main() -> None:
    """Measure each number of machines, and print a table."""
    given = _arguments()
    if "RAY_ADDRESS" not in os.environ:
        print("no RAY_ADDRESS: the machines are workers of this one, which share its cores")
    with tempfile.TemporaryDirectory(prefix="tune-scaling-") as folder:
        storage = given.storage or Path(folder)
        found = [measure(given, nodes, storage) for nodes in given.nodes]
        print(table(found, given.per_node))


if __name__ == "__main__":
    main()
