"""Comparison of sweeps by cost."""

from pathlib import Path

import pytest

from results.analysis.comparison import compare, differences, equal_costs, progress
from results.paths import SweepPaths
from results.records.trial import Attempt, Report, TrialRecord, read_reports, read_trial
from results.report.comparison_page import table, write_comparison
from search_spaces.loading.sweep_file import dump_sweep
from tests.tuning.simulate import finish, make_spec, open_run, train


def record(number: int, *attempts: tuple[float, float | None], workers: int = 1) -> TrialRecord:
    tried = tuple(
        Attempt(number=i + 1, started=start, ended=end, workers=workers)
        for i, (start, end) in enumerate(attempts)
    )
    given = {"params": {}, "config": {}, "seed": 0, "created": 0.0}
    return TrialRecord(id=f"t{number:04d}", number=number, attempts=tried, **given)


def report(time: float, loss: float) -> Report:
    return Report(step=1, metrics={"loss": loss}, attempt=1, time=time)


def test_progress_counts_worker_seconds_of_all_trials() -> None:
    spec = make_spec()
    # from 10 to 20 one trial runs, to 30 two of them, to 40 one; a pause; then one
    records = [record(0, (10, 30), (1000, 1010), workers=2), record(1, (20, 40), workers=2)]
    reports = [report(*p) for p in [(15, 0.9), (25, 0.8), (26, 0.85), (35, 0.7), (1010, 0.1)]]
    # seconds of trials: 5, 10 + 2 * 5, 10 + 20 + 5, 10 + 20 + 10 + 10
    assert progress(records, reports, spec) == [(10, 0.9), (40, 0.8), (70, 0.7), (100, 0.1)]
    upwards = make_spec(mode="max")
    assert progress(records, reports, upwards) == [(10, 0.9)]


def test_progress_ignores_what_is_not_finite() -> None:
    values = [report(1, float("nan")), report(1, float("-inf")), report(2, 0.5)]
    assert progress([record(0, (0.5, 2.5))], values, make_spec()) == [(1.5, 0.5)]
    assert progress([record(0, (0.5, 2.5))], [], make_spec()) == []


@pytest.fixture
def pair(tmp_path: Path) -> list[SweepPaths]:
    found = []
    for name, trials in (("short", 3), ("l<o>ng", 9)):
        run = open_run(tmp_path / name, make_spec(budget={"trials": trials}))
        run.paths.spec.write_text(dump_sweep(run.spec))
        finish(run)
        found.append(run.paths)
    return found


def test_compare_reads_each_sweep_and_writes_the_page(
    pair: list[SweepPaths], tmp_path: Path
) -> None:
    short, long = summaries = compare(pair)
    assert (short.trials, long.trials) == (3, 9)
    assert differences(summaries) == {"budget.trials": [3, 9]}
    costs = equal_costs(summaries)
    assert costs[-1] == min(short.cost, long.cost)
    assert short.best_at(-1.0) is None
    assert long.winner is not None
    assert long.best_at(long.cost) == pytest.approx(long.winner.value)
    header, rows = table(summaries)
    assert header[:5] == ["sweep", "trials", "winner", "loss", "worker-seconds"]
    assert header[-1].endswith(" s")
    assert [len(row) for row in rows] == [len(header)] * 2
    write_comparison(summaries, tmp_path / "both.html")
    page = (tmp_path / "both.html").read_text()
    assert "Differences of the sweep files" in page


def test_infeasible_trial_is_no_progress(tmp_path: Path) -> None:
    spec = make_spec(budget={"trials": 3}, outcome_constraints=["size <= -1"])
    run = open_run(tmp_path, spec)
    run.paths.spec.write_text(dump_sweep(run.spec))
    finish(run)
    assert compare([run.paths])[0].progress == []


def test_cost_of_a_killed_sweep_does_not_grow(tmp_path: Path) -> None:
    run = open_run(tmp_path / "killed", make_spec(budget={"trials": 3}))
    run.paths.spec.write_text(dump_sweep(run.spec))
    train(run, run.next_trial(), upto=2)
    first = read_trial(run.paths.trial("t0000"))
    assert first.attempts[-1].ended is None
    newest = max(r.time for r in read_reports(run.paths.trial("t0000")))
    [summary] = compare([run.paths])
    assert summary.cost == pytest.approx(max(0.0, newest - first.attempts[-1].started), abs=1e-6)


def test_compare_accepts_a_sweep_without_trials(pair: list[SweepPaths], tmp_path: Path) -> None:
    empty = SweepPaths(tmp_path / "empty")
    empty.root.mkdir()
    empty.spec.write_text(dump_sweep(make_spec()))
    summaries = compare([pair[0], empty])
    assert (summaries[1].winner, summaries[1].cost, summaries[1].progress) == (None, 0, [])
    assert table(summaries)[1][1] == ["empty", "0", "-", "-", "0", "-", "-", "-", "-"]
    write_comparison(summaries, tmp_path / "both.html")
