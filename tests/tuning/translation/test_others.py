"""Files in the manner of other programs' public examples, through `tune init --like`.

Comments at the end of each file say what is expected: `# is KEY: VALUE` of the sweep file, `# says
TEXT` of its comments, or `# refused: TEXT`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import OPEN, load_sweep, sweep_problems
from search_spaces.nested import dotted, walk
from tuning.translation.translate import sweep_text

OTHERS = Path(__file__).parent / "others"
FILES = sorted(path.name for path in OTHERS.iterdir() if path.is_file())


def expected(name: str, kind: str) -> list[str]:
    """What the comments of one kind say."""
    return re.findall(rf"^# {kind}:? (.*)$", (OTHERS / name).read_text(), re.M)


def at(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


@pytest.mark.parametrize("name", FILES)
def test_file_of_another_program(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(OTHERS)
    like = f"{name}:objective" if name.startswith("optuna") else name
    if refused := expected(name, "refused"):
        with pytest.raises(UserError, match=refused[0]):
            sweep_text(like)
        return
    text = sweep_text(like)
    notes = "\n".join(re.findall("#.*", text))
    data = YAML(typ="safe").load(text)
    wanted = [YAML(typ="safe").load(line) for line in expected(name, "is")]
    for path, value in (item for line in wanted for item in line.items()):
        assert at(data, path) == value, path
    for said in expected(name, "says"):
        assert said in notes
    filled_in = {dotted(path) for path, value in walk(data) if value == OPEN}
    assert {dotted(path) for path in sweep_problems(data)} == filled_in - {"space.?.?"}
    assert all(path.startswith(tuple(key for line in wanted for key in line)) for path in filled_in)
    if not filled_in:
        (tmp_path / "sweep.yaml").write_text(text)
        load_sweep(tmp_path / "sweep.yaml")
