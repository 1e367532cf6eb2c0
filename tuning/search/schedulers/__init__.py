"""Early stopping and pausing, by name. A scheduler is fed every report in order and depends on
nothing else, so feeding it the recorded reports again brings it back to where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name

from search_spaces.domains.domain import Domain
from search_spaces.spec.sweep import SchedulerSpec
from tuning.search.schedulers.base import Decision, Era, Exploit, History, Scheduler, Scores

__all__ = [
    "SCHEDULERS",
    "Decision",
    "Era",
    "Exploit",
    "History",
    "Scheduler",
    "Scores",
    "make_scheduler",
]

SCHEDULERS: dict[str, str] = {
    "asha": "tuning.search.schedulers.asha:Asha",
    "asha_promote": "tuning.search.schedulers.asha_promote:AshaPromote",
    "hyperband": "tuning.search.schedulers.hyperband:Hyperband",
    "median": "tuning.search.schedulers.median:MedianStopping",
    "pbt": "tuning.search.schedulers.pbt:Pbt",
    "pb2": "tuning.search.schedulers.pb2:Pb2",
    "none": "tuning.search.schedulers.base:Scheduler",
}


def make_scheduler(
    spec: SchedulerSpec, domains: Mapping[str, Domain] | None = None, seed: int = 0
) -> Scheduler:
    """The scheduler that a sweep names, without any report."""
    scheduler: Scheduler = resolve_name(SCHEDULERS[spec.name])(spec, domains or {}, seed)
    return scheduler
