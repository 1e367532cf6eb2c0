"""The sweep that every contender runs: its size, its search space, its work and its metric.

Imports nothing heavy and nothing of the platform: a contender must not pay for another's imports.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

X = (0.0, 1.0)
"""Range of the parameter `x`, searched uniformly."""
LEARNING_RATE = (1e-4, 1e-1)
"""Range of the parameter `learning_rate`, searched over orders of magnitude."""
GRACE_PERIOD, REDUCTION_FACTOR = 1, 3
"""Of ASHA, in reports; a trial's last report is its `max_t`."""
STARTUP_TRIALS = 10
"""Random trials before TPE's model proposes any: Optuna's default, and ours."""


@dataclass(frozen=True)
class Job:
    """The size of the sweep.

    Attributes:
        trials: in all.
        reports: of a trial that is not stopped early.
        work_s: seconds that such a trial computes, spread evenly over its reports.
        workers: DDP ranks of a trial.
        at_once: trials that run at once.
        cpus_per_worker: cores, as Ray counts them.
        seed: of the search.
        grace_period: reports before ASHA may stop a trial; as many as `reports` to stop none.
    """

    trials: int
    reports: int
    work_s: float
    workers: int
    at_once: int
    cpus_per_worker: float
    seed: int
    grace_period: int = GRACE_PERIOD

    @property
    def step_s(self) -> float:
        """Seconds of work before each report."""
        return self.work_s / self.reports

    def dumps(self) -> str:
        """As text, for a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Job:
        """From text."""
        return Job(**json.loads(text))


@dataclass(frozen=True)
class Times:
    """When one trial was heard of, in Unix seconds.

    Attributes:
        reports: when the training code made each report.
        ended: when the trial was over; its last report where nothing later is known.
    """

    reports: tuple[float, ...]
    ended: float


def write_times(path: Path, trials: Sequence[Times]) -> None:
    """What a contender leaves for the benchmark to read."""
    path.write_text(json.dumps([asdict(t) for t in trials]))


def read_times(path: Path) -> list[Times]:
    """What `write_times` wrote."""
    return [Times(tuple(t["reports"]), t["ended"]) for t in json.loads(path.read_text())]


def loss_at(x: float, learning_rate: float, step: int) -> float:
    """The metric after a step: the order of two trials is the same at every step."""
    return (x - 0.3) ** 2 + 0.1 * (math.log10(learning_rate) + 2.5) ** 2 + 1 / step


def tiny_model() -> torch.nn.Module:
    """72 weights: what it computes costs nothing, that all ranks must meet is the point."""
    import torch

    return torch.nn.Linear(8, 8)


def work(model: torch.nn.Module, seconds: float) -> None:
    """One step: a backward pass, averaged over the ranks if the model is DDP; then sleep.

    Sleeping, not computing: the ideal time is known, however many trials share the cores.
    """
    import torch

    began = time.monotonic()
    model.zero_grad()
    model(torch.ones(1, 8)).sum().backward()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
