"""Writes trials into a study's journal, for searchers that see no trials.

Optuna's storage reads each entry of its journal back as it is written, which takes most of the time
of a proposal. Here it is appended only. The storage reads it when somebody asks for the trials.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import JournalStorage
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import TrialState

from tuning.search.optuna_space import Sampled
from tuning.search.study.journal import Journal


class DirectWrites:
    """The trials of one study that were proposed here, until they are taken.

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
