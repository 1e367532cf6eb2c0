"""`metric` and `mode`: one objective, or a list of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from search_spaces.limits import limit

MAX_METRICS = 20
Mode = Literal["min", "max"]
Metrics = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2)]
)
Modes = Mode | Annotated[list[Mode], Field(min_length=2)]


@dataclass(frozen=True)
class Objective:
    """A reported metric, and whether less or more of it is better."""

    metric: str
    mode: Mode


def objectives(metrics: Metrics, modes: Modes) -> tuple[Objective, ...]:
    """Pair metrics with modes; a single mode applies to all metrics."""
    names = [metrics] if isinstance(metrics, str) else metrics
    goals: list[Mode] = modes if isinstance(modes, list) else [modes] * len(names)
    return tuple(Objective(n, g) for n, g in zip(names, goals, strict=True))


def check_pairs(metrics: Metrics, modes: Modes) -> None:
    """Refuse lists that do not match.

    Raises:
        ValueError: too many metrics, one is named twice, or modes and metrics differ in number.
    """
    names = [metrics] if isinstance(metrics, str) else metrics
    if len(set(names)) < len(names):
        raise ValueError(f"needs metrics that differ, got {', '.join(names)}")
    if len(names) > limit(MAX_METRICS):
        raise ValueError(f"takes at most {MAX_METRICS} metrics, got {len(names)}")
    if isinstance(modes, list) and len(modes) != len(names):
        raise ValueError(f"needs one mode, or one for each of {', '.join(names)}, got {len(modes)}")
