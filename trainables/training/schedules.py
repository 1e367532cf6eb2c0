"""Learning rate schedules: a factor of the peak by the number of optimizer steps done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

Schedule = Literal["cosine", "wsd", "linear", "constant"]
FINAL_LR = 0.1
"""Last factor of the schedules that decay."""


def lr_factor(schedule: Schedule, warmup: int, decay: int, total: int) -> Callable[[int], float]:
    """Linear warmup, then the schedule.

    Args:
        schedule: cosine and linear decay from the warmup to the end; wsd (warmup, stable, decay:
            Hu et al. 2024) decays linearly in the last `decay` steps; constant never decays.
        warmup, decay, total: optimizer steps.
    """
    begins = max(warmup, total - decay) if schedule == "wsd" else warmup

    def factor(done: int) -> float:
        if done < warmup:
            return (done + 1) / (warmup + 1)
        if schedule == "constant":
            return 1.0
        progress = min(1.0, max(0, done - begins) / max(1, total - begins))
        if schedule == "cosine":
            return FINAL_LR + (1 - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * progress))
        return FINAL_LR + (1 - FINAL_LR) * (1 - progress)

    return factor


def schedule_of(config: Any, total: int) -> Callable[[int], float]:
    """The factor by `schedule`, `warmup_fraction` and `decay_fraction` of a configuration."""
    warmup, decay = round(config.warmup_fraction * total), round(config.decay_fraction * total)
    return lr_factor(config.schedule, warmup, decay, total)
