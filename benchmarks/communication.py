"""Measures every way of averaging gradients, and from which network on compression pays.

`python -m benchmarks.communication` starts ranks on this machine, which average one gradient over
and over. The loopback interface is faster than most networks, so the time on a network is
computed: the measured seconds, the bytes of the busiest rank over the bandwidth, and one latency
for each message that waits for another.
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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT

WAYS: dict[str, dict[str, Any]] = {
    "builtin": {},
    **{name: {"method": name} for name in ("ring", "tree", "doubling", "hierarchical")},
    **{name: {"compress": name} for name in ("fp16", "bf16", "int8")},
    "powersgd, rank 2": {"compress": "powersgd"},
    "topk, 1 %": {"compress": "topk"},
}
MBIT = 1e6 / 8
NETWORKS = {"100 Mbit/s": (100 * MBIT, 1e-3), "1 Gbit/s": (1e3 * MBIT, 2e-4)}
NETWORKS |= {"10 Gbit/s": (1e4 * MBIT, 1e-4), "100 Gbit/s": (1e5 * MBIT, 1e-5)}
"""Bandwidth (bytes per second) and latency (seconds)."""


def run_rank(rank: int, world: int, side: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Average a matrix [side, side] in every way, in turns; what this rank measured of each."""
    import torch
    import torch.distributed as dist

    from trainables.parallel.footprint import Traffic
    from trainables.training.communication.config import CommunicationConfig
    from trainables.training.communication.exchange import compression

    torch.set_num_threads(1)
    store = f"file://{folder / 'rendezvous'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    gradient = torch.randn(side, side, generator=torch.Generator().manual_seed(rank))
    traffic = {name: Traffic() for name in WAYS}
    ways = {
        name: compression(CommunicationConfig.model_validate(settings), traffic[name])
        for name, settings in WAYS.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds + 1):  # the first one is a warm-up
        for name, way in ways.items():
            copy = {"": gradient.clone()}
            traffic[name].bytes = traffic[name].messages = 0
            dist.barrier()
            began = time.perf_counter()
            way.average(copy)
            seconds[name].append(time.perf_counter() - began)
    dist.destroy_process_group()
    return [
        {"way": n, "seconds": seconds[n][1:], "bytes": t.bytes, "rounds": t.messages}
        for n, t in traffic.items()
    ]


def measure(world: int, side: int, rounds: int) -> dict[str, dict[str, float]]:
    """Of each way: median seconds (of the slowest rank), most bytes and rounds of a rank."""
    options = [str(v) for v in (world, side, rounds)]
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "--rank", str(rank), *options, folder],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )
            for rank in range(world)
        ]
        printed = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("a rank failed; its error is above")
    found: dict[str, dict[str, float]] = {}
    for same in zip(*map(json.loads, printed), strict=True):
        slowest = [max(times) for times in zip(*(one["seconds"] for one in same), strict=True)]
        found[same[0]["way"]] = {
            "seconds": statistics.median(slowest),
            "bytes": max(one["bytes"] for one in same),
            "rounds": max(one["rounds"] for one in same),
        }
    return found


def on_network(found: Mapping[str, float], bandwidth: float, latency: float) -> float:
    """Seconds on a network of this bandwidth (bytes per second) and latency (seconds)."""
    return found["seconds"] + found["bytes"] / bandwidth + found["rounds"] * latency


def pays_below(found: Mapping[str, float], builtin: Mapping[str, float]) -> str:
    """The bandwidth below which a way is faster than the builtin one, without latencies."""
    saved, lost = builtin["bytes"] - found["bytes"], found["seconds"] - builtin["seconds"]
    if saved <= 0:
        return "-"
    return "any" if lost <= 0 else f"{saved / lost / MBIT / 1e3:.2g} Gbit/s"


def print_table(world: int, side: int, rounds: int) -> None:
    """One row for each way."""
    found = measure(world, side, rounds)
    print(f"\n{world} ranks, {4 * side**2 / 2**20:.3g} MiB, medians of {rounds} rounds\n")
    print("| | MiB sent | rounds | here (ms) |", *(f"{n} (ms) |" for n in NETWORKS), "pays below |")
    print("|---" * (5 + len(NETWORKS)) + "|")
    for name, one in found.items():
        times = (1e3 * on_network(one, *network) for network in NETWORKS.values())
        print(
            f"| {name} | {one['bytes'] / 2**20:.3g} | {one['rounds']:.0f} "
            f"| {1e3 * one['seconds']:.3g} |",
            *(f"{ms:.3g} |" for ms in times),
            f"{pays_below(one, found['builtin'])} |",
        )


def main() -> None:
    """Print a table for each number of ranks and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ranks", default="2,4", help="numbers of ranks")
    parser.add_argument("--sides", default="256,2560", help="sides of the square gradients")
    parser.add_argument("--rank", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank, world, side, rounds = map(int, args.rank[:4])
        print(json.dumps(run_rank(rank, world, side, rounds, Path(args.rank[4]))))
        return
    for world in map(int, args.ranks.split(",")):
        for side in map(int, args.sides.split(",")):
            print_table(world, side, args.rounds)


if __name__ == "__main__":
    main()
