"""Early stopping and pausing, by name. A scheduler is fed every report in order and depends on
nothing else, so feeding it the recorded reports again brings it back to where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name

from search_spaces.domains.domain import Domain
from search_spaces.spec.scheduler import SCHEDULERS, SchedulerSpec
from tuning.search.schedulers.base import Decision, Era, Exploit, History, Scheduler, Scores

__all__ = [
    "Decision",
    "Era",
    "Exploit",
    "History",
    "Scheduler",
    "Scores",
    "make_scheduler",
]


def make_scheduler(
    spec: SchedulerSpec, domains: Mapping[str, Domain] | None = None, seed: int = 0
) -> Scheduler:
    """The scheduler that a sweep names, without any report."""
    scheduler: Scheduler = resolve_name(SCHEDULERS[spec.name])(spec, domains or {}, seed)
    return scheduler
