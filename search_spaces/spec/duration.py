"""Durations as people write them: 90, "90s", "5m", "1h30m"."""

from __future__ import annotations

import re

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
PATTERN = r"^(?=.)" + "".join(rf"({_NUMBER}{unit})?" for unit in _UNITS) + "$"
"""Regular expression of the text form; shared with the JSON Schema."""


def parse_duration(value: object) -> float:
    """Convert a duration to seconds.

    Args:
        value: seconds as a number, or text with the units d, h, m, s, largest first.

    Raises:
        ValueError: not a duration, or not above zero.
    """
    seconds = _seconds(value)
    if seconds is None or not 0 < seconds < float("inf"):
        raise ValueError(
            "must be a duration above zero: seconds, or text like '90s', '5m', '1h30m', "
            f"got {value!r}"
        )
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str) or not (match := re.fullmatch(PATTERN, value)):
        return None
    parts = (part for part in match.groups() if part)
    return float(sum(float(part[:-1]) * _UNITS[part[-1]] for part in parts))
