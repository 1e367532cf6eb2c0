"""Configurations under several seeds: scheduler, study and leaderboard see the mean."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState as OptunaState

from results.analysis.leaderboard import read_leaderboard
from results.analysis.replicates import base_trial_id
from results.analysis.selection import select_winner
from results.records.trial import TrialRecord, TrialState
from results.report.sweep_data import read_sweep_data
from results.report.sweep_page import write_report
from search_spaces.loading.sweep_file import dump_sweep, load_sweep
from tests.search_spaces.examples import MINIMAL
from tests.tuning.simulate import STEPS, make_spec, open_run, outcome, run_sweep, run_trials, train
from tuning.controller.sweep import SweepController
from tuning.search.schedulers import Decision

NONE = {"name": "none", "max_t": STEPS}
Value = Any


def spec_of(**changes: Any) -> Any:
    return make_spec(**{"replicates": 3, "budget": {"trials": 12}, "scheduler": NONE, **changes})


def noisy(run: SweepController, job: Any) -> Value:
    """Loss by configuration, with noise by seed."""
    return lambda config, step: (config["x"] - 0.3) ** 2 + job.seed % 97 / 97 + 1 / step


def run_all(run: SweepController, at_once: int = 3) -> None:
    """Run trials at once, one step of each in turn."""
    live: dict[str, Any] = {}
    while not run.finished:
        while len(live) < at_once and (job := run.next_trial()) is not None:
            live[job.trial_id] = job
        for trial, job in list(live.items()):
            step = (run.table.last_step(trial) or 0) + 1
            if train(run, job, upto=step, value=noisy(run, job)) is not Decision.CONTINUE:
                del live[trial]


def groups_of(run: SweepController) -> dict[int, list[TrialRecord]]:
    """The replicates of each configuration, by its number."""
    groups: dict[int, list[TrialRecord]] = {}
    for record in sorted(run.records.values(), key=lambda r: (r.number, r.replicate)):
        groups.setdefault(record.number, []).append(record)
    return groups


def test_study_gets_the_mean_of_all_replicates(tmp_path: Path) -> None:
    run = open_run(tmp_path, spec_of())
    run_all(run)
    groups = groups_of(run)
    assert [len(g) for g in groups.values()] == [3, 3, 3, 3]
    assert [r.id for r in groups[1]] == ["t0001", "t0001-2", "t0001-3"]
    for number, group in groups.items():
        assert len({r.seed for r in group}) == 3
        assert len({str(r.config) for r in group}) == 1
        curves = [dict(run.table.curve(r.id)) for r in group]
        mean = statistics.fmean(curve[STEPS] for curve in curves)
        assert run.study.trials[number].value == pytest.approx(mean)
        assert run.study.trials[number].intermediate_values[2] == pytest.approx(
            statistics.fmean(curve[2] for curve in curves)
        )
    assert len(run.study.trials) == 4


def test_winner_has_the_best_mean(tmp_path: Path) -> None:
    run = open_run(tmp_path, spec_of())
    run_all(run)
    board = read_leaderboard(run.paths, "loss", "min")
    means = {
        group[0].id: statistics.fmean(run.table.curve(r.id)[-1][1] for r in group)
        for group in groups_of(run).values()
    }
    order = list(dict.fromkeys(base_trial_id(line.record.id) for line in board))
    assert order == sorted(means, key=means.__getitem__)
    assert [base_trial_id(line.record.id) for line in board] == [i for i in order for _ in range(3)]
    assert board[0].mean == pytest.approx(means[order[0]])
    assert (board[0].half_width or 0) > 0
    choice = select_winner(run.paths, run.spec)
    assert base_trial_id(choice.line.record.id) == order[0]
    assert choice.line.value == min(line.value for line in board[:3] if line.value is not None)
    assert f"± {board[0].half_width:.3g}" in choice.why
    assert "mean over 3 seeds" in choice.why
    run.paths.spec.write_text(dump_sweep(run.spec))
    write_report(run.paths, read_sweep_data(run.paths), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"{board[0].mean:.5g} ± {board[0].half_width:.2g} of 3" in page


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("killed_after", [1, 2, 3, 5])
def test_killed_and_resumed_equals_uninterrupted(
    tmp_path: Path, killed_after: int, lost: bool
) -> None:
    whole = run_sweep(tmp_path / "whole", spec_of(budget={"trials": 6}))
    killed = run_trials(tmp_path / "killed", spec_of(budget={"trials": 6}), count=killed_after)
    if lost:
        killed.paths.study.unlink()
    resumed = run_sweep(tmp_path / "killed", spec_of(budget={"trials": 6}))
    assert outcome(resumed) == outcome(whole)
    assert [t.values for t in resumed.study.trials] == [t.values for t in whole.study.trials]


def test_scheduler_stops_all_replicates_by_their_mean(tmp_path: Path) -> None:
    asha = {"name": "asha", "grace_period": 2, "max_t": STEPS}
    run = open_run(tmp_path, spec_of(scheduler=asha, budget={"trials": 30}))
    run_all(run)
    groups = groups_of(run)
    stopped = [g for g in groups.values() if any(r.state is TrialState.STOPPED for r in g)]
    assert stopped
    for group in stopped:
        assert all(r.state is TrialState.STOPPED for r in group)
        assert run.study.trials[group[0].number].state is OptunaState.PRUNED
    again = open_run(tmp_path, spec_of(scheduler=asha, budget={"trials": 30}))
    assert outcome(again) == outcome(run)


def test_failed_replicate_fails_the_configuration(tmp_path: Path) -> None:
    run = open_run(tmp_path, spec_of(failure={"max_retries": 0}, budget={"trials": 3}))
    jobs = [run.next_trial() for _ in range(2)]
    train(run, jobs[0])
    assert run.study.trials[0].state is OptunaState.RUNNING
    run.on_failed(jobs[1].trial_id, "rank 0: RuntimeError: boom")
    assert run.study.trials[0].state is OptunaState.FAIL
    assert (run.next_trial().trial_id, len(run.study.trials)) == ("t0001", 2)


def test_started_configuration_gets_all_replicates(tmp_path: Path) -> None:
    run = run_sweep(tmp_path, spec_of(budget={"trials": 4}))
    assert [len(g) for g in groups_of(run).values()] == [3, 3]


@pytest.mark.parametrize("searcher", ["grid", "random"])
def test_every_point_of_a_grid_gets_its_replicates(tmp_path: Path, searcher: str) -> None:
    space = {"x": {"grid_search": [0.0, 0.5, 1.0]}, "opt": {"k": {"grid_search": [1]}}}
    run = run_sweep(tmp_path, spec_of(space=space, budget={}, search={"name": searcher}))
    assert [len(g) for g in groups_of(run).values()] == [3, 3, 3]


def test_pausing_scheduler_refuses_replicates(tmp_path: Path) -> None:
    from search_spaces.errors import UserError

    path = tmp_path / "small.yaml"
    path.write_text(MINIMAL.replace("{max_t: 9}", "{name: asha_promote, max_t: 9}"))
    load_sweep(path)
    with pytest.raises(UserError, match="asha_promote takes no replicates"):
        load_sweep(path, ["replicates=2"])
