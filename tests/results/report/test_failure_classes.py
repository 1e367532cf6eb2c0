"""Failed attempts are grouped by the class of their error."""

from results.records.trial import Attempt, TrialRecord, TrialState
from results.report.failure_classes import failure_classes


def test_failure_classes_are_sorted_by_number_of_attempts() -> None:
    def record(number: int, *errors: str | None, reason: str = "") -> TrialRecord:
        tried = tuple(Attempt(number=i, started=0.0, error=e) for i, e in enumerate(errors))
        state = TrialState.FAILED if reason else TrialState.COMPLETED
        given = {"params": {}, "config": {}, "seed": 0, "created": 0.0, "reason": reason}
        return TrialRecord(id=f"t{number}", number=number, attempts=tried, state=state, **given)

    found = failure_classes(
        [
            record(0, "rank 1: ValueError: no", None),
            record(1, "rank 0: ValueError: other", "rank 0: ValueError: other"),
            record(2, "the workers left before the trial ended"),
            record(3, None, reason="loss is nan"),
            record(4, "rank 12: torch.OutOfMemoryError: 3 GB"),
        ]
    )
    assert [(f.name, f.attempts, f.trials) for f in found] == [
        ("ValueError", 3, ("t0", "t1")),
        ("the workers left before the trial ended", 1, ("t2",)),
        ("loss is nan", 1, ("t3",)),
        ("torch.OutOfMemoryError", 1, ("t4",)),
    ]
    assert found[0].example == "rank 1: ValueError: no"
