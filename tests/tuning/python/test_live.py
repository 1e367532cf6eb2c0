"""The table below a notebook's cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tuning.simulate import make_spec, open_run, train
from tests.tuning.sources import sweep
from tuning.python.live import NotebookView, live_view
from tuning.watch.follow import Follower


class Cell:
    """A notebook's output: `IPython.display.display`, and the handle that it returns."""

    def __init__(self) -> None:
        self.shown: list[dict[str, str]] = []

    def __call__(self, data: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw
        assert display_id
        self.shown.append(data)
        return self

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


def test_table_of_a_cell_is_updated_in_place(tmp_path: Path) -> None:
    paths = sweep(tmp_path, run=False)
    run = open_run(paths.root, make_spec(name="mine"))
    cell = Cell()
    follower = Follower(paths, NotebookView(cell))
    follower.begin()
    train(run, run.next_trial(), upto=2)
    follower.follow(lambda: False)
    last = cell.shown[-1]
    assert "t0000" in last["text/plain"]
    assert "0/6 trials" in last["text/plain"]
    assert last["text/html"].startswith("<pre>")
    assert "t0000" not in cell.shown[0]["text/plain"]


def test_view_is_only_where_somebody_looks() -> None:
    assert live_view(False) == []
    assert live_view(None) == []  # output of a test is no terminal
    views: list[Any] = live_view(True)
    assert len(views) == 1
