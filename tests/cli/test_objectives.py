"""Sweeps with several objectives: winner, tables and comparison."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Tune
from tuning.cli.formatting import number

SEVERAL = {
    "metric": ["loss", "size"],
    "mode": ["min", "max"],
    "scheduler": {"name": "asha_promote", "max_t": 9},
    "budget": {"trials": 8},
}


def test_best_prints_the_pareto_front(tune: Tune) -> None:
    tune.sweep(**{**SEVERAL, "budget": {"trials": 12}})
    found = tune.best("simulated")
    front = [(e["values"]["loss"], e["values"]["size"]) for e in found["front"]]
    assert found["trial"] == found["front"][0]["trial"]
    for loss, size in front:
        assert not any(a <= loss and b >= size and (a, b) != (loss, size) for a, b in front)
    output = tune("best", "simulated").out
    assert output.count("front      t") == len(front)
    assert "of a Pareto front of" in output


def test_tables_show_every_objective(tune: Tune) -> None:
    tune.sweep(**SEVERAL)
    best = tune.best("simulated")
    loss, size = (number(best["values"][name]) for name in ("loss", "size"))
    assert best["value"] == best["values"]["loss"]
    assert f"{best['trial']}  loss {loss}  size {size} at step" in tune("best", "simulated").out

    (line,) = (row for row in tune("ls").out.splitlines() if row.startswith("simulated"))
    assert f"{loss}, {size}" in line
    assert "min loss, max size" in line

    shown = tune("show", "simulated")
    assert {"loss", "size"} <= set(shown.lines[0])
    front = {entry["trial"] for entry in best["front"]}
    marked = {words[0] for words in shown.lines if len(words) > 1 and words[1] == "*"}
    assert marked == front
    assert "* on the Pareto front" in shown.out
    one = tune("show", "simulated", best["trial"]).out
    assert "loss by step" in one
    assert "size by step" in one


def test_compare_needs_the_same_objectives(tune: Tune) -> None:
    tune.sweep("one", **SEVERAL)
    tune.sweep("two", **{**SEVERAL, "seed": 4})
    tune.sweep("other", metric=["loss", "size"])
    header, *rows = tune("compare", "one", "two").lines
    assert header[header.index("loss") :][:2] == ["loss", "size"]
    assert "front" in header
    for name, row in zip(("one", "two"), rows, strict=True):
        best = tune.best(name)
        assert row[2] == best["trial"]
        assert float(row[4]) == pytest.approx(best["values"]["size"], rel=1e-4)
    assert tune.refused("compare", "one", "other") == (
        "one has min loss, max size, other has min loss, min size: only sweeps of the same "
        "metrics and modes can be compared\n"
    )
