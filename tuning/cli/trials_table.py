"""The table of trials, used while a sweep runs, at its end and by `tune show`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from results.analysis.cost import total_cost
from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.budget import PricesSpec
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import duration, heading, number, setting, state_style

Row = tuple[TrialRecord, int, Sequence[float | None]]
"""A trial, its newest step, and the newest value of each of the sweep's objectives."""
Cell = tuple[str, str]
"""A text and its style."""


@dataclass(frozen=True)
class _Column:
    title: list[str]
    cells: Sequence[Cell]

    @cached_property
    def width(self) -> int:
        """Cells of the terminal needed to show every value and every line of the title whole."""
        return max(map(cell_len, {*self.title, *(text for text, _ in self.cells)}))


@dataclass(frozen=True)
class TrialsTable:
    """What Rich prints: a line for each trial. Its own table takes milliseconds for each."""

    columns: list[_Column]
    gap: int
    bold: list[bool]
    omitted: list[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The titles, the rows, and the names of the parameters that were left out."""
        height = max(len(column.title) for column in self.columns)
        above = [[""] * (height - len(c.title)) + c.title for c in self.columns]
        lines = [(True, [(text, "") for text in texts]) for texts in zip(*above, strict=True)]
        rows = zip(*(column.cells for column in self.columns), strict=True)
        lines += zip(self.bold, map(list, rows), strict=True)
        formats, most = self._formats(), options.max_width
        fits = _width(self.columns, self.gap) <= most
        for bold, cells in lines:
            line = list(_segments(cells, formats, bold))
            yield from line if fits else Segment.adjust_line_length(line, most, pad=False)
            yield Segment.line()
        if self.omitted:
            yield Text(f"left out: {', '.join(self.omitted)}", style="dim")

    def _formats(self) -> list[tuple[int, bool, str]]:
        """Of each column: its width, whether its texts stand at the left, and what follows it."""
        after = [" " * self.gap] * (len(self.columns) - 1) + [""]
        return [
            (column.width, column.title in (["trial"], ["state"]), gap)
            for column, gap in zip(self.columns, after, strict=True)
        ]


def _segments(
    cells: Iterable[Cell], formats: Iterable[tuple[int, bool, str]], bold: bool
) -> Iterator[Segment]:
    """The cells of a line, padded; neighbours of one style are one segment."""
    padded = []
    for (text, style), (width, left, gap) in zip(cells, formats, strict=True):
        space = " " * (width - cell_len(text))
        padded.append((f"{text}{space}{gap}" if left else f"{space}{text}{gap}", style))
    for style, texts in groupby(padded, itemgetter(1)):
        name = f"bold {style}" if bold else style
        yield Segment("".join(text for text, _ in texts), Style.parse(name))  # it has a cache


def trials_table(
    spec: SweepSpec,
    rows: Iterable[Row],
    best: Collection[str] = (),
    width: int | None = None,
    means: Mapping[str, str] | None = None,
) -> TrialsTable:
    """Trials in the given order, with the searched parameters; those in `best` are marked.

    Values are never truncated: if the table is wider than `width` characters, the last parameters
    are left out and named in the caption.

    Args:
        spec: of the sweep.
        rows: the trials.
        best: ids of the trials to mark.
        width: of the terminal (characters); None: unlimited.
        means: the mean over several seeds, by the id of the first trial of a configuration.
    """
    rows = list(rows)
    params = list(spec.domains())
    shown = list(params)
    columns = _columns(spec, shown, rows, best, means or {})
    while width is not None and shown and _width(columns, gap=1) > width:
        shown.pop()
        columns = _columns(spec, shown, rows, best, means or {})
    gap = 2 if width is None or _width(columns, gap=2) <= width else 1
    return TrialsTable(columns, gap, [r.id in best for r, _, _ in rows], params[len(shown) :])


def _columns(
    spec: SweepSpec,
    params: list[str],
    rows: list[Row],
    best: Collection[str],
    means: Mapping[str, str],
) -> list[_Column]:
    first, *others = (o.metric for o in spec.objectives)
    names = ("trial", "state", "step", first, *["mean ± 95 %"] * bool(means))
    names = (*names, *others, *params, "time", *([spec.prices.currency] if spec.prices else []))
    cells = [_cells(params, row, best, means, spec.prices) for row in rows]
    by_column = zip(*cells, strict=True) if cells else ((),) * len(names)
    titles = [heading(name).split("\n") for name in names]
    return [_Column(title, column) for title, column in zip(titles, by_column, strict=True)]


def _cells(
    params: list[str],
    row: Row,
    best: Collection[str],
    means: Mapping[str, str],
    prices: PricesSpec | None,
) -> list[Cell]:
    record, step, (value, *others) = row
    return [
        (record.id + " *" * (record.id in best), ""),
        ("infeasible", "magenta") if record.violated_constraints else state_cell(record),
        (str(step), ""),
        (number(value), ""),
        *[(means.get(record.id, ""), "")] * bool(means),
        *((number(other), "") for other in others),
        *((setting(record.params[p]) if p in record.params else "", "") for p in params),
        (duration(record.seconds), ""),
        *[(f"{total_cost([record], prices).cost:,.2f}", "")] * bool(prices),
    ]


def state_cell(record: TrialRecord) -> Cell:
    """The state of a trial; one whose attempt has ended does not run any more."""
    if record.state is TrialState.RUNNING and record.attempts and record.attempts[-1].ended:
        return "interrupted", "yellow"
    return record.state.value, state_style(record.state)


def _width(columns: list[_Column], gap: int) -> int:
    return sum(c.width for c in columns) + gap * (len(columns) - 1)
