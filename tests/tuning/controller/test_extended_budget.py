"""A sweep whose budget is raised decides as one that had this budget from the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.spec.sweep import SweepSpec
from tests.tuning.simulate import finish, make_spec, open_run, outcome, run_sweep

SPACE = {
    "x": {"uniform": [-1.0, 1.0]},
    "y": {"uniform": [-1.0, 1.0]},
    "opt": {"k": {"choice": [1, 2]}},
}


def spec(searcher: str, scheduler: str, trials: int) -> SweepSpec:
    return make_spec(
        space=SPACE,
        search={"name": searcher, "startup_trials": 3, "population": 4},
        scheduler={"name": scheduler, "grace_period": 1, "max_t": 9},
        budget={"trials": trials},
    )


@pytest.mark.parametrize(
    ("searcher", "scheduler"),
    [
        ("sobol", "asha"),
        ("cmaes", "hyperband"),
        ("nsga2", "asha"),
        ("tpe", "hyperband"),
        ("mfgp", "median"),
        ("cmaes", "none"),
    ],
)
def test_extended_sweep_equals_a_longer_one(tmp_path: Path, searcher: str, scheduler: str) -> None:
    whole = run_sweep(tmp_path / "whole", spec(searcher, scheduler, 11))
    run_sweep(tmp_path / "grown", spec(searcher, scheduler, 6))
    grown = open_run(tmp_path / "grown", spec(searcher, scheduler, 11))
    assert len(grown.records) == 6
    finish(grown)
    assert outcome(grown) == outcome(whole)


@pytest.mark.parametrize("scheduler", ["pbt", "pb2"])
def test_extended_population_keeps_its_finished_members(tmp_path: Path, scheduler: str) -> None:
    short = run_sweep(tmp_path, spec("sobol", scheduler, 4))
    grown = run_sweep(tmp_path, spec("sobol", scheduler, 8))
    assert outcome(grown)[:4] == outcome(short)
    assert {record.end_step for record in grown.records.values()} == {9}
