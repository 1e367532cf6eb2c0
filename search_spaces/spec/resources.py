"""What one trial takes."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from search_spaces.spec.base import Section
from search_spaces.spec.elastic import WorkerRange, Workers


def _whole_or_shared(gpus: float) -> float:
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"must be a whole number, or below 1 to share a GPU, got {gpus:g}")
    return gpus


class ResourcesSpec(Section):
    """What one trial takes, and how many run at once."""

    workers: Workers = Field(
        1,
        description="Ranks of a trial (processes); {min: 1, max: 4}: as many as there is room for.",
    )
    cpus_per_worker: float = Field(1, gt=0, description="CPU cores of one worker (cores).")
    gpus_per_worker: (
        Annotated[float, Field(ge=0), AfterValidator(_whole_or_shared)] | Literal["auto"]
    ) = Field(
        "auto",
        description="GPUs of one worker (GPUs); below 1, such as 0.25, workers share a GPU and "
        "each gets that part of its memory; auto: one if the cluster has enough, else 0.",
    )
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="Trials at once (trials); auto: as many as the cluster can place."
    )
    isolation: Literal["lane", "trial"] = Field(
        "lane", description="lane: processes take trial after trial; trial: fresh ones for each."
    )
    max_trials_per_lane: int | None = Field(
        None,
        ge=1,
        description="Trials after which a lane's processes are replaced (trials); default: never.",
    )
    max_lane_growth: int = Field(
        512,
        ge=1,
        description="Memory, of the host or of a GPU, that a process may hold beyond what it held "
        "after its lane's first trial; beyond it the lane is replaced (MiB).",
    )

    @property
    def min_workers(self) -> int:
        """The fewest workers that a trial may have."""
        return self.workers.min if isinstance(self.workers, WorkerRange) else self.workers

    @property
    def max_workers(self) -> int:
        """The most workers that a trial may have."""
        return self.workers.max if isinstance(self.workers, WorkerRange) else self.workers

    @property
    def elastic(self) -> bool:
        """Whether a trial's number of workers may change."""
        return self.min_workers < self.max_workers

    @property
    def grow_after_s(self) -> float:
        """Seconds for which room must be unused before a trial grows into it."""
        return self.workers.grow_after if isinstance(self.workers, WorkerRange) else math.inf
