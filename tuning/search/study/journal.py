"""Optuna's journal file, with one write for a batch of entries.

Optuna locks, writes and syncs once per value of a curve and per parameter of a proposal: tens of
syncs per trial, during which the driver cannot respond.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState

from results.storage.fault_injection import fault_point
from search_spaces.files import read_regular
from tuning.search.optuna_space import Sampled


class Journal(JournalFileBackend):
    """The journal of a study with a single writer, the sweep's driver.

    If the writer was killed, opening the journal cuts its torn last line and removes its lock.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():  # Optuna would append to the torn line
            os.truncate(path, read_regular(path).rfind(b"\n") + 1)
        path.with_name(path.name + ".lock").unlink(missing_ok=True)
        super().__init__(str(path), lock_obj=JournalFileOpenLock(str(path)))
        self._path = path
        self._pending: list[dict[str, Any]] | None = None
        self._first: int | None = None
        self._read = 0

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Write the entries that the block appends in one go when it ends.

        Reads inside the block see these entries. An inner block is written with the outer one.
        """
        if self._pending is not None:
            yield
            return
        self._pending, self._first = [], None
        try:
            yield
        finally:
            held, self._pending = self._pending, None
            if held:
                self._write(held)
            if held and self._first is not None:
                self._begin_reads_at(self._read, held[self._read - self._first :])

    def _begin_reads_at(self, number: int, unread: Iterable[dict[str, Any]]) -> None:
        """Remember where the first entry is that was not read, and forget the others.

        Optuna keeps the offsets of all entries, but never uses them.
        """
        rest = sum(len(json.dumps(entry, separators=(",", ":"))) + 1 for entry in unread)
        self.offsets.clear()
        self.offsets.update({0: 0, number: os.path.getsize(self._path) - rest})

    @property
    def offsets(self) -> dict[int, int]:
        """Number of an entry to its byte offset in the file, as far as it is remembered."""
        return self._log_number_offset

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append log entries, one per line."""
        if self._pending is None:
            self._write(logs)
        else:
            self._pending += logs

    def _write(self, logs: list[dict[str, Any]]) -> None:
        super().append_logs(logs)
        fault_point("study.journal:written")

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the entries from a number on. A batch reads the file once: it stays as it is."""
        if self._pending is None:
            yield from super().read_logs(log_number_from)
            return
        if self._first is None:  # the file may have entries that were not read yet
            known = list(super().read_logs(log_number_from))
            self._first = log_number_from + len(known)
            yield from known
        self._read = self._first + len(self._pending)
        yield from self._pending[max(0, log_number_from - self._first) :]


class DirectWrites:
    """The trials of one study that were proposed here, until they are taken.

    Optuna's storage reads each entry of its journal back as it is written, which takes most of the
    time of a proposal. Here it is appended only, for searchers that see no trials; the storage
    reads it when somebody asks for the trials.

    Args:
        journal, storage: of the study.
        study_id: of the study. If the journal has other ones, they get no trials any more.
    """

    def __init__(self, journal: Journal, storage: JournalStorage, study_id: int) -> None:
        self._journal, self._study_id = journal, study_id
        ids = {storage.get_study_id_from_name(s.study_name) for s in storage.get_all_studies()}
        others = (storage.get_all_trials(i, deepcopy=False) for i in ids - {study_id})
        self._first_id = sum(map(len, others))  # Optuna counts the trials of all studies together
        self._worker = f"{uuid.uuid4()}-unread"
        self._texts: dict[int, tuple[BaseDistribution, str]] = {}  # by id: a text takes long
        self._numbers = set[int]()

    def take(self, number: int) -> bool:
        """Whether a trial is one of these; from now on it is not."""
        found = number in self._numbers
        self._numbers.discard(number)
        return found

    def add(self, number: int, sampled: Sampled) -> None:
        """Append a trial that runs from now on, as `Study.add_trial` does.

        Args:
            number: one more than that of the study's newest trial.
            sampled: its parameters.
        """
        self._numbers.add(number)
        self._append(
            JournalOperation.CREATE_TRIAL,
            study_id=self._study_id,
            datetime_start=_now(),
            state=TrialState.RUNNING,
            value=None,
            values=None,
            distributions={name: self._text(dist) for name, (_, dist) in sampled.items()},
            params={name: dist.to_internal_repr(value) for name, (value, dist) in sampled.items()},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )

    def end(
        self,
        number: int,
        reported: Iterable[tuple[int, float]],
        state: TrialState,
        values: list[float] | None,
    ) -> None:
        """Append the reports and the end of a trial that was taken, as `Study.tell` does."""
        trial_id = self._first_id + number
        for step, value in reported:
            report = {"trial_id": trial_id, "step": step, "intermediate_value": value}
            self._append(JournalOperation.SET_TRIAL_INTERMEDIATE_VALUE, **report)
        end = {"state": state, "values": values, "datetime_complete": _now()}
        self._append(JournalOperation.SET_TRIAL_STATE_VALUES, trial_id=trial_id, **end)

    def _append(self, operation: JournalOperation, **fields: Any) -> None:
        entry = {"op_code": operation, "worker_id": self._worker, **fields}
        self._journal.append_logs([entry])

    def _text(self, dist: BaseDistribution) -> str:
        if id(dist) not in self._texts:
            self._texts[id(dist)] = dist, distribution_to_json(dist)
        return self._texts[id(dist)][1]


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="microseconds")
