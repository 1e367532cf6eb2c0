"""Measures the live page of a large sweep in Chromium: first paint, tables, and all plots.

`python -m benchmarks.live_page --help`.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cli_speed import make_sweep
from benchmarks.process import ROOT

_TARGET_S = 1.0
_PARTS = {
    "paint": "first paint",
    "head": "progress, winner",
    "table": "table of trials",
    "plots": "all plots",
}
"""What live.js notes in the page, in its words and ours."""


@contextmanager
def served(storage: Path) -> Iterator[str]:
    """The address of the live page of the sweep `large`, served by the real command."""
    command = [sys.executable, "-m", "tuning", "ui", "--live", "large", "--port", "0"]
    with subprocess.Popen(
        [*command, "--no-browser", "--storage", str(storage)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def visit(address: str, wait_s: float) -> dict[str, float]:
    """Milliseconds from the request until each part of the page is there, in a new browser."""
    flags = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"]
    done = subprocess.run(
        ["chromium", *flags, f"--timeout={wait_s * 1000:.0f}", "--dump-dom", address],
        capture_output=True,
        text=True,
        check=True,
    )
    return {key: float(ms) for key, ms in re.findall(r'data-(\w+)="(\d+)"', done.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--reports", type=int, default=20, help="of each trial")
    parser.add_argument("--visits", type=int, default=3)
    parser.add_argument("--wait", type=float, default=20.0, help="seconds for each visit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_sweep(Path(folder), options.trials, options.reports)
        begin = time.perf_counter()
        with served(Path(folder)) as address:
            print(f"{options.trials} trials of {options.reports} reports")
            print(f"the server listens after {time.perf_counter() - begin:.2f} s\n")
            print(f"| visit | {' | '.join(f'{name} (s)' for name in _PARTS.values())} | |")
            print(f"|---|{'---:|' * len(_PARTS)}---|")
            for number in range(options.visits):
                marks = visit(address, options.wait)
                row = [f"{marks[key] / 1000:.2f}" if key in marks else "-" for key in _PARTS]
                met = marks.get("paint", math.inf) < 1000 * _TARGET_S
                print(f"| {number + 1} | {' | '.join(row)} | {'met' if met else 'MISSED'} |")


if __name__ == "__main__":
    main()
