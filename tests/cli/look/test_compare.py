"""`tune report` and `tune compare`."""

from __future__ import annotations

from tests.cli.conftest import Tune
from tests.results.report.messages import messages


def test_report_writes_a_page(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 12})
    assert tune("report", "mine").out == f"page {paths.report}\n"
    winner = tune.best("mine")["trial"]
    assert f"Winner: {winner}, loss" in paths.report.read_text()
    assert tune("report", "mine", "--html", "own.html").out == f"page {tune.cwd / 'own.html'}\n"
    assert "head" in messages((tune.cwd / "own.html").read_text())
    (tune.cwd / "file").write_text("")
    output = tune.refused("report", "mine", "--html", "file/r.html")
    assert output.startswith("file/r.html: cannot be written (")


def test_compare_prints_a_row_for_each_sweep(tune: Tune) -> None:
    tune.sweep("mine")
    tune.sweep("other", budget={"trials": 9})
    tune.sweep("upwards", mode="max", done=False)
    output = tune("compare", "mine", "other")
    assert [words[:2] for words in output.lines[1:]] == [["mine", "6"], ["other", "9"]]
    best = tune.best("other")
    assert output.lines[2][2:4] == [best["trial"], f"{best['value']:.5g}"]
    output = tune("compare", "mine", "other", "--html", "both.html")
    assert output.out.endswith(f"page {tune.cwd / 'both.html'}\n")
    assert tune.refused("compare", "mine") == (
        "tune compare needs two sweeps or more, got mine alone\n"
    )
    assert "only sweeps of the same metrics and modes" in tune.refused("compare", "mine", "upwards")
