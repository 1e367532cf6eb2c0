"""Pages and tables name one winner, count no time between sessions, and upload nothing."""

import re
from pathlib import Path

import pytest

from results.analysis.comparison import compare
from results.analysis.confirmation import Confirmation, write
from results.analysis.selection import winner_by_rule
from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.trial import Attempt, TrialRecord
from results.report.plots.workers import bars
from results.report.sweep_data import read_sweep_data
from results.report.sweep_page import winner as winner_lines
from results.report.sweep_page import write_report
from results.sweep_folder.folder import SweepState, write_state
from search_spaces.loading.sweep_file import dump_sweep
from tests.results.written import remeasured
from tests.tuning.simulate import finish, make_spec, open_run
from tuning.cli.look.show import show
from tuning.cli.summary import leaders

ROOT = Path(__file__).parents[2]


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    """A finished sweep of four trials."""
    run = open_run(tmp_path / "s", make_spec(budget={"trials": 4}))
    run.paths.spec.write_text(dump_sweep(run.spec))
    write_state(run.paths, SweepState("key", (1.0,), (2.0,)))
    finish(run)
    return run.paths


def test_confirmed_winner_is_the_winner_everywhere(
    sweep: SweepPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    data = read_sweep_data(sweep)
    first = winner_by_rule(sweep, data.spec, data.spec.select).line.record.id
    other = next(e.record.id for e in data.ranked if e.record.id != first)
    measured = (remeasured(first, loss=(0.1, 0.5)), remeasured(other, loss=(0.2, 0.25)))
    write(sweep, Confirmation(modes={"loss": "min"}, seeds=(1,), trials=measured))

    (summary,) = compare([sweep])
    assert summary.winner is not None
    assert summary.winner.record.id == other
    assert leaders(check_records(sweep, keep=True).readable, data.spec) == [other]
    show(str(sweep.root))
    assert f"winner {other}: confirmed" in capsys.readouterr().out
    lines = winner_lines(read_sweep_data(sweep))
    assert lines[0].startswith(f"Winner: {other}, ")
    assert f"Second is {first} with 0.5: a difference of 0.25." in lines


@pytest.mark.parametrize(("sessions", "idle"), [((0.0,), 980.0), ((0.0, 990.0), 0.0)])
def test_workers_do_not_wait_between_two_sessions(sessions: tuple[float, ...], idle: float) -> None:
    attempts = [Attempt(number=i, started=s, ended=s + 20) for i, s in ((1, 0.0), (2, 1000.0))]
    record = TrialRecord(
        id="t0000", number=0, params={}, config={}, seed=0, created=0.0, attempts=tuple(attempts)
    )
    assert sum(b.end - b.start for b in bars([record], sessions) if b.kind == "idle") == idle


def test_plots_have_no_button_that_uploads_them(sweep: SweepPaths, tmp_path: Path) -> None:
    write_report(sweep, read_sweep_data(sweep), tmp_path / "r.html")
    assert 'showSendToCloud: false, plotlyServerURL: ""' in (tmp_path / "r.html").read_text()
    folders = [ROOT / name for name in ("results", "tuning", "trainables", "search_spaces")]
    files = [
        f for folder in folders for end in ("js", "html", "py") for f in folder.rglob(f"*.{end}")
    ]
    draws = re.compile(r"Plotly\.(newPlot|react|plot)\(|\.(to|write)_html\(")
    assert [f.name for f in files if draws.search(f.read_text())] == ["page.js"]
