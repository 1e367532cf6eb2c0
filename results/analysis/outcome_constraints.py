"""Check outcome constraints on the newest value of each metric of a trial."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from results.records.trial import Report, TrialRecord, TrialState
from search_spaces.errors import suggest
from search_spaces.expressions import parse
from search_spaces.formulas.constraints import quoting_hint, violations


def with_violations(
    record: TrialRecord, constraints: Sequence[str], reports: Callable[[], Iterable[Report]]
) -> TrialRecord:
    """The record of an inactive trial with its violations, which are added to its reason.

    Args:
        record: of the trial.
        constraints: of the sweep.
        reports: reads the trial's reports, oldest first.

    Returns:
        The record unchanged if the trial failed or the sweep has no outcome constraints.
    """
    if not constraints or record.state is TrialState.FAILED:
        return record
    newest: dict[str, float] = {}
    for report in reports():
        newest |= report.metrics
    amounts = violations(constraints, newest)
    reasons = [record.reason]
    for text in (text for text, amount in amounts.items() if amount > 0):
        names = (formula := parse(text)).names
        if missing := next((name for name in names if name not in newest), None):
            hint = quoting_hint(formula, newest, "metric") or suggest(missing, newest)
            reasons.append(f"never reported {missing}{hint}, for {text}")
        else:
            values = ", ".join(f"{name} {newest[name]:.4g}" for name in names)
            reasons.append(f"breaks {text} ({values})")
    return record.model_copy(update={"violations": amounts, "reason": "; ".join(reasons)})


def checked_again(
    record: TrialRecord, constraints: Sequence[str], reports: Iterable[Report]
) -> TrialRecord:
    """As `with_violations`, of a trial that was checked on other constraints; else unchanged."""
    if record.state.active or record.violations.keys() == {*constraints}:
        return record
    reason = re.split("; (?:breaks|never reported) ", record.reason)[0]
    plain = record.model_copy(update={"violations": {}, "reason": reason})
    return with_violations(plain, constraints, lambda: reports)
