"""The exception for mistakes of the user. Every other exception that escapes is a bug."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache


class UserError(Exception):
    """A mistake that the user can correct. The CLI prints one line per problem and exits with 2.

    Args:
        problems: one complete line per problem: where, the rule, the value, what to try instead.
    """

    exit_code = 2

    def __init__(self, *problems: str) -> None:
        if not problems:
            raise ValueError("UserError needs at least one problem")
        self.problems: tuple[str, ...] = problems
        super().__init__("\n".join(problems))

    def __reduce__(self) -> tuple[type[UserError], tuple[str, ...]]:
        return (type(self), self.problems)


class DamagedRecordsError(UserError):
    """Records of a sweep are missing, damaged, changed or foreign: an answer may be wrong."""

    exit_code = 3


def short_reason(error: Exception) -> str:
    """Why a record cannot be read, without its file, which the caller names."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join([*map(str, first["loc"]), first["msg"]])
    return getattr(error, "strerror", None) or str(error).splitlines()[0]


def nearest(name: object, valid: Iterable[str]) -> str | None:
    """The similar name, or the one that begins with this name; None if there is none."""
    return _nearest(str(name)[:100], tuple(sorted(valid)))


def suggest(name: object, valid: Iterable[str]) -> str:
    """End of an error line: ` (did you mean 'x'?)`, or all valid names if none is similar."""
    names = sorted(valid)
    if near := nearest(name, names):
        return f" (did you mean '{near}'?)"
    return f" (valid: {', '.join(names)})" if names else ""


def quantity(count: float, noun: str) -> str:
    """`1 trial`, `3 trials`, `0.5 CPUs`."""
    number = f"{count:g}" if isinstance(count, float) else count
    return f"{number} {noun}{'' if count == 1 else 's'}"


def first_few(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list that may be long, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


@lru_cache(maxsize=4096)
def _nearest(name: str, names: tuple[str, ...]) -> str | None:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    longer = [n for n in names if len(name) > 2 and n.startswith(name)]
    return next(iter([*near, *longer]), None)


@contextmanager
def afterwards(finish: Callable[[], object]) -> Iterator[None]:
    """Call a function after the block. If both raise, the error of the block counts.

    It came first: on a full disk, for example, everything fails that is done after it.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):
            finish()
        raise
    finish()
