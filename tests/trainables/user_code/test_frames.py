"""The user's own lines of an exception, also after it crossed processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from trainables.launch.errors import error_line
from trainables.launch.run_trial import output_to
from trainables.user_code.loader import load

SCRIPT = """
import json
from data import text


def loop(config):
    return text(config)


def recurse(config):
    return recurse(config - 1) if config else 1 / config
"""
DATA = "import json\n\n\ndef text(config):\n    return int(config)\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that imports a module beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "data", raising=False)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "data.py").write_text(DATA)
    return tmp_path / "train.py"


def line_of(script: Path, function: str, config: object) -> str:
    """The error line of a call, whose exception was sent to another process."""
    log = script.parent / "rank_0.log"
    with pytest.raises(Exception, match=r".") as raised, output_to(log):
        load(f"{script}:{function}")(config)
    assert "Traceback" in log.read_text()
    return error_line(pickle.loads(pickle.dumps(raised.value)))


def test_error_names_the_lines_of_the_user_only(script: Path) -> None:
    here = Path(__file__)
    found = line_of(script, "loop", "x")
    assert found.startswith("ValueError: invalid literal for int")
    assert found.endswith(f", {script}:7, {script.parent / 'data.py'}:5)")
    assert here.name in found
    assert line_of(script, "recurse", 9).endswith(f" ({script}:11, {script}:11, {script}:11)")


def test_syntax_error_names_its_own_file(script: Path) -> None:
    (script.parent / "data.py").write_text("def text(:\n")
    assert line_of(script, "loop", "").endswith(f"{script.parent / 'data.py'}:1)")
