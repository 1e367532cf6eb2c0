"""Whether averages of a sweep's models are better than its best model, for several seeds.

    python -m benchmarks.soups [FILE] [--seeds 5] [--top 5] [--set KEY=VALUE ...]

For each seed `tune run` and `tune average` with greedy selection, as a user runs them. The seed
changes the proposals, the order of the data, the initial weights and therefore the pretrained
start.
All scores are on the test split, which neither the search nor the selection of members has seen.
Gains are the mean differences from the best single model example by example, with 95 % intervals.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from results.averaging.soup.scoring import Soup, Z, read_soup
from results.paths import SweepPaths

SHIPPED = Path(__file__).parents[1] / "search_spaces" / "sft.yaml"
HEAD = (
    "seed",
    "trials averaged",
    "best single",
    "uniform",
    "greedy",
    "gain",
    "promoted",
    "seconds",
)


def one_seed(file: Path, seed: int, top: int, changes: list[str], storage: Path) -> list[str]:
    """Run a sweep and average its models; returns a line of the table."""
    name, begin = f"seed{seed}", time.monotonic()
    settings = [f"name={name}", f"seed={seed}", *changes]
    _tune("run", file, *(arg for text in settings for arg in ("--set", text)), storage=storage)
    _tune("average", name, "--top", str(top), storage=storage)
    soup = read_soup(SweepPaths(storage / name).soup(f"greedy-{top}"))
    return [str(seed), *_scores(soup), f"{time.monotonic() - begin:.0f}"]


def _scores(soup: Soup) -> list[str]:
    means = [f"{soup.scores[kind].mean:.4f}" for kind in ("single", "uniform", "greedy")]
    gain = f"{soup.gain.mean:.4f} ± {Z * (soup.gain.error or 0):.4f}"
    members = f"{len(soup.members)} of {len(soup.candidates)}"
    return [members, *means, gain, "yes" if soup.promoted else "no"]


def _tune(command: str, *args: str | Path, storage: Path) -> None:
    """Run the program; its output is shown if it fails."""
    full = [sys.executable, "-m", "tuning", command, *map(str, args), "--storage", str(storage)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(full, capture_output=True, text=True, cwd=storage, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(full)}\n{done.stdout}{done.stderr}")


def main() -> None:
    """Print the table, a line as soon as a seed is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soups", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=SHIPPED)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--top", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], help="a change of the file")
    given = parser.parse_args()
    for line in (HEAD, ["---"] * len(HEAD)):
        print(f"| {' | '.join(line)} |", flush=True)
    with tempfile.TemporaryDirectory(prefix="tune-soups-") as folder:
        for seed in range(given.first, given.first + given.seeds):
            line = one_seed(given.file.resolve(), seed, given.top, given.set, Path(folder))
            print(f"| {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
