"""What happens to data that cannot be read: `on_bad_data`."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from search_spaces.errors import UserError

REPAIR = "repair it, or skip such parts with data.on_bad_data: skip"
MAX_LOGGED = 20
"""Number of bad parts that the log names; it counts the others."""
OnBadData = Literal["fail", "skip"]
OnLong = Literal["truncate", "skip", "refuse"]
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BadRow:
    """A row, or a larger part of the data, that cannot be used.

    Attributes:
        problem: where it is, and why.
        reaction: to it, in place of `on_bad_data`.
    """

    problem: str
    reaction: OnBadData | None = None


@dataclass(frozen=True)
class BadRows:
    """Refuses bad rows, or leaves them out and remembers their problems."""

    reaction: OnBadData
    problems: list[str] = field(default_factory=list)

    def add(self, row: BadRow) -> None:
        """Leave out a row.

        Raises:
            UserError: the configuration wants to fail.
        """
        if row.reaction == "fail":
            raise UserError(row.problem)
        if (row.reaction or self.reaction) == "fail":
            raise UserError(f"{row.problem}; {REPAIR}")
        self.problems.append(row.problem)

    def leave_out(self, rows: Iterable[T | BadRow], size: int = 1) -> Iterator[T]:
        """The good ones of rows; of each `size` in turn all, or none.

        Raises:
            UserError: one is bad, and the configuration wants to fail.
        """
        left = iter(rows)
        while group := list(itertools.islice(left, size)):
            good = [row for row in group if not isinstance(row, BadRow)]
            if len(good) == len(group):
                yield from good
            else:
                self.add(next(row for row in group if isinstance(row, BadRow)))

    def log(self) -> None:
        """Warn of what is left out."""
        for problem in self.problems[:MAX_LOGGED]:
            log.warning("data skipped: %s", problem)
        if self.problems:
            log.warning("data: %d parts are skipped", len(self.problems))


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its kind."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
