"""Runs `tune`, and measures long iterations of the driver's event loop.

`python -m benchmarks.loop_delays FILE run sweep.yaml` writes pairs of Unix seconds and seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tuning.cli import main as tune
from tuning.controller.ray_tune import runner
from tuning.controller.resources.placement import Placement
from tuning.controller.sweep import SweepController

_SHORTEST_S = 0.02
"""Shorter iterations are not recorded."""


def measured(
    delays: list[tuple[float, float]], run_trials: Callable[..., None]
) -> Callable[..., None]:
    """Wrap `run_trials`: append the end and the seconds of each long iteration to `delays`."""

    def run_measured(
        run: SweepController, placement: Placement, between: Callable[[], None]
    ) -> None:
        last = None

        def iteration() -> None:
            nonlocal last
            now = time.time()
            if last is not None and now - last > _SHORTEST_S:
                delays.append((now, now - last))
            last = now
            between()

        run_trials(run, placement, iteration)

    return run_measured


def main() -> None:
    """Run `tune` in this process, and write the delays."""
    file, delays = Path(sys.argv.pop(1)), list[tuple[float, float]]()
    runner.run_trials = measured(delays, runner.run_trials)
    try:
        tune()
    finally:
        file.write_text(json.dumps(delays))


if __name__ == "__main__":
    main()
