from __future__ import annotations

import pytest

from search_spaces.spec.base import parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *[(90, 90), (0.5, 0.5), ("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86400)],
        *[("1h30m", 5400), ("1.5h", 5400), ("1d2h3m4s", 93784)],
    ],
)
def test_duration_is_parsed(value: object, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    [*["", "90", "m", "30m1h", "5 m", "-5m", "5x", "1h1h"], *[0, -1, True, None, [], float("inf")]],
)
def test_invalid_duration_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be a duration above zero"):
        parse_duration(value)
