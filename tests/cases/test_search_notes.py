"""Sweeps that compare trials unequally, or set what nothing reads, are named or refused."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import check_sweep
from search_spaces.positions import Source
from tuning.controller.preflight.checks import preflight
from tuning.controller.preflight.search_notes import search_notes

RATE: dict[str, Any] = {"learning_rate": {"loguniform": [1.0e-4, 0.1]}}
SIZES: dict[str, Any] = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "vocab_size": 300}
TEXT = {"trainable": "causal_lm", "metric": "eval_loss", "fixed": {**SIZES, "max_steps": 100}}
GRID = {"epochs": {"grid_search": [3, 9]}}


def asha(max_t: int = 100, **more: Any) -> dict[str, Any]:
    return {"name": "asha", "max_t": max_t, **more}


def checked(changes: dict[str, Any]) -> Any:
    given = {"name": "s", "trainable": "digits", "metric": "accuracy", "mode": "max"}
    data = {**given, "space": RATE, "budget": {"trials": 2}, **changes}
    if data["metric"] == "eval_loss":
        data["mode"] = "min"
    return check_sweep(data, Source("s.yaml", {}))


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, None),
        ({"mode": "min"}, "mode: min accuracy, but by its name more of it is better"),
        ({"metric": "loss"}, "mode: max loss, but by its name less"),
        ({"space": {**RATE, "init_seed": {"choice": [1, 2]}}}, "the luckiest seed; replicates: 3"),
        ({"space": GRID, "replicates": 2}, "budget.trials: 2 of the 4 trials of its grids"),
        ({"space": GRID}, None),
        ({**TEXT, "scheduler": asha()}, None),
        ({**TEXT, "scheduler": asha(300)}, "max_t: 300, but trials end at max_steps 100"),
        ({**TEXT, "scheduler": asha(300, grace_period=200)}, "max_steps 100; none is stopped"),
        (
            {**TEXT, "scheduler": asha(30)},
            "max_t: 30, but learning rates decay up to max_steps 100",
        ),
        ({"fixed": {"epochs": 90}, "scheduler": asha(30)}, None),  # no schedule is cut
        ({"scheduler": asha(9), "space": GRID}, "equal epochs are unequal parts of a training"),
        ({"scheduler": asha(9, per=["epochs"]), "space": GRID}, None),
        (
            {**TEXT, "scheduler": asha(), "space": {**RATE, "batch_size": {"choice": [8, 32]}}},
            "batch_size is searched, so equal steps are unequal amounts of data",
        ),
        ({**TEXT, "scheduler": asha(), "space": {**RATE, "batch_size": {"choice": [8, 16]}}}, None),
        ({"search": {"multivariate": True}}, "search.multivariate: no effect with mfgp; it is of"),
        ({"search": {"name": "tpe", "multivariate": True}}, None),
        ({"fixed": {"epochs": 9}, "scheduler": asha(9, interval=3)}, "scheduler.interval: no eff"),
    ],
)
def test_sweep_is_noted(changes: dict[str, Any], note: str | None) -> None:
    notes = list(search_notes(checked(changes).spec))
    assert len(notes) == (note is not None)
    assert (note or "") in "".join(notes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({**TEXT, "scheduler": asha(time_attr="epoch")}, "does not report 'epoch'; step counts"),
        ({"scheduler": asha(time_attr="round")}, "does not report 'round'; step counts its epochs"),
        ({**TEXT, "scheduler": asha(time_attr="samples_seen")}, None),
        ({"scheduler": asha(time_attr="epoch")}, None),
    ],
)
def test_clock_that_is_not_reported_is_refused(
    changes: dict[str, Any], problem: str | None
) -> None:
    if problem is None:
        assert preflight(checked(changes))
    else:
        with pytest.raises(UserError, match=problem):
            preflight(checked(changes))
