"""Sweeps whose models are points in space, and soups of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from results.averaging import make_method
from results.averaging.soup.builder import Recipe, make_soup
from results.averaging.soup.candidates import Candidate, best_trials
from results.averaging.soup.scoring import Evaluator, Soup
from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, TrialState, write_trial
from tests.reports import append_report
from tests.results.written import write_checkpoint
from tests.tuning.simulate import make_spec

SPEC = make_spec()
CENTRE = np.zeros(8)
EXAMPLES = np.random.default_rng(0).normal(size=(60, 8)) * 0.1


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
    """Write a trial with a checkpoint that holds these weights."""
    record = TrialRecord(
        id=f"t{number:04d}", number=number, params={}, config={}, seed=0, state=state, created=1.0
    )
    paths = sweep.trial(record.id)
    write_trial(paths, record)
    append_report(paths, Report(step=step, metrics={"loss": loss}, attempt=1, time=1.0))
    if weights is None:
        return
    content = {f"{name}.json": json.dumps(value) for name, value in files.items()}
    for name in ("config.json", "progress.json", "progress.safetensors", "rng_0.json"):
        content[name] = f'"{name} of {record.id}"'
    if init is not None:
        content["lineage.json"] = json.dumps({"init": init})
    write_checkpoint(paths, step, {"model.safetensors": save({"w": weights}), **content})


def at(*places: float) -> NDArray[np.float64]:
    """A point; the other coordinates are zero."""
    return np.array([*places, *[0.0] * (8 - len(places))])


def losses(folder: Path) -> list[float]:
    """Distance to each example around the centre."""
    weights = load_file(folder / "model.safetensors")["w"]
    return list(np.linalg.norm(EXAMPLES + CENTRE - weights, axis=1))


def evaluator(mode: str = "min", **changes: Any) -> Evaluator:
    return Evaluator("loss", mode, **{"selection": losses, "test": losses, **changes})


def best(sweep: SweepPaths, top: int = 9) -> list[Candidate]:
    return best_trials(sweep, SPEC, top)


def build(
    sweep: SweepPaths,
    method: str,
    candidates: list[Candidate] | None = None,
    scorer: Evaluator | None = None,
    **recipe: Any,
) -> Soup:
    """Make a soup named after its method; by default of the best trials."""
    models, scorer = candidates or best(sweep), scorer or evaluator()
    return make_soup(sweep, method, models, scorer, Recipe(make_method(method), **recipe))
