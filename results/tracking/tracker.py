"""The interface of trackers, which show a sweep elsewhere while its folder stays the record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.spec.budget import PricesSpec


@dataclass(frozen=True)
class PipelineFacts:
    """The pipeline of which a sweep is a stage.

    Attributes:
        key: identifies it, also after its folder was moved or renamed.
    """

    key: str
    name: str


@dataclass(frozen=True)
class SweepFacts:
    """Data of the sweep as a whole for a tracker.

    Attributes:
        key: identifies the sweep, also after its folder was moved or renamed.
        tags, params: of the sweep's own run.
        prices: with which the cost of each trial is logged, if there are any.
        description: of that run, in Markdown; people may change it.
        started: Unix seconds of its first session.
        is_population: whether trials change their parameters while they run.
        artifacts: file name to text, stored with that run.
        pipeline: whose run is the parent of that run; None for a sweep of its own.
    """

    key: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, object]
    artifacts: Mapping[str, str] = field(default_factory=dict)
    pipeline: PipelineFacts | None = None
    prices: PricesSpec | None = None
    description: str = ""
    started: float = field(default_factory=time.time)
    is_population: bool = False


@dataclass(frozen=True)
class Ending:
    """The end of a session.

    Attributes:
        status: FINISHED, KILLED (interrupted) or FAILED.
        metrics: of the sweep as a whole.
        time: when it ended, in Unix seconds.
    """

    status: str
    metrics: Mapping[str, float]
    time: float = field(default_factory=time.time, compare=False)


class Tracker:
    """Copies the content of a sweep folder elsewhere; this one does nothing.

    Methods never raise; only `close` waits.
    """

    def changed(self, trial_id: str, *, reported: bool) -> None:
        """A trial's files have changed; `reported`: a report was added."""

    def closes_soon(self) -> None:
        """No trial runs any more: what takes long before a delivery may begin."""

    def abandon(self) -> None:
        """An error ended the session: a later one delivers the rest."""

    def close(self, ending: Ending, timeout: float) -> str | None:
        """The session has ended: deliver the rest, for about `timeout` seconds.

        Returns:
            One line on what was not delivered; None when everything was.
        """
        return None
