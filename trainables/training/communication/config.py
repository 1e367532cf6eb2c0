"""The hyperparameters `communication.*` of data-parallel trainables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from search_spaces.layout import Layout
from trainables.config import TrainableConfig

EXPOSED = "communication_exposed_seconds"
METRIC_NAMES = (
    "communication_seconds",
    EXPOSED,
    "communication_mib_sent",
    "bus_bandwidth_gib_s",
)
"""Reported per rank since the last report: time in all, time that the backward pass waited, what
it sent, and 2 (n - 1) / n of the gradients' bytes per second (n ranks)."""
GATHERED = ("topk", "int8")
"""Compressed forms that have no sum: each rank gathers those of all ranks."""
FEEDBACK = ("powersgd", *GATHERED)
"""Methods that keep what they left out, and add it to the next gradient."""


class CommunicationConfig(BaseModel):
    """How ranks average their gradients; nothing of it matters with one worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["builtin", "ring", "tree", "doubling", "hierarchical"] = Field(
        "builtin",
        description="algorithm of the all-reduce; builtin: that of the process group, while the "
        "backward pass goes on; the others are made of sends, and wait for each other",
    )
    compress: Literal["none", "fp16", "bf16", "powersgd", "topk", "int8"] = Field(
        "none",
        description="form in which gradients are sent; powersgd, topk and int8 add what they left "
        "out to the next gradient (error feedback)",
    )
    ratio: float = Field(0.01, gt=0, le=1, description="topk: fraction of each gradient's values")
    matrix_rank: int = Field(2, gt=0, description="powersgd: rank of the approximation")
    group_size: int = Field(2, gt=0, description="hierarchical: ranks of an inner group")
    bucket_mb: float = Field(
        25, gt=0, description="size of the pieces in which gradients are sent (MiB)"
    )
    find_unused_parameters: bool = Field(
        False, description="for models whose forward pass leaves parameters out"
    )
    static_graph: bool = Field(False, description="the forward pass is the same in each step")
    measure: bool = Field(
        False, description="report bytes, seconds and bandwidth also of the builtin method"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> CommunicationConfig:
        if self.compress in GATHERED and self.method != "builtin":
            raise ValueError(
                f"method {self.method} adds up gradients, but {self.compress} gathers them: "
                "it needs method builtin"
            )
        return self

    @property
    def hooked(self) -> bool:
        """Whether gradients travel in another way than DDP's own, or are measured."""
        return self.measure or not self.plain

    @property
    def plain(self) -> bool:
        """Whether gradients travel as `DistributedDataParallel` sends them."""
        return (self.method, self.compress) == ("builtin", "none")

    @property
    def has_feedback(self) -> bool:
        """Whether each rank keeps an error of its own, so that their number cannot change."""
        return self.compress in FEEDBACK

    def workers_problem(self, workers: Sequence[int]) -> str | None:
        """Why gradients cannot travel like this with each of these numbers of workers."""
        if self.has_feedback and len(workers) > 1:
            return (
                f"compress {self.compress} keeps an error for each worker, so resources.workers "
                f"must be one number, got {min(workers)} to {max(workers)}"
            )
        if max(workers) == 1 and self != CommunicationConfig():
            return "has no effect with one worker; set resources.workers, or leave it out"
        return None


class DataParallelConfig(TrainableConfig):
    """Base of the hyperparameters of trainables whose ranks average their gradients."""

    communication: CommunicationConfig = Field(
        default_factory=CommunicationConfig, description="how gradients are averaged"
    )

    def validate_workers(self, workers: Sequence[int]) -> tuple[str, str] | None:
        """Check `communication` too."""
        if self.communication.has_feedback and getattr(self, "dtype", None) == "float16":
            return "communication", (
                f"compress {self.communication.compress} would keep the overflows of dtype"
                " float16 in its error; use bfloat16, or compress fp16 or bf16"
            )
        if problem := self.communication.workers_problem(workers):
            return "communication", problem
        return super().validate_workers(workers)

    def validate_layout(self, layout: Layout) -> tuple[str, str] | None:
        """Refuse settings of `communication`, which is for whole gradients, with sharded ones."""
        if layout.shares_model and self.communication != CommunicationConfig():
            settings = self.communication.model_dump(exclude_defaults=True)
            given = ", ".join(f"{name} {value}" for name, value in settings.items())
            return "communication", (
                f"{given}: has no effect with layout {layout.as_written()}, whose gradients "
                "FSDP2 sends; remove it, or use layout: ddp"
            )
        return super().validate_layout(layout)
