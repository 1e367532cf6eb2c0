"""Notes: the newest of each trial counts, and damaged lines cost nothing else."""

from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.notes import Note, read_notes, write_note
from search_spaces.errors import UserError


def test_the_newest_note_of_each_trial_counts(tmp_path: Path) -> None:
    paths = SweepPaths(tmp_path)
    assert read_notes(paths) == {}
    write_note(paths, "t0001", "first", ["a"])
    assert write_note(paths, "t0001", " second\n", [" a", "b ", "a", ""]) == Note(
        "second", ("a", "b")
    )
    write_note(paths, "", "of the sweep", [])
    with paths.notes.open("a") as file:
        file.write('{"trial": "t0001", "text": 3}\n[1]\ntorn')
    assert read_notes(paths) == {"t0001": Note("second", ("a", "b")), "": Note("of the sweep")}
    write_note(paths, "t0001", "", [])
    assert read_notes(paths)["t0001"] == Note()


@pytest.mark.parametrize(("text", "tags"), [("x" * 5001, []), ("", [str(i) for i in range(21)])])
def test_a_note_that_is_too_long_is_refused(tmp_path: Path, text: str, tags: list[str]) -> None:
    with pytest.raises(UserError, match="at most"):
        write_note(SweepPaths(tmp_path), "", text, tags)
    assert not SweepPaths(tmp_path).notes.exists()
