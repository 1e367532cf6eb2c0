"""Runs `tune` with lanes that train nothing, on a cluster of virtual machines.

`python -m benchmarks.driver_process SETTINGS resume SWEEP ...`; SETTINGS is a `Settings` as JSON.
The session, its driver, Ray Tune, Ray and the broker are the real ones.
"""

from __future__ import annotations

import cProfile
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CPUS_PER_NODE = 8


@dataclass(frozen=True)
class Settings:
    """What the lanes do.

    Attributes:
        nodes: virtual machines, of `CPUS_PER_NODE` lanes each.
        interval_s, reports: see `LaneWorkers`.
        folder: gets what was measured.
        profile: whether to profile the driver's main thread.
    """

    nodes: int
    interval_s: float
    reports: int
    folder: str
    profile: bool = False

    @property
    def lanes(self) -> int:
        """Workers, which are concurrent trials."""
        return self.nodes * CPUS_PER_NODE

    def dumps(self) -> str:
        """As text, for a command line."""
        return json.dumps(asdict(self))


def use_virtual_machines(settings: Settings) -> None:
    """Show the session so many machines; one Ray node runs all processes."""
    from tuning.cluster import connection as cluster
    from tuning.controller.resources.placement import Node

    nodes = [Node(CPUS_PER_NODE, 0.0, f"node-{i}", f"10.0.0.{i}") for i in range(settings.nodes)]
    cluster.cluster_nodes = cluster.available_nodes = lambda: nodes


def use_fake_lanes(settings: Settings) -> None:
    """Start lanes that train nothing in place of a sweep's workers."""
    from benchmarks.fake_lanes import FakeLanePool
    from trainables.launch import worker_pool
    from trainables.launch.broker.actor import start_broker

    def start(*_: Any, **__: Any) -> Any:
        broker, folder = start_broker(), Path(settings.folder)
        lanes, interval_s = settings.lanes, settings.interval_s
        return FakeLanePool(broker, lanes, interval_s, settings.reports, folder), broker

    worker_pool.start_pool = start


def time_proposals(proposals: list[tuple[float, float]]) -> None:
    """Append when each proposal was made (Unix seconds), and the seconds that it took."""
    from tuning.search.study.study import SweepStudy

    ask = SweepStudy.ask

    def timed(self: SweepStudy, *args: Any, **more: Any) -> Any:
        began = time.time()
        found = ask(self, *args, **more)
        proposals.append((began, time.time() - began))
        return found

    SweepStudy.ask = timed  # type: ignore[method-assign]


def main() -> None:
    """Run `tune` in this process."""
    settings, proposals = Settings(**json.loads(sys.argv.pop(1))), list[tuple[float, float]]()
    from tuning.cli import main as tune

    use_virtual_machines(settings)
    use_fake_lanes(settings)
    time_proposals(proposals)
    folder = Path(settings.folder)
    with ExitStack() as stack:
        stack.callback(lambda: (folder / "proposals.json").write_text(json.dumps(proposals)))
        if settings.profile:
            profiler = stack.enter_context(cProfile.Profile())
            stack.callback(lambda: profiler.dump_stats(folder / "driver.prof"))
        tune()


if __name__ == "__main__":
    main()
