"""`tune`, with a note of how long the driver's event loop stood still during its trials.

`python -m benchmarks.beats FILE run sweep.yaml`: FILE gets pairs of Unix seconds and seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tuning.cli import main as tune
from tuning.controller import worker_manager
from tuning.controller.resources.placement import Placement
from tuning.controller.sweep import SweepController

_NOTED_S = 0.02
"""Shorter turns of the loop are left out."""


def noting(gaps: list[tuple[float, float]], run_trials: Callable[..., None]) -> Callable[..., None]:
    """The function that runs a sweep's trials, adding the end and the length of long turns."""

    def noted(run: SweepController, placement: Placement, between: Callable[[], None]) -> None:
        last = None

        def turn() -> None:
            nonlocal last
            now = time.time()
            if last is not None and now - last > _NOTED_S:
                gaps.append((now, now - last))
            last = now
            between()

        run_trials(run, placement, turn)

    return noted


def main() -> None:
    """Run `tune` in this process and write the gaps."""
    file, gaps = Path(sys.argv.pop(1)), list[tuple[float, float]]()
    worker_manager.run_trials = noting(gaps, worker_manager.run_trials)
    try:
        tune()
    finally:
        file.write_text(json.dumps(gaps))


if __name__ == "__main__":
    main()
