"""A prepared driver runs a command only if nothing that it read has changed."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from search_spaces.errors import UserError
from trainables.runtime.source import files_read, source_digests
from tuning.cluster.driver_client import hand_over
from tuning.cluster.identity import (
    LoadedCode,
    difference,
    identity,
    socket_path,
    terminal_variables,
)


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # pytest's is too long
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a module that this process has imported."""
    file = tmp_path / "helper.py"
    file.write_text("RATE = 1\n")
    module = ModuleType("helper_of_a_test")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return file


def test_another_variable_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity()
    monkeypatch.setenv("HF_TOKEN", "canary-77ab31")
    found = identity()
    assert difference(before, found) == "other environment variables (HF_TOKEN)"
    assert "canary" not in str(found)


def test_terminals_do_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity()
    monkeypatch.setenv("SSH_TTY", "/dev/pts/7")
    monkeypatch.setenv("TERM", "vt100")
    assert difference(before, identity()) is None
    assert terminal_variables(os.environ)["TERM"] == "vt100"


def test_another_folder_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity()
    monkeypatch.chdir(tmp_path)
    assert difference(before, identity()) == "another working directory"


def test_edited_replaced_and_removed_files_are_changes(imported: Path) -> None:
    code = LoadedCode(time.time() + 60)
    assert code.changed() is None
    older = imported.with_name("older.py")
    older.write_text("RATE = 2\n")
    os.utime(older, (0, 0))
    older.rename(imported)  # same size, older time
    assert code.changed() == str(imported)
    code = LoadedCode(time.time() + 60)
    imported.unlink()
    assert code.changed() == str(imported)


def test_file_that_changes_during_the_imports_is_a_change(imported: Path) -> None:
    since = imported.stat().st_ctime_ns / 1e9  # other tests have imported what is a little older
    assert LoadedCode(since).changed() == str(imported)


def test_code_of_the_user_that_was_imported_later_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = LoadedCode(time.time() + 60)
    for name, file in (("of_the_user", tmp_path / "own.py"), ("of_a_package", Path(json.__file__))):
        module = ModuleType(name)
        module.__file__ = str(file.with_name("own.py"))
        monkeypatch.setitem(sys.modules, name, module)
    assert code.grow(time.time() + 60) == {str(tmp_path / "own.py")}
    assert code.grow(time.time() + 60) == set()
    (tmp_path / "own.py").write_text("RATE = 1\n")
    assert code.changed() == str(tmp_path / "own.py")


def test_files_that_were_hashed_count_as_loaded(tmp_path: Path) -> None:
    (helper := tmp_path / "helper.py").write_text("RATE = 1\n")
    (script := tmp_path / "script.py").write_text("def train():\n    import helper\n")
    source_digests(script, tmp_path)
    code = LoadedCode(time.time() + 60, files_read())
    assert code.changed() is None
    helper.write_text("RATE = 20\n")
    assert code.changed() == str(helper)


def test_socket_lies_in_a_private_folder(base: Path) -> None:
    with pytest.raises(FileNotFoundError):
        socket_path()
    folder = socket_path(create=True).parent
    assert folder.parent == base
    folder.chmod(0o755)
    assert stat.S_IMODE(socket_path().parent.stat().st_mode) == 0o700


def test_folder_that_leads_elsewhere_is_refused(base: Path, tmp_path: Path) -> None:
    (base / f"tune-{os.getuid()}.up").symlink_to(tmp_path)
    with pytest.raises(UserError, match="is not a folder of yours"):
        socket_path()


@pytest.mark.parametrize("command", [["run", "a.yaml"], ["resume", "a", "--address", "auto"]])
def test_nothing_is_handed_over_without_tune_up(base: Path, command: list[str]) -> None:
    assert hand_over(command) is None
