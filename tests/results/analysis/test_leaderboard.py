"""The leaderboard, read from a sweep folder."""

import math

from results.analysis.dataframes import reports_frame
from results.analysis.leaderboard import read_leaderboard
from results.analysis.selection import select_winner
from results.paths import SweepPaths
from results.records.trial import Report, TrialState
from tests.reports import append_report
from tests.results.written import add_trial
from tests.tuning.simulate import make_spec


def order(sweep: SweepPaths, mode: str = "min") -> list[tuple[str, float | None]]:
    return [(line.record.id, line.value) for line in read_leaderboard(sweep, "loss", mode)]


def test_leaderboard_ranks_by_the_last_value(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.9, 2: 0.5})
    add_trial(sweep, 1, {1: 0.1, 2: 0.7, 3: 0.6})  # its best weights are gone
    add_trial(sweep, 2, {})
    add_trial(sweep, 3, {1: 0.5})
    add_trial(sweep, 4, {1: 0.2, 2: math.nan})
    add_trial(sweep, 5, {1: 0.01}, TrialState.FAILED)
    newest = Report(step=4, metrics={}, attempt=1, time=1.0)  # without the metric
    append_report(sweep.trial("t0001"), newest)
    ids = ["t0000", "t0003", "t0001", "t0005", "t0002", "t0004"]
    assert order(sweep) == list(zip(ids, [0.5, 0.5, 0.6, 0.01, None, None], strict=True))
    assert [t for t, _ in order(sweep, "max")] == [ids[2], ids[0], ids[1], *ids[3:]]
    lines = {line.record.id: line for line in read_leaderboard(sweep, "loss", "min")}
    assert (lines["t0001"].best_value, lines["t0001"].best_step) == (0.1, 1)
    assert (lines["t0001"].step, lines["t0001"].reports) == (4, 4)
    assert (lines["t0004"].best_value, lines["t0004"].step) == (0.2, 2)


def test_leaderboard_ignores_reports_after_end_step(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.5, 2: 0.4, 3: 0.1}, TrialState.STOPPED, end_step=2)
    [line] = read_leaderboard(sweep, "loss", "min")
    assert (line.value, line.best_value, line.step, line.reports) == (0.4, 0.4, 2, 2)
    assert list(reports_frame(sweep)["step"]) == [1, 2]


def test_mean_of_seeds_at_different_steps_says_so(sweep: SweepPaths) -> None:
    add_trial(sweep, 0, {1: 0.1}, TrialState.STOPPED)
    add_trial(sweep, 0, {1: 0.2, 9: 0.8}, replicate=1)
    first, _ = read_leaderboard(sweep, "loss", "max")
    assert (first.mean, first.spread) == (0.45, " ± 4.4 of 2 at steps 1 to 9")
    why = select_winner(sweep, make_spec(mode="max")).why
    assert "mean over 2 seeds at steps 1 to 9, 0.45 ± 4.45," in why
