"""What the live page of a sweep shows, sent to every browser that looks at it as it changes.

The records are read as they grow. A part of the page is sent again only if it is another than
before. The page that begins to look gets all parts at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from results.analysis.selection import Trial
from results.paths import SweepPaths
from results.records.notes import read_notes
from results.records.spec_file import read_spec
from results.records.trial import Report, TrialRecord
from results.report.page import section_messages, unit_for
from results.report.sweep_data import SweepData, assemble, read_phases
from results.report.sweep_page import head, sections, state
from results.report.trial_rows import trial_rows
from results.sweep_folder.folder import total_elapsed_s
from results.sweep_folder.lock import current_driver
from search_spaces.errors import UserError
from tuning.controller.commands import pending_commands
from tuning.controller.resources.forecast import forecast, mean_trial_cost
from tuning.search.importance import with_importances
from tuning.watch.follow import RecordReader
from tuning.watch.sweep_metadata import with_search

POLL_S = 0.5
_BUSY = 4
"""A poll that takes long is followed by a pause of so many times its duration."""
_SLOW = 20
"""The same for importance and phases, which take longest."""
_REDRAW_S = 10.0
"""While a driver runs, what grows with time alone is drawn so often."""
_KEEP_ALIVE_S = 15.0

_TRIAL = "trial "
"""Begins the name of a part that is the row of a trial; those that change are sent together."""

Publish = Callable[[str, str], None]


@dataclass
class RecordSource:
    """Where the records of a sweep are: a folder on this machine, or on storage that it shares.

    Attributes:
        paths: the folder that is read.
        read_only: why the page cannot change the sweep; empty if it can.
    """

    paths: SweepPaths
    read_only: str = ""

    def refresh(self) -> None:
        """Bring the folder up to date; it is."""

    def driver(self) -> str | None:
        """The driver in words; None if there is none."""
        return current_driver(self.paths.lock)


class Snapshot:
    """The parts of the page, computed from the records; used by one thread at a time."""

    def __init__(self, source: RecordSource) -> None:
        self._source, self._reader = source, RecordReader(source.paths)
        self._trials: dict[str, tuple[TrialRecord, list[Report]]] = {}
        self._data: SweepData | None = None
        self._slow: tuple[Any, float] = (None, 0.0)
        self._drawn, self._changed = 0.0, False
        self._driver: str | None = None

    def update(self, publish: Publish) -> None:
        """Read what is new, and publish the parts that may have changed."""
        self._source.refresh()
        self._changed |= self._read()  # until it is published: an error may come before
        driver = self._source.driver()
        self._changed |= driver != self._driver or self._data is None
        notes = read_notes(self._source.paths)
        self._changed |= self._data is not None and notes != self._data.notes
        changed, self._driver = self._changed, driver
        due = driver is not None and time.monotonic() > self._drawn + _REDRAW_S
        if changed or due or driver is not None:
            if changed or due:
                self._data = self._assembled()
            assert self._data is not None
            self._publish_head(publish)
        if changed and self._data is not None:
            for row in trial_rows(self._data):
                publish(f"{_TRIAL}{row['id']}", json.dumps(row))
        if changed or due:
            self._publish_sections(publish)
            if self._slow_is_due():
                self._publish_head(publish)
                self._publish_sections(publish)
            self._drawn, self._changed = time.monotonic(), False

    def _read(self) -> bool:
        changes = self._reader.changes()
        for _, record, new in changes:
            known = self._trials.get(record.id, (record, []))[1]
            if known and new and new[0].step <= known[-1].step:  # an attempt began earlier again
                files = self._source.paths.trial(record.id)
                known, new = [], record.read_chain(files).reports(record.end_step)
            end = record.end_step
            kept = [r for r in (*known, *new) if end is None or r.step <= end]
            self._trials[record.id] = record, kept
        return bool(changes)

    def _assembled(self) -> SweepData:
        paths, old = self._source.paths, self._data
        trials: list[Trial] = [self._trials[key] for key in sorted(self._trials)]
        data = with_search(assemble(paths, read_spec(paths), trials), paths)
        if old is None:
            return data
        pairs = zip(data.others, old.others, strict=False)
        others = [replace(one, importances=before.importances) for one, before in pairs]
        return replace(data, importances=old.importances, phases=old.phases, others=others)

    def _slow_is_due(self) -> bool:
        """Compute importances and phases, if trials have ended since and there is time for it."""
        assert self._data is not None
        ended = [e.record.id for e in self._data.summaries if not e.record.state.active]
        if self._slow[0] == sorted(ended) or time.monotonic() < self._slow[1]:
            return False
        began = time.monotonic()
        phases = read_phases(self._source.paths, self._data)
        self._data = replace(with_importances(self._data), phases=phases)
        now = time.monotonic()
        self._slow = sorted(ended), now + _SLOW * (now - began)
        return True

    def _publish_head(self, publish: Publish) -> None:
        budget = read_spec(self._source.paths).budget
        publish("head", json.dumps({**self._head(), "budget": budget.trials}))

    def _publish_sections(self, publish: Publish) -> None:
        assert self._data is not None
        for kind, section in section_messages(sections(self._data)):
            publish(f"{kind} {section['key']}", json.dumps(section))

    def _head(self) -> dict[str, Any]:
        data, source = self._data, self._source
        assert data is not None
        records = [record for record, _ in self._trials.values()]
        pending = ", ".join(c.do for c in pending_commands(source.paths))
        words = [state(data) if data.finished else "interrupted"]
        if self._driver:
            words = [f"{self._driver} runs it", self._left(data, records)]
        return {
            **head(data),
            "live": True,
            "state": "; ".join(filter(None, [*words, pending and f"waits to be done: {pending}"])),
            "driver": self._driver or "",
            "finished": data.finished and not self._driver,
            "readOnly": source.read_only,
            "done": sum(r.state.finished for r in records),
        }

    def _left(self, data: SweepData, records: list[TrialRecord]) -> str:
        """A forecast of time and cost, in words; empty if it is not known."""
        spec, at_once = data.spec, sum(r.state.value == "running" for r in records)
        each, spent = mean_trial_cost(records, spec.prices), total_elapsed_s(self._source.paths)
        found = forecast(spec.budget, records, each, max(1, at_once), spent, spec.prices)
        if found is None:
            return ""
        unit = unit_for(found.seconds)
        return f"about {unit.format(found.seconds)} {unit.symbol} and {found.cost} left"


class Feed:
    """The parts of a sweep's page, for any number of browsers. It reads while one looks."""

    def __init__(self, source: RecordSource) -> None:
        self.source = source
        self._snapshot = Snapshot(source)
        self._parts: dict[str, tuple[int, str]] = {}
        self._version = 0
        self._news = asyncio.Event()
        self._lookers = 0
        self._task: asyncio.Task[None] | None = None

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events: all parts, then those that change."""
        self._lookers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            seen = 0
            while True:
                news = self._news  # before looking: what comes meanwhile is not missed
                for text in self._newer(seen):
                    yield text
                seen = self._version
                try:
                    await asyncio.wait_for(news.wait(), _KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": nothing new\n\n"
        finally:
            self._lookers -= 1

    def _newer(self, seen: int) -> Iterator[str]:
        new = {k: data for k, (version, data) in list(self._parts.items()) if version > seen}
        rows = ",".join(new.pop(key) for key in [*new] if key.startswith(_TRIAL))
        for key, data in new.items():
            yield f"event: {key.partition(' ')[0]}\ndata: {data}\n\n"
        if rows:
            yield f"event: trials\ndata: [{rows}]\n\n"

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()

        def publish(key: str, data: str) -> None:
            loop.call_soon_threadsafe(self._publish, key, data)

        while self._lookers:
            began = time.monotonic()
            try:
                await asyncio.to_thread(self._snapshot.update, publish)
                publish("problem", json.dumps(""))
            except (UserError, OSError) as e:
                publish("problem", json.dumps(str(e)))
            await asyncio.sleep(max(POLL_S, _BUSY * (time.monotonic() - began)))

    def _publish(self, key: str, data: str) -> None:
        if self._parts.get(key, (0, ""))[1] == data:
            return
        self._version += 1
        self._parts[key] = self._version, data
        self._news.set()
        self._news = asyncio.Event()
