"""The HTML page of a report is complete, escapes all names, and is small."""

import re
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from benchmarks.cli_speed import make_sweep
from results.paths import SweepPaths
from results.records.trial import Report
from results.report.page import unit_for
from results.report.sweep_data import SweepData, read_sweep_data
from results.report.sweep_page import write_report
from results.report.transfer_page import write_coordinates
from search_spaces.loading.sweep_file import dump_sweep
from tests.reports import append_report
from tests.results.report.messages import messages
from tests.tuning.simulate import make_spec, open_run, train
from tuning.search.importance import importances


def test_report_of_several_objectives_shows_the_pareto_front(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", make_spec(metric=["loss", "seconds"], budget={"trials": 4}))
    run.paths.spec.write_text(dump_sweep(run.spec))
    for values in ((0.1, 9.0), (0.2, 1.0), (0.3, 2.0)):
        job = run.next_trial()
        assert job is not None
        metrics = dict(zip(("loss", "seconds"), values, strict=True))
        append_report(job.paths, Report(step=9, metrics=metrics, attempt=1, time=1.0))
    data = read_sweep_data(run.paths)
    assert data.selection is not None
    assert data.selection.why == "the knee of a Pareto front of 2 trials (min loss, min seconds)"
    write_report(run.paths, data, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    found = messages(page)
    assert found["head"]["objectives"] == [["loss", "min"], ["seconds", "min"]]
    assert [row["id"] for row in found["trials"] if row["front"]] == ["t0000", "t0001"]
    assert found["trials"][0]["values"] == {"loss": 0.1, "seconds": 9.0}
    assert "Best so far: t0000, loss 0.1, seconds 9 at step 9" in page
    assert "minimize loss, minimize seconds of digits; searcher" in page


def test_page_is_complete_and_escapes_names(
    paths: SweepPaths, data: SweepData, tmp_path: Path
) -> None:
    write_report(paths, data, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    code = get_plotlyjs()
    assert page.count(code) == 1
    assert "searcher random, scheduler asha" in page
    ours = page.replace(code, "")
    assert "src=" not in ours.replace("src=x", "")
    assert re.findall("<link.*?>", ours) == ['<link rel="icon" href="data:,">']
    assert "<img" not in ours
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in ours
    assert ours.count("\\u003c/script>\\u003cimg src=x onerror=alert(1)>") >= 10
    assert f"Winner: {data.ranked[0].record.id}, loss" in ours
    found = messages(ours)
    assert {"Time and cost", "Failures", "What happened"} < found.keys()
    assert len(found["trials"]) == len(found["details"]) == 40
    assert 'id="state" role="status">done' in ours
    assert "Stop sweep" not in ours


@pytest.mark.parametrize("trials", [0, 1, 2])
def test_report_of_a_sweep_that_has_just_started(tmp_path: Path, trials: int) -> None:
    run = open_run(tmp_path / "s", make_spec(scheduler={"name": "none", "max_t": 9}))
    run.paths.spec.write_text(dump_sweep(run.spec))
    for _ in range(trials):
        job = run.next_trial()
        assert job is not None
        train(run, job, upto=1)
    data = read_sweep_data(run.paths)
    assert importances(data) == []
    write_report(run.paths, data, tmp_path / "r.html")
    states = f"{trials} running" if trials else "none yet"
    assert f"{trials} trials: {states}" in (tmp_path / "r.html").read_text()


def test_page_of_a_large_sweep_is_small(tmp_path: Path) -> None:
    paths = make_sweep(tmp_path, trials=1000, reports=20)
    write_report(paths, read_sweep_data(paths), tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size - len(get_plotlyjs()) < 1_300_000


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (4e5, "111 h")],
)
def test_unit_for_chooses_a_readable_unit(seconds: float, shown: str) -> None:
    unit = unit_for(seconds)
    assert f"{unit.format(seconds)} {unit.symbol}" == shown


def test_coordinate_check_has_a_plot_for_each_axis(tmp_path: Path) -> None:
    line = {"name": "mlp", "sizes": (32, 64), "changes": (0.1, 0.2)}
    found = [{**line, "axis": "hidden_size"}, {**line, "axis": "num_layers"}]
    write_coordinates("llm", found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Activations by hidden_size" in page
    assert "Activations by num_layers" in page
