"""Stands in for Ray Train's actor in which the workers of a run meet when they report to it.

A lane's workers never do: they report to the mailbox, and meet in their process group. Ray Train
starts one for each run nevertheless, and its own imports Ray Train and Ray Data for seconds.
"""

from __future__ import annotations


class NoOpSyncActor:
    """Takes what Ray Train gives its own, and is ended as that is."""

    def __init__(self, timeout_s: float | None, warn_interval_s: float) -> None: ...
