"""Points to try first, and outcome constraints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState as OptunaState

from results.analysis.leaderboard import read_leaderboard
from results.analysis.selection import select_winner
from results.records.trial import TrialState
from search_spaces.errors import UserError
from search_spaces.formulas.constraints import violations
from tests.tuning.simulate import make_spec, open_run, outcome, run_sweep, run_trials

SPACE = {
    "x": {"uniform": [-1.0, 1.0]},
    "opt": {"k": {"choice": [1, 2]}},
    "optimizer": {"choice": {"adam": {}, "sgd": {"momentum": {"quniform": [0, 0.9, 0.1]}}}},
}
POINTS = [{"x": 0, "opt": {"k": 2}, "optimizer": "adam"}, {"momentum": 0.3}, {"opt.k": 1}]


def test_points_get_dotted_names_and_options() -> None:
    spec = make_spec(space=SPACE, points=POINTS)
    assert spec.points == [
        {"x": 0.0, "opt.k": 2, "optimizer": "adam"},
        {"optimizer": "sgd", "momentum": 0.3},
        {"opt.k": 1},
    ]
    assert make_spec(**spec.model_dump(exclude_unset=True)).points == spec.points


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("killed_after", [0, 1, 2, 4])
def test_points_are_tried_first_and_once_despite_kills(
    tmp_path: Path, killed_after: int, lost: bool
) -> None:
    spec = make_spec(space=SPACE, points=POINTS)
    whole = run_sweep(tmp_path / "whole", spec)
    tried = [r.params for r in whole.records.values()]
    assert all(tried[i].items() >= point.items() for i, point in enumerate(spec.points))
    killed = run_trials(tmp_path / "killed", spec, count=killed_after)
    if lost:
        killed.paths.study.unlink()
    resumed = run_sweep(tmp_path / "killed", spec)
    assert outcome(resumed) == outcome(whole)


def test_grid_skips_tried_points(tmp_path: Path) -> None:
    space = {"x": {"uniform": [-1.0, 1.0]}, "opt": {"k": {"grid_search": [1, 2, 3]}}}
    run = run_sweep(tmp_path, make_spec(space=space, points=[{"x": 0.5, "opt.k": 3}]))
    assert [r.params["opt.k"] for r in run.records.values()] == [3, 1, 2, 1, 2, 3]


def test_violations_of_outcome_constraints() -> None:
    texts = ["a <= 3", "a * 2 > b", "a == 1 or b < 0", "missing < 3", "a / 0 < 1", "a < b"]
    told = violations(texts, {"a": 5.0, "b": 10.0})
    assert list(told.values()) == [2.0, 1.0, 1.0, 1.0, 1.0, -5.0]
    assert violations(["a <= 3"], {"a": float("nan")}) == {"a <= 3": 1.0}
    assert violations(["a <= 3"], {"a": 3.0}) == {"a <= 3": 0.0}
    slash = 'metric("a/b-c") <= 3'
    assert violations([slash], {"a/b-c": 5.0}) == {slash: 2.0}


def infeasible_below(limit: float) -> dict[str, Any]:
    return {"outcome_constraints": [f"loss >= {limit}"], "scheduler": {"name": "none", "max_t": 9}}


def test_infeasible_trial_cannot_win_and_searcher_sees_violation(tmp_path: Path) -> None:
    plain = run_sweep(tmp_path / "plain", make_spec(scheduler={"name": "none", "max_t": 9}))
    values = sorted(line.value for line in read_leaderboard(plain.paths, "loss", "min"))
    limit = (values[0] + values[1]) / 2
    run = run_sweep(tmp_path / "s", make_spec(**infeasible_below(limit)))
    board = read_leaderboard(run.paths, "loss", "min")
    best = min(board, key=lambda line: line.value).record
    assert best.violated_constraints == (f"loss >= {limit}",)
    assert f"; breaks loss >= {limit}" in best.reason
    assert select_winner(run.paths, run.spec).line.record.id == board[0].record.id != best.id
    assert [bool(line.record.violated_constraints) for line in board] == sorted(
        bool(line.record.violated_constraints) for line in board
    )
    told = run.study.trials
    assert [t.constraints for t in told] == [r.violations for r in run.records.values()]
    run.paths.study.unlink()
    again = open_run(tmp_path / "s", make_spec(**infeasible_below(limit)))
    rebuilt = again.study.trials
    assert [t.constraints for t in rebuilt] == [t.constraints for t in told]
    assert {t.state for t in rebuilt} == {OptunaState.COMPLETE}


def test_gaussian_process_keeps_away_from_infeasible_trials(tmp_path: Path) -> None:
    """The least loss is at x = 0.3."""
    limits = {"outcome_constraints": ["size >= 0.5"], "scheduler": {"name": "none", "max_t": 9}}
    search = {"name": "mfgp", "startup_trials": 6, "random_share": 0.0}
    run = run_sweep(tmp_path, make_spec(**limits, search=search, budget={"trials": 24}))
    late = [r for r in run.records.values() if r.number >= 12]
    assert sum(bool(r.violated_constraints) for r in late) <= len(late) / 3


def test_no_winner_if_all_trials_are_infeasible(tmp_path: Path) -> None:
    run = run_sweep(tmp_path, make_spec(outcome_constraints=["los < 3"], budget={"trials": 2}))
    assert all(r.state is not TrialState.FAILED for r in run.records.values())
    assert "never reported los (did you mean 'loss'?)" in run.records["t0000"].reason
    with pytest.raises(UserError, match="satisfies the outcome constraints"):
        select_winner(run.paths, run.spec)
