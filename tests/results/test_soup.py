"""Which trials go into a soup, and what comes out of it."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from results.checkpoint import commit, open_staging, staging, verify
from results.paths import SweepPaths
from results.records import Report, TrialRecord, TrialState, append_report, write_trial
from results.soup import Candidate, candidates, check_lineage, greedy, read_recipe, uniform
from search_spaces.errors import UserError

CENTRE = np.array([0.0, 0.0])


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
) -> None:
    """A trial whose newest checkpoint holds these weights."""
    record = TrialRecord(
        id=f"t{number:04d}", number=number, params={}, config={}, seed=0, state=state, created=1.0
    )
    paths = sweep.trial(record.id)
    write_trial(paths, record)
    append_report(paths, Report(step=3, metrics={"loss": loss}, attempt=1, time=1.0))
    if weights is None:
        return
    folder = staging(paths, 3, 1)
    open_staging(folder)
    save_file({"w": weights}, folder / "model.safetensors")
    for name in ("config.json", "progress.json", "progress.safetensors", "rng_0.json"):
        (folder / name).write_text(f'"{name} of {record.id}"')
    if init is not None:
        (folder / "lineage.json").write_text(json.dumps({"init": init}))
    commit(folder, paths.checkpoint(3), step=3)


def distance(folder: Path) -> float:
    """Held-out loss: how far the weights are from the centre."""
    return float(np.linalg.norm(load_file(folder / "model.safetensors")["w"] - CENTRE))


def picked(sweep: SweepPaths, top: int = 9) -> list[Candidate]:
    return candidates(sweep, "loss", "min", top)


def test_candidates_are_the_best_that_can_be_loaded(sweep: SweepPaths) -> None:
    point = np.array([1.0, 1.0])
    add(sweep, 0, point, 0.4)
    add(sweep, 1, point, 0.1, TrialState.FAILED)
    add(sweep, 2, None, 0.2)
    add(sweep, 3, point, 0.3)
    add(sweep, 4, point, math.nan)
    add(sweep, 5, point, 0.35)
    (sweep.trial("t0005").checkpoint(3) / "model.safetensors").write_text("damaged")
    assert [c.trial_id for c in picked(sweep)] == ["t0003", "t0000"]
    assert [c.trial_id for c in picked(sweep, 1)] == ["t0003"]
    with pytest.raises(UserError, match="no trial has both a finite 'accuracy'"):
        candidates(sweep, "accuracy", "max", 3)


def test_greedy_keeps_what_helps_and_rejects_what_harms(sweep: SweepPaths) -> None:
    add(sweep, 0, np.array([1.0, 0.0]), 0.1)  # alone: distance 1
    add(sweep, 1, np.array([9.0, 9.0]), 0.2)  # draws the mean away
    add(sweep, 2, np.array([-1.0, 0.0]), 0.3)  # with the first: distance 0
    add(sweep, 3, np.array([0.0, 0.0]), 0.4)  # not worse: 0 again
    soup = greedy(sweep, picked(sweep), distance, "min")
    assert soup.members == ("t0000", "t0002", "t0003")
    assert soup.folder == sweep.soup("greedy-4")
    assert soup.scores == pytest.approx({"single": 1.0, "uniform": 3.1820, "greedy": 0.0}, 1e-4)
    assert distance(soup.folder) == 0.0
    assert sorted(verify(soup.folder).files) == [
        "config.json",
        "lineage.json",
        "model.safetensors",
        "soup.json",
    ]
    assert (soup.folder / "config.json").read_text() == '"config.json of t0000"'
    recipe = json.loads((soup.folder / "soup.json").read_text())
    assert read_recipe(soup.folder) == soup
    assert recipe["candidates"][1]["trial"] == "t0001"
    assert recipe["candidates"][1]["sha256"] == picked(sweep)[1].sha256
    assert [p.name for p in soup.folder.parent.iterdir()] == ["greedy-4"]


def test_greedy_maximises_where_more_is_better(sweep: SweepPaths) -> None:
    add(sweep, 0, np.array([1.0, 0.0]), 0.1)
    add(sweep, 1, np.array([3.0, 0.0]), 0.2)
    add(sweep, 2, np.array([0.0, 0.0]), 0.3)
    soup = greedy(sweep, picked(sweep), distance, "max")
    assert soup.members == ("t0000", "t0001")
    assert (soup.scores["single"], soup.scores["greedy"]) == (1.0, 2.0)


def test_a_nan_score_is_never_an_improvement(sweep: SweepPaths) -> None:
    add(sweep, 0, np.array([1.0, 0.0]), 0.1)
    add(sweep, 1, np.array([0.0, 0.0]), 0.2)

    def only_singles(folder: Path) -> float:
        return 1.0 if folder.name.startswith("step_") else math.nan

    assert greedy(sweep, picked(sweep), only_singles, "min").members == ("t0000",)
    with pytest.raises(UserError, match="t0000: its held-out score is nan"):
        greedy(sweep, picked(sweep), lambda _: math.nan, "min")
    assert [p.name for p in sweep.soup("x").parent.iterdir()] == ["greedy-2"]


def test_uniform_takes_all_and_may_be_redone(sweep: SweepPaths) -> None:
    add(sweep, 0, np.array([2.0, 0.0]), 0.1)
    add(sweep, 1, np.array([0.0, 2.0]), 0.2)
    assert uniform(sweep, picked(sweep)).scores == {}
    soup = uniform(sweep, picked(sweep), distance)
    assert soup.members == ("t0000", "t0001")
    assert soup.scores == pytest.approx({"single": 2.0, "uniform": 2**0.5})
    verify(soup.folder)
    assert [p.name for p in soup.folder.parent.iterdir()] == ["uniform-2"]


def test_models_without_a_common_start_are_refused(sweep: SweepPaths) -> None:
    point = np.array([1.0, 1.0])
    add(sweep, 0, point, 0.1)
    add(sweep, 1, point, 0.2, init="other")
    add(sweep, 2, point, 0.3, init=None)
    add(sweep, 3, np.array([1.0, 1.0, 1.0]), 0.4, init="other")
    add(sweep, 4, point, 0.5)
    with pytest.raises(UserError) as caught:
        check_lineage(picked(sweep))
    unknown, start, shape = caught.value.problems
    assert unknown.startswith("trial t0002: ")
    assert start.startswith(
        "trials t0000 and t0001 cannot be averaged: they started from different"
    )
    assert shape == (
        "trials t0000 and t0003 cannot be averaged: tensor 'w' is [2] in one and [3] in the other"
    )
    with pytest.raises(UserError):
        uniform(sweep, picked(sweep))
    assert not sweep.soup("uniform-5").exists()


def test_a_folder_without_a_recipe_is_no_soup(sweep: SweepPaths) -> None:
    with pytest.raises(UserError, match=r"no soup \(soup\.json is missing or damaged\)"):
        read_recipe(sweep.soup("none"))
