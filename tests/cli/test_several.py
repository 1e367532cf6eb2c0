"""What is shown of sweeps with several objectives, and of trials that took weights over."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord
from tests.cli.conftest import Tune
from tests.tuning.simulate import make_spec
from tuning.cli.formatting import number
from tuning.cli.run.live_view import LiveView
from tuning.controller.events import SessionStart

PBT = {"name": "pbt", "max_t": 9, "interval": 3, "mutate": ["x"]}


def test_best_gives_the_pareto_front(tune: Tune) -> None:
    tune.sweep(
        metric=["loss", "size"],
        mode=["min", "max"],
        scheduler={"name": "asha_promote", "max_t": 9},
        budget={"trials": 12},
    )
    found = json.loads(tune("best", "simulated", "--json").out)
    front = [(e["values"]["loss"], e["values"]["size"]) for e in found["front"]]
    assert found["trial"] == found["front"][0]["trial"]
    for loss, size in front:
        assert not any(a <= loss and b >= size and (a, b) != (loss, size) for a, b in front)
    said = tune("best", "simulated").out
    assert said.count("front      t") == len(front)
    assert "of a Pareto front of" in said


SEVERAL = {
    "metric": ["loss", "size"],
    "mode": ["min", "max"],
    "scheduler": {"name": "asha_promote", "max_t": 9},
    "budget": {"trials": 8},
}


def test_every_table_has_every_objective(tune: Tune) -> None:
    tune.sweep(**SEVERAL)
    best = json.loads(tune("best", "simulated", "--json").out)
    loss, size = (number(best["values"][name]) for name in ("loss", "size"))
    assert best["value"] == best["values"]["loss"]
    assert f"{best['trial']}  loss {loss}  size {size} at step" in tune("best", "simulated").out

    (line,) = (row for row in tune("ls").out.splitlines() if row.startswith("simulated"))
    assert f"{loss}, {size}" in line
    assert "min loss, max size" in line

    shown = tune("show", "simulated")
    assert {"loss", "size"} <= set(shown.lines[1])
    front = {entry["trial"] for entry in best["front"]}
    marked = {words[0] for words in shown.lines if len(words) > 1 and words[1] == "*"}
    assert marked == front
    assert "* on the Pareto front" in shown.out
    one = tune("show", "simulated", best["trial"]).out
    assert "loss by step" in one
    assert "size by step" in one


def test_sweeps_of_the_same_objectives_are_compared(tune: Tune) -> None:
    tune.sweep("one", **SEVERAL)
    tune.sweep("two", **{**SEVERAL, "seed": 4})
    tune.sweep("other", metric=["loss", "size"])
    header, *rows = tune("compare", "one", "two").lines
    assert header[header.index("loss") :][:2] == ["loss", "size"]
    assert "front" in header
    for name, row in zip(("one", "two"), rows, strict=True):
        best = json.loads(tune("best", name, "--json").out)
        assert row[2] == best["trial"]
        assert float(row[4]) == pytest.approx(best["values"]["size"], rel=1e-4)
    assert tune.refused("compare", "one", "other") == (
        "one has min loss, max size, other has min loss, min size: only sweeps of the same "
        "metrics and modes can be compared\n"
    )


def test_the_live_views_have_every_objective() -> None:
    spec = make_spec(metric=["loss", "size"], mode=["min", "max"])
    view = LiveView(console := Console(file=(out := StringIO()), width=120, height=40))
    view.session_started(SessionStart(SweepPaths(Path()), spec))
    points = {"t0000": (0.1, 1.0), "t0001": (0.2, 2.0), "t0002": (0.3, 1.5)}
    for number_, (trial, (loss, size)) in enumerate(points.items()):
        record = TrialRecord(id=trial, number=number_, params={}, config={}, seed=0, created=0.0)
        view.trial_started(record)
        said = Report(step=3, metrics={"loss": loss, "size": size}, attempt=1, time=0.0)
        view.trial_reported(record, said)
    assert view.progress.leaders() == ["t0000", "t0001"]
    assert view.progress.format_values(record.id) == "loss 0.3  size 1.5"
    console.print(view.render())
    view.session_ended(None)
    table, progress = out.getvalue().split("trials", 1)
    assert "loss" in table
    assert "size" in table
    assert table.count(" *") == 2
    assert "2 on the Pareto front" in progress


def test_show_draws_who_took_weights_from_whom(tune: Tune) -> None:
    paths = tune.sweep(scheduler=PBT, budget={"trials": 8})
    said = tune("show", "simulated").out
    lines = said[said.index("weights taken over") :].splitlines()
    assert any(" at step 3: x " in line and " → " in line for line in lines)
    assert any(" at step 6: x " in line for line in lines)
    clone = next(line for line in lines if " at step 3: " in line).split(" at ")[0].split()[-1]
    assert "at step 3 took the weights of t" in tune("show", "simulated", clone).out
    tune("report", "simulated")
    page = (paths.results / "report.html").read_text()
    drawn = page[page.index("Weights taken over</h2>") :]
    assert f"{clone} from t" in drawn
    assert drawn.index("Plotly.newPlot") < drawn.index(f"<td>{clone}</td>")


def test_what_does_not_go_together_is_refused(tune: Tune) -> None:
    file = tune.write(
        "bad.yaml",
        "name: bad\ntrainable: digits\nmetric: [a, b]\nmode: [min, min, min]\n"
        "space: {x: {uniform: [0, 1]}}\nscheduler: {name: pbt, max_t: 9}\nbudget: {time: 1h}\n",
    )
    said = tune.refused("plan", file)
    assert "bad.yaml:4: mode: needs one mode, or one for each of a, b, got 3" in said
    assert "bad.yaml:7: budget: pbt needs trials, the size of its population" in said
