"""Files of a user's that are named like modules of this program or of the standard library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from results.own_program import module_command, ranks_command, standard_library
from search_spaces.errors import UserError
from trainables.user_code.loader import find, load

SCRIPT = "import helper\n\n\ndef loop(config):\n    return helper.__file__\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a script and a module beside it."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize(
    ("name", "owner"), [("results", "this program"), ("queue", "Python's standard library")]
)
@pytest.mark.parametrize("where", ["train.py", "helper.py"])
def test_import_of_a_hidden_file_is_refused(
    project: Path, name: str, owner: str, where: str
) -> None:
    (project / name).mkdir()
    assert find("train.py:loop") == project / "train.py"  # a folder of files is no module
    (project / name / "__init__.py").write_text("")
    assert find("train.py:loop") == project / "train.py"  # not imported
    (project / where).write_text(f"from {name} import x\n{SCRIPT}")
    with pytest.raises(UserError, match=rf"{where} imports {name}.* of {owner}, not .*{name}"):
        find("train.py:loop")


def test_module_that_hides_itself_is_refused(project: Path) -> None:
    (project / "tuning.py").write_text(SCRIPT)
    with pytest.raises(UserError, match="rename"):
        find("tuning:loop")
    assert find("tuning.py:loop") == project / "tuning.py"  # a script gets another name


def test_names_within_a_package_are_its_own(project: Path) -> None:
    (project / "mine").mkdir()
    for file in ("__init__", "queue", "train"):
        (project / "mine" / f"{file}.py").write_text("from mine import queue\nloop = print\n")
    assert find("mine.train:loop") == project / "mine" / "train.py"


def test_folders_of_users_come_after_the_standard_library(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(project)])
    monkeypatch.delitem(sys.modules, "helper", raising=False)
    assert load("train.py:loop")({}) == str(project / "helper.py")
    places = [sys.path.index(folder) for folder in standard_library()]
    packages = [i for i, folder in enumerate(sys.path) if folder.endswith("site-packages")]
    assert max(places) < sys.path.index(str(project)) < min(packages)
    assert sys.path.count(str(project)) == 1


@pytest.mark.parametrize("command", [module_command, lambda *a: ranks_command(1, *a)])
def test_own_programs_ignore_the_working_directory(project: Path, command) -> None:
    for name in ("results", "tuning", "queue"):
        (project / f"{name}.py").write_text("raise SystemExit('the user has this file')\n")
    done = subprocess.run(
        command("tuning", "--version"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, "the user" in done.stderr) == (0, False), done.stderr
