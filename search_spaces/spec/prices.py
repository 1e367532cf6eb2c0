"""The `prices` section."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from search_spaces.spec.base import Section


class PricesSpec(Section):
    """What the machines cost; for `budget.cost`, and wherever a cost is shown."""

    cpu_hour: float = Field(0.0, ge=0, description="Price of a CPU core for an hour.")
    gpu_hour: float = Field(
        0.0, ge=0, description="Price of a GPU for an hour, if `accelerators` does not name it."
    )
    accelerators: dict[Annotated[str, Field(min_length=1)], Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="Price of a GPU for an hour by a part of its name, like {H200: 3.5, A100: 1.8}"
        "; the longest that fits counts. An attempt that runs has the dearest price.",
    )
    currency: str = Field("USD", min_length=1, max_length=8, description="Its name, for display.")

    @model_validator(mode="after")
    def _has_price(self) -> Self:
        if not (self.cpu_hour or self.gpu_hour or any(self.accelerators.values())):
            raise ValueError("needs cpu_hour, gpu_hour or one of accelerators above zero")
        return self

    def of_gpu(self, name: str | None) -> float:
        """Price of a GPU for an hour.

        Args:
            name: as its driver names it; None if it is not known: the dearest of all.
        """
        if name is None:
            return max([self.gpu_hour, *self.accelerators.values()])
        fitting = [part for part in self.accelerators if part.lower() in name.lower()]
        return self.accelerators[max(fitting, key=len)] if fitting else self.gpu_hour
