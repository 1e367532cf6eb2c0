"""Group the failed attempts of a sweep by their class of error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.records.trial import TrialRecord, TrialState


@dataclass(frozen=True)
class FailureClass:
    """The failed attempts with one class of error.

    Attributes:
        name: of the error class.
        remedies: what was done after these failures; see `results.records.failures`.
        example: one of the messages.
    """

    name: str
    remedies: tuple[str, ...]
    attempts: int
    trials: tuple[str, ...]
    example: str


def failure_classes(records: Sequence[TrialRecord]) -> list[FailureClass]:
    """Failed attempts by the class of their error, the most frequent first."""
    classes: dict[str, list[tuple[str, str, str]]] = {}
    for record in records:
        for attempt in record.attempts:
            error = attempt.error
            if attempt is record.attempts[-1] and record.state is TrialState.FAILED:
                error = error or record.reason  # the record may say it
            if error:
                remedy = attempt.remedy.value if attempt.remedy else ""
                classes.setdefault(_class_name(error), []).append((record.id, error, remedy))
    found = [
        FailureClass(
            name,
            tuple(dict.fromkeys(remedy for _, _, remedy in attempts if remedy)),
            len(attempts),
            tuple(dict.fromkeys(trial for trial, _, _ in attempts)),
            attempts[0][1],
        )
        for name, attempts in classes.items()
    ]
    return sorted(found, key=lambda one: -one.attempts)


def _class_name(error: str) -> str:
    """`ValueError` for `rank 1: ValueError: no`; the message if it names no exception."""
    head = error.removeprefix("rank ").lstrip("0123456789").removeprefix(": ")
    name = head.partition(":")[0].strip()
    return name if name.replace(".", "").replace("_", "").isalnum() else error.partition(" (")[0]
