"""The home page: a row per sweep of a storage, with links to the reports that exist."""

from pathlib import Path

from results.paths import Storage
from results.report.home_page import write_home
from results.report.sweep_data import read_sweep_data
from results.report.sweep_page import write_report
from results.sweep_folder.folder import SweepState, write_state
from tests.results.report.conftest import written
from tests.results.report.messages import messages


def test_home_lists_every_sweep(tmp_path: Path) -> None:
    paths = written(tmp_path / "first", trials=6)
    write_state(paths, SweepState("key", (1.0,), (2.0,)))
    write_report(paths, read_sweep_data(paths), paths.report)
    written(tmp_path / "other", trials=4)
    (tmp_path / "other" / "trials" / "t0001" / "trial.json").write_text("{")
    write_home(Storage(tmp_path), tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    rows = {row[0]["text"]: row for row in messages(page)["Sweeps"]["rows"]}
    assert rows["first"][0]["href"] == "first/results/report.html"
    assert rows["first"][1:3] == ["done", "6/6"]
    assert rows["first"][4] == "min loss"
    assert len(rows["first"][5]["spark"]) > 1
    assert "href" not in rows["other"][0]
    assert rows["other"][1].startswith("damaged: ")
    assert "http" not in page
    write_report(paths, read_sweep_data(paths), paths.report)
    assert '<a href="../../index.html">all sweeps</a>' in paths.report.read_text()
