"""Check outcome constraints on the newest value of each metric of a trial."""

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
    """The record of an inactive trial with its violations, which are added to its reason.

    Returns the record unchanged if the trial failed or the sweep has no outcome constraints.
    """
    if not constraints or record.state is TrialState.FAILED:
        return record
    newest: dict[str, float] = {}
    for report in read_reports(paths.trial(record.id), record.end_step):
        newest |= report.metrics
    amounts = violations(constraints, newest)
    broken = [_describe(text, newest) for text, amount in amounts.items() if amount > 0]
    reason = "; ".join([record.reason, *broken])
    return record.model_copy(update={"violations": amounts, "reason": reason})


def _describe(text: str, newest: dict[str, float]) -> str:
    names = parse(text).names
    for name in names:
        if name not in newest:
            return f"never reported {name}{suggest(name, newest)}, for {text}"
    return f"breaks {text} ({', '.join(f'{name} {newest[name]:.4g}' for name in names)})"
