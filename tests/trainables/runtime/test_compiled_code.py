"""Where torch keeps compiled code on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainables.runtime import compiled_code
from trainables.runtime.compiled_code import FOLDER, KEPT_S, keep_compiled
from trainables.runtime.seeding import restored_global_state


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(FOLDER, raising=False)
    compiled_code._own_folder.cache_clear()
    yield tmp_path / "tune-platform/compiled"
    compiled_code._own_folder.cache_clear()


def test_only_its_user_may_open_it_and_what_is_old_is_removed(home: Path) -> None:
    home.mkdir(parents=True)
    old, new = home / "old", home / "new"
    for file in (old, new):
        file.touch()
    before = time.time() - KEPT_S - 60
    os.utime(old, (before, before))
    with restored_global_state():
        keep_compiled("a")
        folder = Path(os.environ[FOLDER])
    assert folder.parent == home
    assert home.stat().st_mode & 0o777 == 0o700
    assert new.exists()
    assert not old.exists()
    assert FOLDER not in os.environ


def test_the_users_own_choice_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, "/elsewhere")
    with restored_global_state():
        keep_compiled("b")
        assert os.environ[FOLDER] == "/elsewhere"


def test_torchs_folder_stays_where_there_is_no_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with restored_global_state():
        keep_compiled("c")
        assert "/proc/none" not in os.environ.get(FOLDER, "")
