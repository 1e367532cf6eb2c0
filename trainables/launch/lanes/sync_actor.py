"""Replaces Ray Train's actor through which the workers of a run synchronise their reports.

A lane's workers report to the broker and synchronise in their process group. Ray Train starts the
actor for each run all the same, and its own class imports Ray Train and Ray Data for seconds. This
class is alone in its module, so that its process imports nothing.
"""

from __future__ import annotations


class NoOpSyncActor:
    """Takes the arguments of Ray Train's own actor and does nothing."""

    def __init__(self, **_: object) -> None: ...
