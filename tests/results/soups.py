"""Sweeps whose models are points, and averages of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from results.averaging import make_method
from results.averaging import soup as soups
from results.averaging.soup import Candidate, Evaluator, Recipe, Soup, make_soup
from results.checkpoints.commit import commit, create_staging, staging_folder
from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, TrialState, append_report, write_trial

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
    folder = staging_folder(paths, step, 1)
    create_staging(folder)
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


def judge(mode: str = "min", **changes: Any) -> Evaluator:
    return Evaluator("loss", mode, **{"selection": losses, "test": losses, **changes})


def picked(sweep: SweepPaths, top: int = 9) -> list[Candidate]:
    return soups.best(sweep, "loss", "min", top)


def cook(sweep: SweepPaths, method: str, **more: Any) -> Soup:
    by = more.pop("judge", judge())
    candidates = more.pop("picked", None) or picked(sweep)
    return make_soup(sweep, method, candidates, by, Recipe(make_method(method), **more))
