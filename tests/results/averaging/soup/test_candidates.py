"""Which models can be averaged: trials, checkpoints of a trial, federated clients."""

import json
import math

import pytest
from safetensors.numpy import load_file, save

from results.averaging.soup import candidates as soups
from results.paths import SweepPaths
from results.records.trial import TrialState
from search_spaces.errors import UserError
from tests.results.averaging.soups import SPEC, add, at, best, build
from tests.results.written import write_checkpoint
from tests.tuning.simulate import make_spec


def test_best_trials_skips_trials_without_an_intact_checkpoint(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.4)
    add(sweep, 1, at(1), 0.1, TrialState.FAILED)
    add(sweep, 2, None, 0.2)
    add(sweep, 3, at(1), 0.3)
    add(sweep, 4, at(1), math.nan)
    add(sweep, 5, at(1), 0.35)
    (sweep.trial("t0005").checkpoint(3) / "model.safetensors").write_text("damaged")
    assert [c.label for c in best(sweep)] == ["t0003", "t0000"]
    assert [c.label for c in best(sweep, 1)] == ["t0003"]
    with pytest.raises(UserError, match=f"a finite 'accuracy'.*tune show {sweep.root}$"):
        soups.best_trials(sweep, make_spec(metric="accuracy", mode="max"), 3)
    given = soups.named_trials(sweep, SPEC, ["t0000", "t0003"])
    assert [c.label for c in given] == ["t0000", "t0003"]
    with pytest.raises(UserError, match="no trial 't0009'"):
        soups.named_trials(sweep, SPEC, ["t0009"])
    with pytest.raises(
        UserError, match=f"t0002 has no finite 'loss' .*tune show {sweep.root} t0002$"
    ):
        soups.named_trials(sweep, SPEC, ["t0002"])


def test_last_checkpoints_are_in_order_of_time(sweep: SweepPaths) -> None:
    for step in (1, 2, 3, 4):
        add(sweep, 0, at(step), 1 / step, step=step)
    (sweep.trial("t0000").checkpoint(3) / "model.safetensors").write_text("damaged")
    found = soups.last_checkpoints(sweep, SPEC, "t0000", 2)
    assert [(c.label, c.value, c.trial_id) for c in found] == [
        ("t0000@2", 0.5, "t0000"),
        ("t0000@4", 0.25, "t0000"),
    ]
    made = build(sweep, "ema", candidates=found)
    assert load_file(sweep.soup("ema") / "model.safetensors")["w"][0] == pytest.approx(2.2)
    assert made.trial_id == "t0000"
    add(sweep, 1, at(1), 0.5)
    with pytest.raises(
        UserError, match="t0001 has one intact checkpoint, and an average needs two"
    ):
        soups.last_checkpoints(sweep, SPEC, "t0001", 3)


def test_federated_clients_are_read_from_the_newest_checkpoint(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    with pytest.raises(UserError, match=r"holds no clients; .* keep_clients: true"):
        soups.federated_clients(sweep, "t0000")
    files: dict[str, str | bytes] = {}
    for name, examples in (("00000", 30), ("00002", 10)):
        files[f"clients/{name}/model.safetensors"] = save({"w": at(examples)})
        told = json.dumps({"init": "abc", "examples": examples})
        files[f"clients/{name}/lineage.json"] = told
    write_checkpoint(sweep.trial("t0000"), 9, files)
    found = soups.federated_clients(sweep, "t0000")
    assert [c.label for c in found] == ["t0000@9/00000", "t0000@9/00002"]
    counts = soups.parse_weights(found, "examples", SPEC)
    assert counts == [30, 10]
    build(sweep, "weighted", candidates=found, weights=counts)
    assert load_file(sweep.soup("weighted") / "model.safetensors")["w"][0] == 25.0


def test_parse_weights(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.5)
    add(sweep, 1, at(2), 0.25)
    pair = soups.named_trials(sweep, SPEC, ["t0000", "t0001"])
    assert soups.parse_weights(pair, "metric", SPEC) == [2.0, 4.0]
    assert soups.parse_weights(pair, "metric", make_spec(mode="max")) == [0.5, 0.25]
    assert soups.parse_weights(pair, "3, 1", SPEC) == [3.0, 1.0]
    for how, reason in (("examples", "needs --clients"), ("much", "numbers like 0.5,0.5")):
        with pytest.raises(UserError, match=reason):
            soups.parse_weights(pair, how, SPEC)
    add(sweep, 2, at(1), -1.0)
    with pytest.raises(UserError, match="needs a 'loss' above 0 for all"):
        soups.parse_weights(best(sweep), "metric", SPEC)
