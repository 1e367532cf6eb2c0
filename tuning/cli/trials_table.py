"""The table of trials, used while a sweep runs, at its end and by `tune show`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from results.records.trial import TrialRecord, TrialState
from search_spaces.spec.sweep import SweepSpec
from tuning.cli.formatting import duration, heading, number, setting, state_style

Row = tuple[TrialRecord, int, Sequence[float | None]]
"""A trial, its newest step, and the newest value of each of the sweep's objectives."""


@dataclass(frozen=True)
class _Column:
    title: Text
    cells: list[Text]

    @cached_property
    def width(self) -> int:
        """Cells of the terminal needed to show every value and every line of the title whole."""
        title = map(cell_len, self.title.plain.split("\n"))
        return max(*title, *map(cell_len, {cell.plain for cell in self.cells}), 0)


@dataclass(frozen=True)
class TrialsTable:
    """What Rich prints: a line for each trial. Its own table takes milliseconds for each."""

    columns: list[_Column]
    gap: int
    bold: list[bool]
    omitted: list[str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The titles, the rows, and the names of the parameters that were left out."""
        titles = [column.title.plain.split("\n") for column in self.columns]
        height = max(map(len, titles))
        above = [[""] * (height - len(lines)) + lines for lines in titles]
        lines = [(True, [Text(line) for line in cells]) for cells in zip(*above, strict=True)]
        rows = zip(*(column.cells for column in self.columns), strict=True)
        lines += zip(self.bold, map(list, rows), strict=True)
        widths, most = [column.width for column in self.columns], options.max_width
        fits = _width(self.columns, self.gap) <= most
        for bold, cells in lines:
            line = list(self._segments(cells, widths, bold))
            yield from line if fits else Segment.adjust_line_length(line, most, pad=False)
            yield Segment.line()
        if self.omitted:
            yield Text(f"left out: {', '.join(self.omitted)}", style="dim")

    def _segments(self, cells: list[Text], widths: list[int], bold: bool) -> Iterator[Segment]:
        """The cells of a line, padded."""
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            name = f"bold {cell.style}" if bold else str(cell.style)
            style = Style.parse(name)  # it has a cache
            space = " " * (width - cell.cell_len)
            left = self.columns[place].title.plain in ("trial", "state")
            text = f"{cell.plain}{space}" if left else f"{space}{cell.plain}"
            last = place == len(cells) - 1
            yield Segment(text if last else text + " " * self.gap, style)


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
    names = (*names, *others, *params, "time")
    cells = [_cells(params, row, best, means) for row in rows]
    return [_Column(Text(heading(n)), [c[i] for c in cells]) for i, n in enumerate(names)]


def _cells(
    params: list[str], row: Row, best: Collection[str], means: Mapping[str, str]
) -> list[Text]:
    record, step, (value, *others) = row
    return [
        Text(record.id + " *" * (record.id in best)),
        Text("infeasible", "magenta") if record.violated_constraints else state_text(record),
        Text(str(step)),
        Text(number(value)),
        *[Text(means.get(record.id, ""))] * bool(means),
        *(Text(number(other)) for other in others),
        *(Text(setting(record.params[p]) if p in record.params else "") for p in params),
        Text(duration(record.seconds)),
    ]


def state_text(record: TrialRecord) -> Text:
    """The state of a trial; one whose attempt has ended does not run any more."""
    if record.state is TrialState.RUNNING and record.attempts and record.attempts[-1].ended:
        return Text("interrupted", style="yellow")
    return Text(record.state, style=state_style(record.state))


def _width(columns: list[_Column], gap: int) -> int:
    return sum(c.width for c in columns) + gap * (len(columns) - 1)
