"""The table of trials, used while a sweep runs, at its end and by `tune show`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from results.analysis.cost import total_cost
from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.budget import PricesSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import duration, number, setting, state_style
from tuning.cli.table import Cell, Column, Table

Row = tuple[TrialRecord, int, Sequence[float | None]]
"""A trial, its newest step, and the newest value of each of the sweep's objectives."""


def trials_table(
    spec: SweepSpec,
    rows: Iterable[Row],
    best: Collection[str] = (),
    means: Mapping[str, str] | None = None,
) -> Table:
    """Trials in the given order, with the searched parameters; those in `best` are marked.

    In a narrow terminal paths are shortened, and the last parameters are left out and named below.

    Args:
        spec: of the sweep.
        rows: the trials.
        best: ids of the trials to mark.
        means: the mean over several seeds, by the id of the first trial of a configuration.
    """
    rows, params = list(rows), list(spec.domains())
    first, *others = (o.metric for o in spec.objectives)
    names = ("trial", "state", "step", first, *(["mean ± 95 %"] if means else []), *others)
    after = ("time", *([spec.prices.currency] if spec.prices else []))
    cells = [_cells(params, row, best, means or {}, spec.prices) for row in rows]
    titles = (*names, *params, *after)
    by_column = zip(*cells, strict=True) if cells else ((),) * len(titles)
    columns = []
    for i, (name, column) in enumerate(zip(titles, by_column, strict=True)):
        is_param = len(names) <= i < len(names) + len(params)
        has_paths = is_param and any("/" in text for text, _ in column)
        columns.append(Column(name, column, i < 2, flexible=has_paths, optional=is_param))
    return Table(columns, [i for i, (r, _, _) in enumerate(rows) if r.id in best])


def _cells(
    params: list[str],
    row: Row,
    best: Collection[str],
    means: Mapping[str, str],
    prices: PricesSpec | None,
) -> list[Cell]:
    record, step, (value, *others) = row
    return [
        (record.id + (" *" if record.id in best else ""), ""),
        ("infeasible", "magenta") if record.violated_constraints else state_cell(record),
        (str(step), ""),
        (number(value), ""),
        *([(means.get(record.id, ""), "")] if means else []),
        *((number(other), "") for other in others),
        *((setting(record.params[p]) if p in record.params else "", "") for p in params),
        (duration(record.seconds), ""),
        *([(f"{total_cost([record], prices).cost:,.2f}", "")] if prices else []),
    ]


def state_cell(record: TrialRecord) -> Cell:
    """The state of a trial; one whose attempt has ended does not run any more."""
    if record.state is TrialState.RUNNING and record.attempts and record.attempts[-1].ended:
        return "interrupted", "yellow"
    return record.state.value, state_style(record.state)
