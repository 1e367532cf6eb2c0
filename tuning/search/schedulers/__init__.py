"""Schedulers: early stopping, pausing and population based training.

A scheduler depends only on the reports that it gets, in order. Replaying the recorded reports
restores its state.
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
    """A new scheduler of the kind that a sweep names."""
    scheduler: Scheduler = resolve_name(SCHEDULERS[spec.name])(spec, domains or {}, seed)
    return scheduler
