"""Reports of trials, as a rank writes them."""

from __future__ import annotations

from results.records.reports import ReportWriter
from results.records.trial import Report
from results.trial_paths import TrialPaths


def append_report(paths: TrialPaths, report: Report) -> None:
    """Append a report durably."""
    ReportWriter(paths, report.attempt).append(report)
