"""Whether a trial keeps the sweep's outcome constraints, by the newest report of each metric."""

from __future__ import annotations

from collections.abc import Sequence

from results.paths import SweepPaths
from results.records.trial import TrialRecord, TrialState, read_reports
from search_spaces.errors import suggest
from search_spaces.expressions import parse
from search_spaces.formulas.outcomes import violations


def with_violations(
    record: TrialRecord, paths: SweepPaths, constraints: Sequence[str]
) -> TrialRecord:
    """A record of a trial at rest with its violations, which its reason then names.

    A failed trial is left as it is, and so is every trial of a sweep without such constraints.
    """
    if not constraints or record.state is TrialState.FAILED:
        return record
    newest: dict[str, float] = {}
    for report in read_reports(paths.trial(record.id), record.end_step):
        newest |= report.metrics
    amounts = violations(constraints, newest)
    said = [_said(text, newest) for text, amount in amounts.items() if amount > 0]
    reason = "; ".join([record.reason, *said])
    return record.model_copy(update={"violations": amounts, "reason": reason})


def _said(text: str, newest: dict[str, float]) -> str:
    names = parse(text).names
    for name in names:
        if name not in newest:
            return f"never reported {name}{suggest(name, newest)}, for {text}"
    return f"breaks {text} ({', '.join(f'{name} {newest[name]:.4g}' for name in names)})"
