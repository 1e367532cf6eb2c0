"""No configuration of a finite space is proposed again before all others were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from search_spaces.spec.search import SEARCHERS
from tests.tuning.simulate import STEPS, make_spec, outcome, run_sweep, run_trials
from tuning.cli.run.plan import cost_lines
from tuning.search.compatibility import list_configurations

SPACE: dict[str, Any] = {
    "x": {"quniform": [0.0, 1.0, 1.0]},
    "opt": {"k": {"choice": [1, 2]}},
    "kind": {"choice": {"adam": {}, "sgd": {"momentum": {"choice": [0.0, 0.9]}}}},
}
SIZE = 12
"""Its configurations."""
NAMES = sorted({*SEARCHERS, "auto"} - {"grid"})


def finite_spec(name: str, trials: int, **changes: Any) -> Any:
    settings = {"space": SPACE, "scheduler": {"name": "none"}, **changes}
    search = {"name": name, "startup_trials": 2, "constant_liar": name == "tpe"}
    return make_spec(search=search, budget={"trials": trials}, **settings)


@pytest.mark.parametrize("name", NAMES)
def test_every_configuration_comes_before_any_comes_again(name: str, tmp_path: Path) -> None:
    run = run_sweep(tmp_path, finite_spec(name, SIZE + 2))
    records = sorted(run.records.values(), key=lambda r: r.number)
    tried = [repr(sorted(r.params.items())) for r in records]
    assert len(set(tried[:SIZE])) == SIZE
    assert set(tried[SIZE:]) <= set(tried[:SIZE])


@pytest.mark.parametrize("name", ["random", "tpe", "mfgp"])
def test_resumed_search_proposes_the_same(name: str, tmp_path: Path) -> None:
    spec = finite_spec(name, SIZE, scheduler={"name": "asha", "grace_period": 1, "max_t": STEPS})
    run_trials(tmp_path / "killed", spec, count=9)
    assert outcome(run_sweep(tmp_path / "killed", spec)) == outcome(run_sweep(tmp_path / "s", spec))


def test_constraints_grids_and_points_count(tmp_path: Path) -> None:
    space = {"a": {"grid_search": [1, 2, 3]}, "b": {"choice": [1, 2, 3]}}
    points = [{"a": 3, "b": 1}]
    changes = {"constraints": ["a != b"], "points": points, "fixed": {"x": 0, "opt": {"k": 1}}}
    spec = finite_spec("random", 6, space=space, **changes)
    run = run_sweep(tmp_path, spec)
    tried = {(r.params["a"], r.params["b"]) for r in run.records.values()}
    assert tried == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}


def test_continuous_and_large_spaces_are_not_listed() -> None:
    for domain in ({"uniform": [0, 1]}, {"randint": [0, 10**9]}):
        assert list_configurations(make_spec(space={"x": domain})) is None


def test_plan_says_that_configurations_are_repeated(tmp_path: Path) -> None:
    def said(trials: int, **changes: Any) -> bool:
        lines = cost_lines(finite_spec("random", trials, **changes), [], tmp_path)
        return any(f"the space has {SIZE} configurations" in line for line in lines)

    assert said(SIZE + 1)
    assert not said(SIZE)
    assert not said(2 * SIZE, replicates=2)
