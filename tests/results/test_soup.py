"""Which models go into a soup, what comes out of it, and whether it is recommended."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from results import soup as soups
from results.averaging import make_method
from results.checkpoint import commit, open_staging, staging, verify
from results.paths import SweepPaths
from results.records import Report, TrialRecord, TrialState, append_report, write_trial
from results.soup import Candidate, Judge, Recipe, Soup, make_soup, read_soup
from results.soup.candidates import check_fit
from results.soup.gate import gain
from search_spaces.errors import UserError

CENTRE = np.zeros(8)
EXAMPLES = np.random.default_rng(0).normal(size=(60, 8)) * 0.1


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path / "s")


def add(
    sweep: SweepPaths,
    number: int,
    weights: NDArray[np.floating] | None,
    loss: float,
    state: TrialState = TrialState.COMPLETED,
    init: str | None = "abc",
    step: int = 3,
    **files: Any,
) -> None:
    """A trial with a checkpoint that holds these weights."""
    record = TrialRecord(
        id=f"t{number:04d}", number=number, params={}, config={}, seed=0, state=state, created=1.0
    )
    paths = sweep.trial(record.id)
    write_trial(paths, record)
    append_report(paths, Report(step=step, metrics={"loss": loss}, attempt=1, time=1.0))
    if weights is None:
        return
    folder = staging(paths, step, 1)
    open_staging(folder)
    save_file({"w": weights}, folder / "model.safetensors")
    for name in ("config.json", "progress.json", "progress.safetensors", "rng_0.json"):
        (folder / name).write_text(f'"{name} of {record.id}"')
    if init is not None:
        (folder / "lineage.json").write_text(json.dumps({"init": init}))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    commit(folder, paths.checkpoint(step), step=step)


def at(*places: float) -> NDArray[np.float64]:
    """A point; what is not said is zero."""
    return np.array([*places, *[0.0] * (8 - len(places))])


def losses(folder: Path) -> list[float]:
    """Distance to each example around the centre."""
    weights = load_file(folder / "model.safetensors")["w"]
    return list(np.linalg.norm(EXAMPLES + CENTRE - weights, axis=1))


def judge(mode: str = "min", **changes: Any) -> Judge:
    return Judge("loss", mode, **{"selection": losses, "test": losses, **changes})


def picked(sweep: SweepPaths, top: int = 9) -> list[Candidate]:
    return soups.best(sweep, "loss", "min", top)


def cook(sweep: SweepPaths, method: str, **more: Any) -> Soup:
    by = more.pop("judge", judge())
    candidates = more.pop("picked", None) or picked(sweep)
    return make_soup(sweep, method, candidates, by, Recipe(make_method(method), **more))


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
    with pytest.raises(UserError, match="t0001 has 1 whole checkpoints, and an average takes two"):
        soups.checkpoints(sweep, "loss", "t0001", 3)


def test_clients_are_in_a_checkpoint(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    with pytest.raises(UserError, match=r"holds no clients; .* keep_clients: true"):
        soups.clients(sweep, "t0000")
    paths = sweep.trial("t0000")
    folder = staging(paths, 9, 1)
    for name, examples in (("00000", 30), ("00002", 10)):
        open_staging(folder / "clients" / name)
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


def test_greedy_keeps_what_helps_and_rejects_what_harms(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)  # alone: distance 1
    add(sweep, 1, at(9, 9), 0.2)  # draws the mean away
    add(sweep, 2, at(-1), 0.3)  # with the first: distance 0
    made = cook(sweep, "greedy")
    assert made.members == ("t0000", "t0002")
    assert made.single == "t0000"
    assert made.promoted
    assert {k: round(v.mean) for k, v in made.scores.items()} == {
        "single": 1,
        "uniform": 4,
        "greedy": 0,
    }
    folder = sweep.soup("greedy")
    assert sorted(verify(folder).files) == [
        "config.json",
        "lineage.json",
        "model.safetensors",
        "soup.json",
    ]
    assert (folder / "config.json").read_text() == '"config.json of t0000"'
    assert read_soup(folder) == made
    assert made.candidates[1]["label"] == "t0001"
    assert made.candidates[1]["sha256"] == picked(sweep)[1].sha256
    assert [p.name for p in folder.parent.iterdir()] == ["greedy"]


def test_what_goes_in_is_decided_on_the_selection_split(sweep: SweepPaths) -> None:
    """The test split says the opposite, and is only reported."""
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(-1), 0.2)
    made = cook(sweep, "greedy", judge=judge(test=lambda f: [-x for x in losses(f)]))
    assert made.members == ("t0000", "t0001")
    assert made.gain.mean < 0
    assert not made.promoted


def test_greedy_maximises_where_more_is_better(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(3), 0.2)
    made = cook(sweep, "greedy", judge=judge("max"))
    assert (made.single, made.members) == ("t0001", ("t0001",))
    assert made.gain.mean == 0
    assert not made.promoted


def test_a_nan_score_is_never_an_improvement(sweep: SweepPaths) -> None:
    add(sweep, 0, at(1), 0.1)
    add(sweep, 1, at(0.5), 0.2)

    def only_singles(folder: Path) -> list[float]:
        return losses(folder) if folder.name.startswith("step_") else [math.nan] * 60

    by = judge(selection=only_singles, test=only_singles)
    made = cook(sweep, "greedy", judge=by)
    assert made.members == ("t0001",)
    assert not made.promoted
    assert math.isnan(read_soup(sweep.soup("greedy")).scores["uniform"].mean)
    with pytest.raises(UserError, match="t0000: its 'loss' on the selection split is nan"):
        cook(sweep, "greedy", judge=judge(selection=lambda _: [math.nan]))
    assert [p.name for p in sweep.soup("x").parent.iterdir()] == ["greedy"]


def test_a_small_gain_within_the_error_is_not_promoted() -> None:
    rng = np.random.default_rng(1)
    single = rng.normal(size=100)
    assert not gain(single - 0.01 + rng.normal(size=100) * 0.5, single, -1.0).certain
    # the same gain, but on each example: pairs tell
    sure = gain(single - 0.01 + rng.normal(size=100) * 0.01, single, -1.0)
    assert sure.certain
    assert sure.mean == pytest.approx(0.01, rel=0.2)
    assert not gain([0.1], [0.9], -1.0).certain, "one number has no error"


def test_other_methods_are_judged_beside_greedy_and_uniform(sweep: SweepPaths) -> None:
    add(sweep, 0, at(2, 0), 0.1)
    add(sweep, 1, at(0, 2), 0.2)

    def start(folder: Path) -> tuple[Path, str | None]:
        save_file({"w": at(1, 1)}, folder / "model.safetensors")
        return folder / "model.safetensors", "abc"

    made = cook(sweep, "task_arithmetic", start=start, dtype="float32")
    assert made.scores.keys() == {"single", "uniform", "greedy", "task_arithmetic"}
    found = load_file(sweep.soup("task_arithmetic") / "model.safetensors")["w"]
    assert found.dtype == np.float32
    assert found.tolist() == at(1, 1).tolist()
    assert [p.name for p in sweep.soup("x").parent.iterdir()] == ["task_arithmetic"]
    with pytest.raises(UserError, match="t0000 did not start from these weights"):
        cook(sweep, "ties", start=lambda f: (start(f)[0], "cba"))
    with pytest.raises(UserError, match="cannot be known whether the models started from these"):
        cook(sweep, "ties", start=lambda f: (start(f)[0], None))
    assert cook(sweep, "ties", start=lambda f: (start(f)[0], None), force=True).force
    with pytest.raises(UserError, match="method ties needs the weights from which"):
        cook(sweep, "ties")


def test_statistics_are_recalibrated_before_each_judgement(sweep: SweepPaths) -> None:
    add(sweep, 0, at(2), 0.1)
    add(sweep, 1, at(4), 0.2)

    def to_centre(folder: Path) -> None:
        save_file({"w": at(0)}, folder / "model.safetensors")

    made = cook(sweep, "uniform", judge=judge(recalibrate=to_centre))
    assert made.scores["uniform"].mean < 1
    assert load_file(sweep.soup("uniform") / "model.safetensors")["w"].tolist() == [0.0] * 8


def test_a_soup_in_several_files(sweep: SweepPaths) -> None:
    for number in (0, 1):
        add(sweep, number, at(number), 0.1)
    many = {f"w{i}": np.ones(100) for i in range(4)}
    for number in (0, 1):
        folder = sweep.trial(f"t{number:04d}").checkpoint(3)
        save_file({**many, "w": at(number)}, folder / "model.safetensors")
        commit(folder.rename(folder.with_name("x")), folder, step=3)
    cook(sweep, "uniform", max_shard=2000)
    names = sorted(verify(sweep.soup("uniform")).files)
    assert "model.safetensors.index.json" in names
    assert "model-00001-of-00002.safetensors" in names
    assert "model.safetensors" not in names


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


def test_a_folder_without_a_recipe_is_no_soup(sweep: SweepPaths) -> None:
    with pytest.raises(UserError, match=r"no soup \(soup\.json is missing or damaged\)"):
        read_soup(sweep.soup("none"))
