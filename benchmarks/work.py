"""The sweep that every contender runs: its size, search space, work and metric.

It imports nothing heavy and nothing of this platform, so that no contender pays for such imports.
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
"""Of ASHA, in reports; `max_t` is the number of a trial's reports."""
STARTUP_TRIALS = 10
"""Random trials before TPE's model proposes any: Optuna's default, and ours."""


@dataclass(frozen=True)
class Workload:
    """The size of the sweep.

    Attributes:
        trials: in all.
        reports: of a trial that is not stopped early.
        work_s: seconds of work of such a trial, spread evenly over its reports.
        workers: DDP ranks of a trial.
        at_once: concurrent trials.
        cpus_per_worker: cores, as Ray counts them.
        seed: of the search.
        grace_period: reports before ASHA may stop a trial; `reports` to stop none.
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
        """The job as text, for a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Workload:
        """The job of a text."""
        return Workload(**json.loads(text))


@dataclass(frozen=True)
class TrialTimes:
    """Times of one trial, in Unix seconds.

    Attributes:
        reports: when the training code made each report.
        ended: when the trial ended; its last report if nothing later is known.
        began: when the loop began, if it says so.
    """

    reports: tuple[float, ...]
    ended: float
    began: float | None = None


def write_times(path: Path, trials: Sequence[TrialTimes]) -> None:
    """Write the times of a contender's trials for the benchmark."""
    path.write_text(json.dumps([asdict(t) for t in trials]))


def read_times(path: Path) -> list[TrialTimes]:
    """Read what `write_times` wrote."""
    found = json.loads(path.read_text())
    return [TrialTimes(tuple(t["reports"]), t["ended"], t["began"]) for t in found]


def loss_at(x: float, learning_rate: float, step: int) -> float:
    """The metric after a step. The order of two trials is the same at every step."""
    return (x - 0.3) ** 2 + 0.1 * (math.log10(learning_rate) + 2.5) ** 2 + 1 / step


def tiny_model() -> torch.nn.Module:
    """A model of 72 weights: it computes almost nothing, but its ranks synchronize."""
    import torch

    return torch.nn.Linear(8, 8)


def work(model: torch.nn.Module, seconds: float) -> None:
    """One step: a backward pass, averaged over the ranks if the model is DDP; then sleep.

    It sleeps instead of computing, so that the ideal time does not depend on shared cores.
    """
    import torch

    began = time.monotonic()
    model.zero_grad()
    model(torch.ones(1, 8)).sum().backward()
    time.sleep(max(0.0, began + seconds - time.monotonic()))
