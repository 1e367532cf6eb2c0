"""Priors of parameters: tried first, drawn around, and never a bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from search_spaces.domains.domain import Domain
from tests.tuning.simulate import make_spec, outcome, run_sweep, run_trials

SPACE = {
    "lr": {"loguniform": [1e-5, 1.0], "prior": 1e-2},
    "size": {"choice": [8, 16, 32], "prior": 16},
    "x": {"uniform": [-1.0, 1.0]},
    "opt": {"k": {"choice": [1, 2]}},
}


def proposals(tmp_path: Path, trials: int = 60, **settings: object) -> list[dict[str, float]]:
    spec = make_spec(space=SPACE, budget={"trials": trials}, **settings)
    return [r.params for r in run_sweep(tmp_path, spec).records.values()]


@pytest.mark.parametrize("search", ["auto", "tpe", "random", "gp", "cmaes", "sobol"])
def test_prior_is_tried_first(tmp_path: Path, search: str) -> None:
    first = proposals(tmp_path, 3, search={"name": search})[0]
    assert first["lr"] == pytest.approx(1e-2)
    assert first["size"] == 16


def test_proposals_lie_around_the_prior_and_everywhere(tmp_path: Path) -> None:
    found = proposals(tmp_path, search={"name": "random"})
    far = [abs(np.log10(p["lr"]) + 2) for p in found]
    assert np.mean(far[:20]) < 1.0  # at random 1.3
    assert max(far) > 2
    sizes = [p["size"] for p in found]
    assert sizes[:20].count(16) > 7
    assert {8, 16, 32} == set(sizes)


def test_resumed_sweep_proposes_the_same(tmp_path: Path) -> None:
    spec = make_spec(space=SPACE, budget={"trials": 12}, search={"name": "tpe"})
    whole = run_sweep(tmp_path / "whole", spec)
    run_trials(tmp_path / "killed", spec, count=5)
    assert outcome(run_sweep(tmp_path / "killed", spec)) == outcome(whole)


@pytest.mark.parametrize(
    "form",
    [
        {"prior": 3e-4, "loguniform": [1e-5, 0.1]},
        {"randint": [1, 5], "prior": 4},
        {"quniform": [0, 1, 0.25], "prior": 0.5},
        {"randn": [0, 1], "prior": 0.5},
        {"choice": ["a", "b"], "prior": "b"},
        {"ordinal": [1, 10], "prior": 10},
    ],
)
def test_form_survives_a_round_trip(form: dict[str, object]) -> None:
    domain = Domain.model_validate(form)
    assert domain.dump()["prior"] == form["prior"]
    assert Domain.model_validate(domain.dump()) == domain
    spec = make_spec(space={"y": form})
    assert make_spec(space=spec.model_dump()["space"]).space == spec.space


@pytest.mark.parametrize(
    ("form", "word"),
    [
        ({"loguniform": [1e-5, 0.1], "prior": 1.0}, "1.0"),
        ({"randint": [1, 5], "prior": 5}, "5"),
        ({"choice": ["a", "b"], "prior": "c"}, "'c'"),
        ({"grid_search": [1, 2], "prior": 1}, "grid_search"),
        ({"choice": {"a": {}, "b": {"y": {"uniform": [0, 1]}}}, "prior": "a"}, "options"),
    ],
)
def test_bad_prior_is_refused(form: dict[str, object], word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        make_spec(space={"x": form})
