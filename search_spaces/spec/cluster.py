"""The `cluster` section: machines beyond this one, for `tune render` and simulations."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from search_spaces.spec.base import Section

_IMAGE = re.compile(r"[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*|@sha256:[0-9a-f]{64})")


class ClusterSpec(Section):
    """Equal machines on which a sweep runs, which start and go as it needs them."""

    max_nodes: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="Most machines for workers (machines); default: no cluster.",
    )
    min_nodes: int = Field(1, ge=0, description="Machines that are always there (machines).")
    cpus: int = Field(8, ge=1, description="CPU cores of a machine (cores).")
    gpus: int = Field(0, ge=0, description="GPUs of a machine (GPUs).")
    memory: int = Field(32, ge=2, description="Memory of a machine (GiB).")
    bandwidth: float | None = Field(
        None,
        gt=0,
        description="What a worker sends to other machines (GB/s); for tune plan --simulate.",
    )
    local_bandwidth: float | None = Field(
        None,
        gt=0,
        description="What a worker sends within its machine (GB/s); default: bandwidth.",
    )
    latency: float = Field(
        10, ge=0, description="Time until a message arrives on another machine (microseconds)."
    )
    tflops: float | None = Field(
        None,
        gt=0,
        description="What a worker computes in training, as measured (TFLOP/s); for "
        "tune plan --simulate.",
    )
    image: str | None = Field(
        None,
        description="Container image with its tag or digest: registry.example.org/tune:1.0.",
    )
    namespace: str = Field(
        "ray",
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        max_length=40,
        description="Namespace of Kubernetes.",
    )

    @field_validator("image")
    @classmethod
    def _is_pinned(cls, image: str | None) -> str | None:
        if image is not None and (not _IMAGE.fullmatch(image) or image.endswith(":latest")):
            raise ValueError(
                "needs a tag that stays what it is, or a digest, like example.org/tune:1.0, "
                f"got {image}"
            )
        return image

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if self.max_nodes is not None and self.min_nodes > self.max_nodes:
            raise ValueError(f"min_nodes {self.min_nodes} is above max_nodes {self.max_nodes}")
        return self
