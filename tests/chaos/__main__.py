"""`make chaos`: faults in numbers, and a table of what became of them.

python -m tests.chaos [--kills 50] [--fuzz 10000] [--rows 5,6,8,fuzz] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos import rows


def main() -> int:
    """Run the rows that were asked for; gives 1 when anything was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="driver kills (row 5)")
    parser.add_argument("--fuzz", type=int, default=10_000, help="sweep files; folders: one in 25")
    parser.add_argument("--rows", default="5,6,8,fuzz", help="which, by comma")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.environ["COLUMNS"] = "120"
    chosen = {
        "5": (rows.killed_drivers, asked.kills),
        "6": (rows.interrupted_commits, 10**6),
        "8": (rows.damaged_folders, max(1, asked.fuzz // 25)),
        "fuzz": (rows.fuzzed_files, asked.fuzz),
    }
    made = []
    for name in asked.rows.split(","):
        row, count = chosen[name]
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            made.append(row(Path(folder), count, random.Random(asked.seed)))
            sys.stderr.write(f"row {name}: {made[-1].survived} of {made[-1].injected}\n")
    print_table(made)
    return any(row.problems for row in made)


def print_table(made: list[rows.Row]) -> None:
    """Markdown, for docs/reliability.md; what was broken follows it."""
    print("| Fault | Injected | Survived | Steps done twice, at most | Recovery, at most |")
    print("| --- | --- | --- | --- | --- |")
    for row in made:
        recovery = f"{row.recovery_s:.0f} s" if row.recovery_s else "-"
        print(f"| {row.fault} | {row.injected} | {row.survived} | {row.lost} | {recovery} |")
    for problem in (p for row in made for p in row.problems):
        print(problem)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
