"""Regular expressions of a sweep file: bounded in length, in repetitions and in time.

Python's `re` cannot be interrupted: `(a+)+$` takes years on a long line. The package `regex` has
the same syntax and a limit of time, but unrolls counted repetitions: their number is bounded too.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Collection
from typing import Any

from search_spaces.limits import limit

log = logging.getLogger(__name__)

MAX_PATTERNS, MAX_LENGTH, MAX_REPEATS, SECONDS = 20, 500, 10_000, 0.5
"""Patterns of a file, characters of one, the product of its counted repetitions, and the time that
one may take on a text (seconds of the process).
"""
_NUMBER = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?i:nan|inf(?:inity)?))"
_NAME_BEGINS, _NUMBER_ENDS = r"(?<![\w./@-])", r"(?!\w|\.[\w.]|[,:-]\d)"
_WRITTEN = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
"""A number with its sign and exponent."""
_COMMAS = re.compile(r"(?<![\w.,])[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+,\d+)(?!\w|[.,]\d)")
"""A number with commas between its thousands, or with one in place of the point."""
_NOT_FINITE = re.compile(r"(?i:(?<![\w.])[-+]?(?:nan|inf(?:inity)?)(?!\w|\.\w))")
_slow: set[str] = set()
"""Patterns that took longer. They are not tried again: the sweep's driver waits meanwhile."""


def check_patterns(patterns: Collection[str]) -> None:
    """Refuse what is not a regular expression, or could use too much time or memory.

    Raises:
        ValueError: the first mistake.
    """
    if len(patterns) > limit(MAX_PATTERNS):
        raise ValueError(f"takes at most {MAX_PATTERNS} patterns, got {len(patterns)}")
    for pattern in patterns:
        if fault := _fault(pattern):
            raise ValueError(fault)


def _fault(pattern: str) -> str | None:
    import regex

    if len(pattern) > limit(MAX_LENGTH):
        return f"a pattern has at most {MAX_LENGTH} characters, got {len(pattern)}"
    counts = re.findall(r"[{,]\s*([0-9]+)\s*\}", pattern)
    if any(len(n) > 5 for n in counts) or math.prod(max(1, int(n)) for n in counts) > limit(
        MAX_REPEATS
    ):
        return f"the counts of '{pattern}' multiply to more than {MAX_REPEATS} repetitions"
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            re.compile(pattern)
            regex.compile(pattern)
    except (re.error, regex.error, RecursionError, OverflowError) as e:
        return f"'{pattern}' is not a regular expression ({e})"
    return None


def metric_pattern(name: str) -> str:
    """The pattern of a metric in a line of output: its name, `=` or `:`, and a number.

    The name is a whole one: `loss` is not found in `train_loss=1`, `val/loss=1` or `loss-a=1`. What
    only begins as a number is none: `1e`, `1.2.3`, `0,5`, `12:30`, `3ms`. Quotes of JSON and of
    Python may stand around both.
    """
    return rf"{_NAME_BEGINS}{re.escape(name)}[\"']?\s*[=:]\s*[\"']?({_NUMBER}){_NUMBER_ENDS}"


def matches(pattern: str, text: str) -> bool:
    """Whether a checked pattern is found in a text; False, and a warning, if that takes long."""
    return _search(pattern, text) is not None


def first_group(pattern: str, text: str) -> str | None:
    """What the first group of a checked pattern found in a text; None like False of `matches`.

    Where a pattern takes digits only, it also finds `nan` and `inf` in their place: the value of
    training that diverged must not be passed over.
    """
    if (found := _search(pattern, text)) is not None:
        group: str | None = found[1]
        return group
    for value in _NOT_FINITE.finditer(text):
        found = _search(pattern, f"{text[: value.start()]}1.5{text[value.end() :]}")
        if found is not None and found.start(1) == value.start():
            return value[0]
    return None


def cut_number(pattern: str, text: str) -> str | None:
    """The number of a text of which the first group of a checked pattern found another one, as `3`
    of `3e-05`, `0.5` of `-0.5` or, if nothing after it is in the pattern, `1` of `1,234.5`.
    """
    if (found := _search(pattern, text)) is None:
        return None
    start, end = found.span(1)
    whole = (n for n in _WRITTEN.finditer(text) if n.start() <= start and end <= n.end())
    if cut := next((n[0] for n in whole if float(n[0]) != float(found[1])), None):
        return cut
    whole = (n for n in _COMMAS.finditer(text) if n.start() <= start and end < n.end())
    return next((n[0] for n in whole if end == found.end()), None)


def _search(pattern: str, text: str) -> Any:
    import regex

    if pattern in _slow:
        return None
    try:
        return regex.search(pattern, text, timeout=SECONDS)
    except TimeoutError:
        _slow.add(pattern)
        log.warning("the pattern %r takes longer than %g s: it is ignored", pattern, SECONDS)
        return None
