"""Which models an average is made of, and which do not go together."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from results.averaging import soup as soups
from results.averaging.soup.candidates import check_fit
from results.checkpoints.commit import commit, create_staging, staging_folder
from results.paths import SweepPaths
from results.records.trial import TrialState
from search_spaces.errors import UserError
from tests.results.soups import add, at, cook, picked, sweep

__all__ = ["sweep"]


def test_candidates_are_the_best_that_can_be_loaded(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.4)
    add(sweep, 1, at(1), 0.1, TrialState.FAILED)
    add(sweep, 2, None, 0.2)
    add(sweep, 3, at(1), 0.3)
    add(sweep, 4, at(1), math.nan)
    add(sweep, 5, at(1), 0.35)
    (sweep.trial("t0005").checkpoint(3) / "model.safetensors").write_text("damaged")
    assert [c.label for c in picked(sweep)] == ["t0003", "t0000"]
    assert [c.label for c in picked(sweep, 1)] == ["t0003"]
    with pytest.raises(UserError, match="no trial has both a finite 'accuracy'"):
        soups.best(sweep, "accuracy", "max", 3)
    given = soups.named(sweep, "loss", "min", ["t0000", "t0003"])
    assert [c.label for c in given] == ["t0000", "t0003"]
    with pytest.raises(UserError, match="s: no trial 't0009'"):
        soups.named(sweep, "loss", "min", ["t0009"])
    with pytest.raises(UserError, match="trial t0002 has no finite 'loss' or no whole checkpoint"):
        soups.named(sweep, "loss", "min", ["t0002"])


def test_checkpoints_of_one_trial_are_taken_by_time(sweep: SweepPaths) -> None:
    for step in (1, 2, 3, 4):
        add(sweep, 0, at(step), 1 / step, step=step)
    (sweep.trial("t0000").checkpoint(3) / "model.safetensors").write_text("damaged")
    found = soups.checkpoints(sweep, "loss", "t0000", 2)
    assert [(c.label, c.value, c.trial_id) for c in found] == [
        ("t0000@2", 0.5, "t0000"),
        ("t0000@4", 0.25, "t0000"),
    ]
    made = cook(sweep, "ema", picked=found)
    assert load_file(sweep.soup("ema") / "model.safetensors")["w"][0] == pytest.approx(2.2)
    assert made.trial_id == "t0000"
    add(sweep, 1, at(1), 0.5)
    with pytest.raises(UserError, match="t0001 has one whole checkpoint, and an average takes two"):
        soups.checkpoints(sweep, "loss", "t0001", 3)


def test_clients_are_in_a_checkpoint(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    with pytest.raises(UserError, match=r"holds no clients; .* keep_clients: true"):
        soups.clients(sweep, "t0000")
    paths = sweep.trial("t0000")
    folder = staging_folder(paths, 9, 1)
    for name, examples in (("00000", 30), ("00002", 10)):
        create_staging(folder / "clients" / name)
        save_file({"w": at(examples)}, folder / "clients" / name / "model.safetensors")
        told = json.dumps({"init": "abc", "examples": examples})
        (folder / "clients" / name / "lineage.json").write_text(told)
    commit(folder, paths.checkpoint(9), step=9)
    found = soups.clients(sweep, "t0000")
    assert [c.label for c in found] == ["t0000@9/00000", "t0000@9/00002"]
    counts = soups.weights(found, "examples", "loss", "min")
    assert counts == [30, 10]
    cook(sweep, "weighted", picked=found, weights=counts)
    assert load_file(sweep.soup("weighted") / "model.safetensors")["w"][0] == 25.0


def test_weights_by_what_the_user_says(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.5)
    add(sweep, 1, at(2), 0.25)
    pair = soups.named(sweep, "loss", "min", ["t0000", "t0001"])
    assert soups.weights(pair, "metric", "loss", "min") == [2.0, 4.0]
    assert soups.weights(pair, "metric", "loss", "max") == [0.5, 0.25]
    assert soups.weights(pair, "3, 1", "loss", "min") == [3.0, 1.0]
    for how, reason in (("examples", "only clients"), ("much", "numbers like 0.5,0.5")):
        with pytest.raises(UserError, match=reason):
            soups.weights(pair, how, "loss", "min")
    add(sweep, 2, at(1), -1.0)
    with pytest.raises(UserError, match="needs a 'loss' above 0 of all"):
        soups.weights(picked(sweep), "metric", "loss", "min")


def test_models_without_a_common_start_are_refused(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(1), 0.2, init="other")
    add(sweep, 2, at(1), 0.3, init=None)
    add(sweep, 3, np.ones(3), 0.4, init="other")
    add(sweep, 4, at(1), 0.5)
    with pytest.raises(UserError) as caught:
        check_fit(picked(sweep))
    unknown, start, shape = caught.value.problems
    assert unknown.startswith("trial t0002: ")
    assert start.startswith("trials t0000 and t0001 cannot be averaged: they started from differ")
    assert shape == (
        "trials t0000 and t0003 cannot be averaged: tensor 'w' is [8] in one and [3] in the other"
    )
    with pytest.raises(UserError):
        cook(sweep, "uniform")
    assert not sweep.soup("uniform").exists()
    some = soups.named(sweep, "loss", "min", ["t0000", "t0001", "t0002"])
    assert cook(sweep, "uniform", picked=some, force=True).members == ("t0000", "t0001", "t0002")
    with pytest.raises(UserError, match="tensor 'w' is"):
        cook(sweep, "uniform", force=True)


def test_adapters_of_different_scales_are_refused(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1, adapter_config={"r": 4, "lora_alpha": 8})
    add(sweep, 1, at(1), 0.2, adapter_config={"r": 4, "lora_alpha": 16})
    with pytest.raises(UserError, match=r"adapter_config.json has lora_alpha: 8 in one and 16 in"):
        check_fit(picked(sweep), force=True)
