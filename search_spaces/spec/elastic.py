"""How many workers a trial has: a number, or a range within which it follows the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from search_spaces.nested import show
from search_spaces.spec.base import Seconds, Section


class WorkerRange(Section):
    """A trial has as many workers as there is room for, within a range."""

    min: int = Field(1, ge=1, description="Fewest ranks of a trial (processes).")
    max: int = Field(ge=1, description="Most ranks of a trial (processes).")
    grow_after: Seconds = Field(
        60.0,
        description="How long room must be unused before a trial grows into it (or '5m').",
    )

    @model_validator(mode="after")
    def _ascends(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        return self


def _in_words(value: object) -> object:
    """One line for whatever is wrong with a number of workers."""
    if isinstance(value, WorkerRange):
        return value
    if isinstance(value, Mapping):
        try:
            return WorkerRange.model_validate(dict(value))
        except ValidationError:
            pass
    elif isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(
        "must be a whole number >= 1, or like {min: 1, max: 4, grow_after: 60s} with min <= max, "
        f"got {show(value)}"
    )


Workers = Annotated[Annotated[int, Field(ge=1)] | WorkerRange, BeforeValidator(_in_words)]
