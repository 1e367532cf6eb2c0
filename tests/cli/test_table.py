"""The table of the terminal: words stay whole, paths are shortened, columns left out are named."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tuning.cli.table import Column, Table, shorten

PATH = "/home/somebody/sweeps/stories/exports/t0001-hf"


def lines_of(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), markup=False)
    with console.capture() as drawn:
        console.print(table)
    return [line.rstrip() for line in drawn.get().splitlines()]


def column(title: str, text: str, **options: bool) -> Column:
    return Column(title, [(text, "")], **options)


def test_wide_terminal_shows_titles_and_texts_whole() -> None:
    table = Table.of(["learning_rate", "path"], [["0.1", PATH]], flexible=["path"])
    assert lines_of(table, 100) == ["learning_rate  path", f"0.1            {PATH}"]


def test_only_titles_that_must_be_are_cut() -> None:
    table = Table.of(["a_title_that_is_long", "weight_decay"], [["12345678", "0.5"]])
    assert lines_of(table, 24) == [
        "a_title_",
        "that_is_",
        "long      weight_decay",
        "12345678  0.5",
    ]


def test_path_is_shortened_and_pushes_out_no_column() -> None:
    table = Table(
        [
            column("trial", "t0001"),
            column("model", PATH, flexible=True, optional=True),
            column("time", "3s"),
        ]
    )
    *_, row = lines_of(table, 31)
    assert row == "t0001  …/exports/t0001-hf  3s"


def test_texts_are_wrapped_at_spaces_and_names_are_not() -> None:
    table = Table.of(["name", "meaning"], [["a_long_name", "one two three"]], flexible=["meaning"])
    assert lines_of(table, 20) == [
        "name         meaning",
        "a_long_name  one two",
        "             three",
    ]


def test_columns_without_room_are_named() -> None:
    optional = [column(name, "12345678", optional=True) for name in ("first", "second")]
    *_, row, last = lines_of(Table([column("trial", "t0001"), *optional]), 16)
    assert (row, last) == ("t0001  12345678", "left out: second")


@pytest.mark.parametrize(
    ("word", "width", "expected"),
    [(PATH, 14, "…/t0001-hf"), ("abcdefghij", 7, "abc…hij"), ("/a/b", 9, "/a/b")],
)
def test_shorten(word: str, width: int, expected: str) -> None:
    assert shorten(word, width) == expected
