"""Text for the terminal: what is broken where, and how numbers are written."""

from __future__ import annotations

import pytest

from tuning.cli.formatting import number, wrapped


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a few short words", ["a few short", "words"]),
        ("see: tune show mine; then", ["see:", "tune show mine;", "then"]),
        ("log /a/path/that/is/longer/than/it", ["log", "/a/path/that/is/longer/than/it"]),
        ("tune add mine learning_rate=3e-3 x=1", ["tune add mine", "learning_rate=3e-3", "x=1"]),
        ("  indented, and more", ["  indented, and", "  more"]),
        ("why   it is the best", ["why   it is the", "      best"]),
    ],
)
def test_lines_are_broken_between_words_and_commands(text: str, lines: list[str]) -> None:
    assert wrapped(text, width=16).split("\n") == lines


def test_control_characters_are_visible() -> None:
    assert wrapped("a\x1b[2J") == "a\\x1b[2J"


@pytest.mark.parametrize(
    ("value", "text"),
    [(10560.0, "10560"), (12345.6, "12346"), (0.98765, "0.9877"), (3e9, "3e+09"), (None, "-")],
)
def test_number_has_at_least_four_digits(value: float | None, text: str) -> None:
    assert number(value) == text
