"""The `prices` section."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from search_spaces.spec.base import Section


class PricesSpec(Section):
    """What the machines cost; for `budget.cost`, and wherever a cost is shown."""

    cpu_hour: float = Field(0.0, ge=0, description="Price of a CPU core for an hour.")
    gpu_hour: float = Field(0.0, ge=0, description="Price of a GPU for an hour.")
    currency: str = Field("USD", min_length=1, max_length=8, description="Its name, for display.")

    @model_validator(mode="after")
    def _has_price(self) -> Self:
        if not (self.cpu_hour or self.gpu_hour):
            raise ValueError("needs cpu_hour or gpu_hour above zero")
        return self
