"""`?` in a sweep file: a value that is to be filled in, which no command accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep

FILE = """
name: s
command: [python, t.py, "{args}"]
metric: loss
mode: min
space: {x: {choice: ["?", a]}}
fixed: {unknown: "?"}
scheduler: {name: none}
budget: {trials: 2}
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("mode: min", 'mode: "?"', "s.yaml:5: mode: '?' is to be filled in: min or max"),
        ("metric: loss", 'metric: "?"', "s.yaml:4: metric: '?' is to be filled in: The reported"),
        ("metric: loss", 'metric: [a, "?"]', "metric.1: '?' is to be filled in: The reported"),
        ("{args}", "?", "command.2: '?' is to be filled in"),
        ("{trials: 2}", '{trials: "?"}', "budget.trials: '?' is to be filled in: Trials in total"),
        ("name: none", 'name: "?"', "scheduler.name: '?' is to be filled in: auto or asha"),
        ("{x: ", '{y: "?", x: ', "space.y: '?' is to be filled in: a domain"),
    ],
)
def test_open_value_is_refused_with_what_to_choose(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "s.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(UserError) as error:
        load_sweep(tmp_path / "s.yaml")
    assert len(error.value.problems) == 1
    assert message in str(error.value)


def test_question_mark_is_a_value_of_a_parameter(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(FILE)
    assert load_sweep(tmp_path / "s.yaml").spec.fixed == {"unknown": "?"}
