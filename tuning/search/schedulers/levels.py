"""The steps at which trials of a sweep are compared, for what learns from them."""

from __future__ import annotations

from search_spaces.spec.sweep import SchedulerSpec
from tuning.search.schedulers.asha import milestones


def levels(spec: SchedulerSpec) -> tuple[float, ...]:
    """The rungs and `max_t`, ascending; nothing where every trial runs to its end."""
    if spec.name == "none" or spec.max_t is None:
        return ()
    return (*milestones(spec), float(spec.max_t))
