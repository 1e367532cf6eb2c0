"""NaN as a value of a space equals itself: libraries take it for "missing"."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from results.records.trial import read_trials
from search_spaces.domains.domain import Domain
from search_spaces.nested import same
from tests.tuning.simulate import make_spec, open_run, outcome, run_sweep, run_trials
from tuning.search.compatibility import compatible_params
from tuning.search.optuna_domains import decode, encode

NAN = float("nan")


def again(value: object) -> object:
    """The value after it was written and read."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("value", [NAN, [NAN, 1], {"missing": NAN}])
def test_category_with_nan_is_found_again(value: object) -> None:
    domain = Domain.model_validate({"choice": [0.5, value, "NaN", None, True]})
    assert domain.contains(again(value))
    assert domain.index(again(value)) == 1
    assert same(decode(domain, encode(domain, again(value))), value)
    assert not domain.contains([NAN, 2])


def test_nan_is_listed_once() -> None:
    with pytest.raises(ValueError, match="values that differ, got nan, nan"):
        Domain.model_validate({"choice": [NAN, 0.5, float("nan")]})


@pytest.mark.parametrize("kind", ["choice", "grid_search", "ordinal"])
def test_sweep_over_nan_is_resumed(kind: str, tmp_path: Path) -> None:
    space, fixed = {"missing": {kind: [NAN, 0.5, None, False]}}, {"x": 0.5, "opt": {"k": 1}}
    spec = make_spec(space=space, fixed=fixed, budget={"trials": 4})
    run_trials(tmp_path / "killed", spec, count=2)
    run = run_sweep(tmp_path / "killed", spec)
    values = [r.params["missing"] for r in run.records.values()]
    assert sorted(map(repr, values)) == ["0.5", "False", "None", "nan"]
    records = read_trials(run.paths)
    assert all(compatible_params(spec, record) is not None for record in records)
    assert repr(outcome(run)) == repr(outcome(run_sweep(tmp_path / "s", spec)))
    assert [p for _, p in open_run(tmp_path / "killed", spec).study.proposals()] == []
    assert math.isnan(next(v for v in values if isinstance(v, float) and v != 0.5))
