"""What is shown of sweeps with several objectives, and of trials that took weights over."""

from __future__ import annotations

import json

from tests.cli.conftest import Tune

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


def test_show_draws_who_took_weights_from_whom(tune: Tune) -> None:
    tune.sweep(scheduler=PBT, budget={"trials": 8})
    said = tune("show", "simulated").out
    lines = said[said.index("weights taken over") :].splitlines()
    assert any(" at step 3: x " in line and " → " in line for line in lines)
    assert any(" at step 6: x " in line for line in lines)
    clone = next(line for line in lines if " at step 3: " in line).split(" at ")[0].split()[-1]
    assert "at step 3 went on from t" in tune("show", "simulated", clone).out


def test_what_does_not_go_together_is_refused(tune: Tune) -> None:
    file = tune.write(
        "bad.yaml",
        "name: bad\ntrainable: digits\nmetric: [a, b]\nmode: [min, min, min]\n"
        "space: {x: {uniform: [0, 1]}}\nscheduler: {name: pbt, max_t: 9}\nbudget: {time: 1h}\n",
    )
    said = tune.refused("plan", file)
    assert "bad.yaml:4: mode: needs one mode, or one for each of a, b, got 3" in said
    assert "bad.yaml:7: budget: pbt needs trials, the size of its population" in said
