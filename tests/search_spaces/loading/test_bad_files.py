"""All mistakes in a sweep file are reported at once, with file, line, key and value."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.search_spaces.examples import BAD, BAD_FOLDER


@pytest.mark.parametrize(("name", "expected"), BAD, ids=[name for name, _ in BAD])
def test_bad_file_gives_exact_messages(name: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        load_sweep(BAD_FOLDER / name)
    assert f"{error.value}\n" == expected


def test_each_bad_file_has_a_message() -> None:
    assert {path.stem for path in BAD_FOLDER.glob("*.txt")} == {Path(name).stem for name, _ in BAD}


@pytest.mark.parametrize("jargon", ["pydantic", "http", "Traceback", "Input should", "NoneType"])
def test_messages_hold_no_jargon(jargon: str) -> None:
    assert [name for name, expected in BAD if jargon in expected] == []


def test_missing_file_suggests_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "llm.yaml").touch()
    with pytest.raises(UserError, match=r"lm\.yaml: no such file \(did you mean 'llm\.yaml'\?\)"):
        load_sweep(tmp_path / "lm.yaml")
    with pytest.raises(UserError, match=r"nowhere/lm\.yaml: no such file$"):
        load_sweep(tmp_path / "nowhere" / "lm.yaml")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        load_sweep(tmp_path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("[" * 20_000)
    with pytest.raises(UserError, match=r"deep\.yaml:1: nested more than 50 levels deep"):
        load_sweep(path)


def test_exponential_aliases_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"bomb\.yaml: more than 20000 values"):
        load_sweep(path)
