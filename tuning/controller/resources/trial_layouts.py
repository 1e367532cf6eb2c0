"""The layout of each attempt: that of the sweep file, or the first that fits the memory."""

from __future__ import annotations

import json
import math
from functools import lru_cache
from pathlib import Path

from results.records.failures import Remedy
from results.records.trial import TrialRecord
from search_spaces.errors import UserError
from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.resources.layouts import (
    Choice,
    Probes,
    WorkerMemory,
    choice_of,
    worker_memory,
)

NO_MEMORY = (
    "auto needs the memory of a worker, and this machine shows no GPU; set "
    "resources.memory_per_worker (GiB)"
)
"""Why `auto` cannot choose."""
_KNOWN = 256
"""Configurations whose layouts are kept."""


class TrialLayouts:
    """Every attempt has the layout of the sweep file."""

    def __init__(self, spec: SweepSpec) -> None:
        self._spec, self._resources = spec, spec.resources

    def fewest_workers(self, record: TrialRecord) -> int | None:
        """The fewest workers with which a trial fits; None: it does not fit with any."""
        return self._resources.min_workers

    def choose(self, record: TrialRecord, workers: int) -> Layout | None:
        """The layout of a trial's next attempt, of at most so many workers.

        None: it is that of the sweep file, or none fits.
        """
        return None

    def larger(self, record: TrialRecord) -> Layout | None:
        """The next layout, which needs less memory than that of the newest attempt; None: none."""
        return None

    def data_parallel(self, record: TrialRecord) -> int:
        """Ranks of the newest attempt that share a batch."""
        return self._resources.data_parallel(record.attempts[-1].workers)

    def may_shrink(self, record: TrialRecord) -> bool:
        """Whether a smaller micro-batch changes the memory of the newest attempt.

        Not with `pp`, whose layout says how many samples are computed at once.
        """
        return layout_section(record, self._spec).pp == 1

    def problem(self, record: TrialRecord) -> str:
        """Why a trial fits with no number of workers, in one line."""
        return ""


class ChosenLayouts(TrialLayouts):
    """An attempt has the first layout that fits; after out of memory, one that needs less."""

    def __init__(self, spec: SweepSpec, memory: WorkerMemory, probes: Probes) -> None:
        super().__init__(spec)
        self._memory, self._probes = memory, probes
        self._compute = lru_cache(_KNOWN)(self._choice_of)

    def fewest_workers(self, record: TrialRecord) -> int | None:
        """See `TrialLayouts`."""
        counts = range(self._resources.min_workers, self._resources.max_workers + 1)
        return next((count for count in counts if self._eligible(record, count)), None)

    def choose(self, record: TrialRecord, workers: int) -> Layout | None:
        """That of as many workers as possible; the one before stays, where it still fits."""
        for count in range(workers, self._resources.min_workers - 1, -1):
            if found := self._eligible(record, count):
                before = layout_of(record)  # on which it goes on bit for bit
                return before if before in found else found[0]
        return None

    def larger(self, record: TrialRecord) -> Layout | None:
        """See `TrialLayouts`."""
        last = record.attempts[-1].model_copy(update={"remedy": Remedy.LARGER_LAYOUT})
        failed = record.model_copy(update={"attempts": (*record.attempts[:-1], last)})
        return self.choose(failed, self._resources.max_workers)

    def data_parallel(self, record: TrialRecord) -> int:
        """See `TrialLayouts`."""
        layout = layout_of(record)
        return super().data_parallel(record) if layout is None else layout.data_parallel

    def problem(self, record: TrialRecord) -> str:
        """See `TrialLayouts`."""
        return self._choice(record).problem

    def _eligible(self, record: TrialRecord, workers: int) -> list[Layout]:
        """The layouts of so many workers that fit, and need less than any that did not."""
        choice = self._choice(record)
        failed = {
            layout_of(record, number)
            for number, attempt in enumerate(record.attempts)
            if attempt.remedy is Remedy.LARGER_LAYOUT
        }
        limits = [one.memory.peak for one in choice.estimates if one.layout in failed]
        most = min(limits, default=math.inf)
        return [
            one.layout for one in choice.fitting if one.ranks == workers and one.memory.peak < most
        ]

    def _choice(self, record: TrialRecord) -> Choice:
        """The layouts of a trial; the driver asks again and again for those that run."""
        config = {**record.config, **record.adjusted}
        return self._compute(json.dumps(config, sort_keys=True, default=str))

    def _choice_of(self, config: str) -> Choice:
        return self._probes.add_to(choice_of(self._spec, json.loads(config), self._memory))


def trial_layouts(spec: SweepSpec, storage: Path) -> TrialLayouts:
    """Chooses the layouts of a sweep's attempts.

    Args:
        spec: of the sweep.
        storage: where `tune probe` keeps what it has found.

    Raises:
        UserError: `auto` does not know the memory of a worker.
    """
    if not spec.resources.chooses_layout:
        return TrialLayouts(spec)
    memory = worker_memory(spec.resources)
    if memory is None:
        raise UserError(f"resources.layout: {NO_MEMORY}")
    return ChosenLayouts(spec, memory, Probes(storage))


def layout_of(record: TrialRecord, attempt: int = -1) -> Layout | None:
    """The layout that was chosen for an attempt; None: that of the sweep file, or no attempt."""
    if not record.attempts or (layout := record.attempts[attempt].layout) is None:
        return None
    return layout.resolve(record.attempts[attempt].workers)


def layout_section(record: TrialRecord, spec: SweepSpec) -> LayoutSpec:
    """The layout of a trial's newest attempt."""
    chosen = record.attempts[-1].layout if record.attempts else None
    return chosen or spec.resources.written_layout
