"""The home page: a table of the sweeps of a storage, written as a file or served."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from results.analysis.comparison import goal, summarize_sweep
from results.analysis.cost import total_cost
from results.paths import Storage, SweepPaths
from results.report.page import PageSection, number, section_messages, write_page
from results.report.trial_rows import thinned
from results.sweep_folder.folder import named_sweeps, read_state
from results.sweep_folder.lock import current_driver, sweep_state
from search_spaces.errors import UserError

_HEADER = ("sweep", "state", "trials", "best", "goal", "best so far", "started", "spent")


class SweepRows:
    """Rows of the table; each sweep is read again only if its records have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, list[Any]]] = {}

    def section(
        self, sweeps: Mapping[str, SweepPaths], address: Callable[[str, SweepPaths], str]
    ) -> PageSection:
        """The table, newest first.

        Args:
            sweeps: by name.
            address: of a sweep's page; empty if it has none.
        """
        rows = []
        for name, paths in sweeps.items():
            href = address(name, paths)
            rows.append([{"text": name, **({"href": href} if href else {})}, *self._row(paths)])
        rows.sort(key=lambda row: str(row[_HEADER.index("started")]), reverse=True)
        return PageSection("Sweeps", header=_HEADER, rows=rows)

    def _row(self, paths: SweepPaths) -> list[Any]:
        log = paths.record_log
        stamp = (log.stat().st_mtime_ns if log.is_file() else 0, current_driver(paths.lock))
        known = self._known.get(str(paths.root))
        if known is None or known[0] != stamp:
            known = self._known[str(paths.root)] = stamp, _row(paths)
        return known[1]


def _row(paths: SweepPaths) -> list[Any]:
    """The cells of a sweep, without its name; what cannot be read is named as its state."""
    try:
        found = summarize_sweep(paths, paths.name)
        records = found.records
        started = read_state(paths).started
    except UserError as e:
        return [f"damaged: {e.problems[0]}", "", "", "", "", "", ""]
    finished, most = sum(r.state.finished for r in records), found.spec.budget.trials
    best = [value for _, value in found.progress]
    values = found.winner and [found.winner.values.get(o.metric) for o in found.spec.objectives]
    return [
        sweep_state(paths, found.spec, finished),
        f"{found.trials}/{most}" if most else str(found.trials),
        ", ".join(map(number, values or [])),
        goal(found.spec),
        {"text": "", "spark": thinned(best, 40)} if best else "",
        time.strftime("%Y-%m-%d %H:%M", time.localtime(started[0])) if started else "",
        str(total_cost(records, found.spec.prices)),
    ]


def write_home(storage: Storage, target: Path) -> None:
    """Write the home page of a storage, with links to the reports that exist.

    Raises:
        OSError: it cannot be written.
    """

    def address(name: str, paths: SweepPaths) -> str:
        if not paths.report.is_file():
            return ""
        return quote(Path(os.path.relpath(paths.report, target.parent)).as_posix())

    sweeps = dict(named_sweeps(storage))
    section = SweepRows().section(sweeps, address)
    lead = [f"{len(sweeps)} sweeps in {storage.root}"]
    write_page(target, "Sweeps", lead, section_messages([section]), plotly=False)
