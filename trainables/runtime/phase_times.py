"""A clock that counts each moment of a rank to one phase of its work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

_START, _COMPUTE = "start", "compute"


class PhaseTimes:
    """Seconds by phase; see `results.records.worker_samples.PHASES`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._phase, self._since = _START, time.perf_counter()

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the block to a phase, without blocks inside it that have another."""
        outer = self._switch(phase)
        try:
            yield
        finally:
            self._switch(outer)

    def started(self) -> None:
        """From now on what has no phase is `compute`."""
        if self._phase == _START:
            self._switch(_COMPUTE)

    def waited(self, seconds: float) -> None:
        """Count seconds of `compute` since the last `take` to `communication`."""
        self._switch(self._phase)
        part = min(max(0.0, seconds), self._seconds.get(_COMPUTE, 0.0))
        self._add(_COMPUTE, -part)
        self._add("communication", part)

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        self._switch(self._phase)
        taken, self._seconds = self._seconds, {}
        return taken

    def _switch(self, phase: str) -> str:
        now, before = time.perf_counter(), self._phase
        self._add(before, now - self._since)
        self._phase, self._since = phase, now
        return before

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
