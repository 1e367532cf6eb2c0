"""The one table of the terminal: names, dates and numbers are never broken inside a word."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Self

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

Cell = tuple[str, str]
"""A text and its style."""
_LONGEST_WORD = 24
"""Characters to which a path or a word of a flexible column may be shortened."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: is cut after `_`, `.`, `-` and `/` and at spaces, only where the width demands it.
        cells: a text and its style for each row.
        left: whether texts stand at the left.
        flexible: whether texts may be wrapped at spaces, and long words shortened in their middle.
        optional: whether the column may be left out, and named below the table.
    """

    title: str
    cells: Sequence[Cell]
    left: bool = True
    flexible: bool = False
    optional: bool = False

    @cached_property
    def width(self) -> int:
        """Of the widest text."""
        return max((cell_len(text) for text in {text for text, _ in self.cells}), default=0)

    @cached_property
    def cut(self) -> int:
        """The width with a cut title."""
        return max([self.width, *map(cell_len, _parts(self.title))])

    @cached_property
    def least(self) -> int:
        """The width with a cut title, wrapped texts and shortened paths."""
        if not self.flexible:
            return self.cut
        words = {word for text, _ in self.cells for word in text.split()}
        least = (min(cell_len(word), _LONGEST_WORD, len(_tail(word))) for word in words)
        return max([*least, *map(cell_len, _parts(self.title))], default=0)

    def lines(self, row: int, width: int) -> list[str]:
        """The text of a row, in lines of at most so many cells."""
        text = self.cells[row][0]
        words = (shorten(word, width) + " " for word in text.split())
        return [text] if cell_len(text) <= width else _pack(words, width)

    def title_lines(self, width: int) -> list[str]:
        """The title, in lines of at most so many cells."""
        return [self.title] if cell_len(self.title) <= width else _pack(_parts(self.title), width)


@dataclass(frozen=True)
class Table:
    """What Rich prints. Rich's own table breaks names, and takes milliseconds for each row.

    Attributes:
        columns: all with the same number of cells.
        bold: rows in bold.
    """

    columns: Sequence[Column]
    bold: Collection[int] = field(default=())

    @classmethod
    def of(
        cls,
        titles: Sequence[str],
        rows: Iterable[Sequence[str | Cell]],
        *,
        flexible: Collection[str] = (),
        optional: Collection[str] = (),
        right: Collection[str] = (),
    ) -> Self:
        """A table of rows; the others are titles of columns, see `Column`."""
        cells = [[(c, "") if isinstance(c, str) else c for c in row] for row in rows]
        by_column = zip(*cells, strict=True) if cells else ((),) * len(titles)
        columns = [
            Column(title, column, title not in right, title in flexible, title in optional)
            for title, column in zip(titles, by_column, strict=True)
        ]
        return cls(columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The titles, the rows, and the names of the columns that were left out."""
        columns, widths, gap = _fit(self.columns, options.max_width)
        formats = [(c.left, width) for c, width in zip(columns, widths, strict=True)]
        titles = [column.title_lines(width) for column, width in zip(columns, widths, strict=True)]
        height = max(map(len, titles))
        lines = [(True, [([""] * (height - len(t)) + t, "") for t in titles])]
        for row in range(len(columns[0].cells)):
            cells = [
                (column.lines(row, width), column.cells[row][1])
                for column, width in zip(columns, widths, strict=True)
            ]
            lines.append((row in self.bold, cells))
        most = options.max_width
        fits = _total(widths, gap) <= most
        for bold, cells in lines:
            for line in _segments(cells, formats, " " * gap, bold):
                yield from line if fits else Segment.adjust_line_length(line, most, pad=False)
                yield Segment.line()
        if omitted := [c.title for c in self.columns if c not in columns]:
            yield Text(f"left out: {', '.join(omitted)}", style="dim")


def _fit(columns: Sequence[Column], most: int) -> tuple[list[Column], list[int], int]:
    """The columns that fit a number of cells, their widths, and the gap between them."""
    columns = list(columns)
    while True:
        for gap in (2, 1):
            if _total(widths := _widths(columns, most, gap), gap) <= most:
                return columns, widths, gap
        if (last := next((c for c in reversed(columns) if c.optional), None)) is None:
            return columns, widths, gap
        columns = [c for c in columns if c is not last]


def _widths(columns: Sequence[Column], most: int, gap: int) -> list[int]:
    """Cut titles until the columns fit, those first of which most is saved; then wrap texts."""
    widths = [max(column.width, cell_len(column.title)) for column in columns]
    saved = [width - column.cut for column, width in zip(columns, widths, strict=True)]
    for i in sorted(range(len(columns)), key=lambda i: -saved[i]):
        if _total(widths, gap) > most:
            widths[i] = columns[i].cut
    while (excess := _total(widths, gap) - most) > 0:
        room = {i: w for i, (w, c) in enumerate(zip(widths, columns, strict=True)) if w > c.least}
        if not room:
            break
        widest = max(room, key=lambda i: room[i])
        second = max((w for i, w in room.items() if i != widest), default=0)
        less = max(1, min(excess, room[widest] - second))
        widths[widest] = max(columns[widest].least, room[widest] - less)
    return widths


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _parts(title: str) -> list[str]:
    return re.split(r"(?<=[_/\- ])|(?<=\.)(?=\D)", title)


def _tail(word: str) -> str:
    """The end of a path, such as `…/t0001-hf`; other words unchanged."""
    head, slash, name = word.rpartition("/")
    return f"…/{name}" if head and slash else word


def shorten(word: str, width: int) -> str:
    """A word of at most so many cells: of a path the last folders that fit, else both ends."""
    if cell_len(word) <= width:
        return word
    folders = word.split("/")
    for start in range(1, len(folders)):
        if cell_len(tail := "/".join(["…", *folders[start:]])) <= width:
            return tail
    half = (width - 1) // 2
    return f"{set_cell_size(word, width - 1 - half).rstrip()}…{word[-half:] if half else ''}"


def _pack(parts: Iterable[str], width: int) -> list[str]:
    """Lines of at most so many cells, of parts that stay whole."""
    lines = [""]
    for part in parts:
        if lines[-1] and cell_len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [line.rstrip() for line in lines]


def _segments(
    cells: Sequence[tuple[list[str], str]],
    formats: Sequence[tuple[bool, int]],
    gap: str,
    bold: bool,
) -> Iterator[list[Segment]]:
    """The lines of a row, padded; neighbours of one style are one segment."""
    styles = [f"bold {style}" if bold else style for _, style in cells]
    for texts in zip_longest(*(lines for lines, _ in cells), fillvalue=""):
        padded = []
        for text, style, (left, width) in zip(texts, styles, formats, strict=True):
            space = " " * (width - cell_len(text))
            padded.append((f"{text}{space}{gap}" if left else f"{space}{text}{gap}", style))
        text, style = padded[-1]
        padded[-1] = text.rstrip(), style
        yield [
            Segment("".join(text for text, _ in of), Style.parse(name))  # it has a cache
            for name, of in groupby(padded, itemgetter(1))
        ]
