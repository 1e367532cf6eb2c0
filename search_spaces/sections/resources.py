"""What one trial takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from search_spaces.sections.base import Section


class ResourcesSpec(Section):
    """What one trial takes, and how many run at once."""

    workers: int = Field(1, ge=1, description="Ranks of a trial (processes).")
    cpus_per_worker: float = Field(1, gt=0, description="CPU cores of one worker (cores).")
    gpus_per_worker: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto",
        description="GPUs of one worker (GPUs); auto: one if the cluster has enough, else 0.",
    )
    concurrency: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="Trials at once (trials); auto: as many as the cluster can place."
    )
    isolation: Literal["lane", "trial"] = Field(
        "lane", description="lane: processes take trial after trial; trial: fresh ones for each."
    )
