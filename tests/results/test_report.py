"""What the report says of a sweep, and that names in it are text and nothing else."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs

from benchmarks.cli_speed import make_sweep
from results.paths import SweepPaths
from results.records.trial import Attempt, Report, TrialRecord, TrialState, append_report
from results.report import figures
from results.report.axes import ABSENT, axes, parameter_axis
from results.report.page import write_report
from results.report.sweep_data import (
    SweepData,
    common_step,
    failures,
    read,
    value_at,
)
from search_spaces.domains.domain import Domain
from search_spaces.loading.sweep_file import dump_sweep
from tests.tuning.simulate import make_spec, open_run, train
from tuning.search.importance import importances
from tuning.search.schedulers import Decision

EVIL = "</script><img src=x onerror=alert(1)>"
SPACE = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "x": {"uniform": [-1.0, 1.0]},
    "opt": {"choice": ["adam", EVIL]},
}


def written(root: Path, trials: int = 40, **changes: Any) -> SweepPaths:
    """A sweep whose loss depends on lr much and on x a little; its third trial fails."""
    more = {"space": SPACE, "budget": {"trials": trials}, "failure": {"max_retries": 0}, **changes}
    spec = make_spec(search={"name": "random"}, **more)
    run = open_run(root, spec)
    run.paths.spec.write_text(dump_sweep(spec))
    while not run.finished:
        job = run.next_trial()
        assert job is not None
        if job.trial_id == "t0002":
            run.on_failed(job.trial_id, f"rank 1: ValueError: {EVIL}")
        elif train(
            run, job, value=lambda c, s: abs(math.log10(c["lr"]) + 2) + 0.1 * c["x"] + 1 / s
        ) is (Decision.CONTINUE):
            run.on_ended(job.trial_id)
    return run.paths


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> SweepData:
    return read(written(tmp_path_factory.mktemp("reported"), description=f"of {EVIL}"))


def test_values_are_compared_at_a_step_that_half_of_the_trials_reached() -> None:
    curves = [[(1, 0.5), (2, 0.4), (9, 0.1)], [(1, 0.6), (3, 0.3)], [(1, 0.9)], []]
    assert common_step(curves) == 3
    assert [value_at(c, 3) for c in curves] == [0.4, 0.3, None, None]
    assert common_step(curves, least=3) == common_step(curves, least=8) == 1
    assert common_step([]) == common_step([[]]) == 0


def test_failures_by_class() -> None:
    def record(number: int, *errors: str | None, reason: str = "") -> TrialRecord:
        tried = tuple(Attempt(number=i, started=0.0, error=e) for i, e in enumerate(errors))
        state = TrialState.FAILED if reason else TrialState.COMPLETED
        given = {"params": {}, "config": {}, "seed": 0, "created": 0.0, "reason": reason}
        return TrialRecord(id=f"t{number}", number=number, attempts=tried, state=state, **given)

    found = failures(
        [
            record(0, "rank 1: ValueError: no", None),
            record(1, "rank 0: ValueError: other", "rank 0: ValueError: other"),
            record(2, "the workers left before the trial ended"),
            record(3, None, reason="loss is nan"),
            record(4, "rank 12: torch.OutOfMemoryError: 3 GB"),
        ]
    )
    assert [(f.name, f.attempts, f.trials) for f in found] == [
        ("ValueError", 3, ("t0", "t1")),
        ("the workers left before the trial ended", 1, ("t2",)),
        ("loss is nan", 1, ("t3",)),
        ("torch.OutOfMemoryError", 1, ("t4",)),
    ]
    assert found[0].example == "rank 1: ValueError: no"


def test_axes() -> None:
    log = parameter_axis("lr", [1e-3, 0.1], Domain.model_validate({"loguniform": [1e-4, 1]}))
    assert log.values == pytest.approx([-3, -1])
    assert log.ticks[-2] == "0.01"
    mixed = parameter_axis("k", [10, 9, None, ABSENT, [1, 2]], None)
    assert list(mixed.ticks.values()) == ["9", "10", "(none)", "[1, 2]", "null"]
    assert mixed.values == [1, 0, 4, 2, 3]
    # what never varies has no axis
    assert list(axes([{"a": 1, "b": 1.0}, {"a": 1, "b": 2.0}], {})) == ["b"]


def test_the_importances_are_of_what_matters(data: SweepData) -> None:
    found = importances(data)
    assert [i.method for i in found] == ["fANOVA", "PED-ANOVA"]
    for one in found:
        assert next(iter(one.shares)) == "lr"
        assert sum(one.shares.values()) == pytest.approx(1)
    assert found == importances(data)


def test_history_has_every_trial_with_a_value(data: SweepData) -> None:
    drawn = figures.history(data)
    points = sum(len(t.x) for t in drawn.data if t.mode == "markers")
    assert points == len(data.ranked) == 39
    best = next(t for t in drawn.data if t.name == "best so far")
    assert best.y[-1] == pytest.approx(data.ranked[0].value)
    assert list(best.y) == sorted(best.y, reverse=True)


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    curve = [(i, float(i)) for i in range(12_345)]
    thin = figures.thinned(curve)
    assert len(thin) == figures.MAX_POINTS
    assert (thin[0], thin[-1]) == (curve[0], curve[-1])


def test_parallel_coordinates_and_contour(data: SweepData) -> None:
    lines = figures.parallel_coordinates(data)
    assert lines is not None
    [trace] = lines.data
    assert [d.label for d in trace.dimensions] == ["lr", "x", "opt", "loss"]
    assert len(trace.dimensions[0].values) == len(data.ranked)
    surface = figures.contour(data)
    assert surface is not None
    assert [type(t) for t in surface.data] == [go.Contour, go.Scatter]


def test_several_objectives_have_a_front(tmp_path: Path) -> None:
    run = open_run(
        tmp_path / "s", spec := make_spec(metric=["loss", "seconds"], budget={"trials": 4})
    )
    run.paths.spec.write_text(dump_sweep(spec))
    for values in ((0.1, 9.0), (0.2, 1.0), (0.3, 2.0)):
        job = run.next_trial()
        assert job is not None
        metrics = dict(zip(("loss", "seconds"), values, strict=True))
        append_report(job.paths, Report(step=9, metrics=metrics, attempt=1, time=1.0))
    data = read(run.paths)
    figure = figures.pareto_front(data)
    assert figure is not None
    assert {t.name: list(t.text) for t in figure.data} == {
        "others": ["t0002"],
        "on the front": ["t0000", "t0001"],
    }
    assert data.choice is not None
    assert data.choice.why == "the knee of a Pareto front of 2 trials (min loss, min seconds)"
    write_report(data, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "Pareto front</h2>" in page
    for name in ("loss", "seconds"):
        assert f"Learning curves: {name}</h2>" in page
        assert f"Optimisation history: {name}</h2>" in page
        assert f"<th>{name}</th>" in page
    assert "Winner: t0000, loss 0.1, seconds 9 at step 9" in page
    assert "digits: min loss, min seconds, by" in page


def test_the_page_is_whole_and_safe(data: SweepData, tmp_path: Path) -> None:
    write_report(data, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    code = get_plotlyjs()
    assert page.count(code) == 1
    ours = page.replace(code, "")
    assert "src=" not in ours.replace("src=x", "")
    assert "<link" not in ours
    assert "<img" not in ours
    assert ours.count("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;") >= 3
    assert f"Winner: {data.ranked[0].record.id}, loss" in ours
    for title in ("history", "curves", "Parallel", "matter", "cost", "Failures", "trials"):
        assert f"{title}</h2>" in ours or f"{title} " in ours


@pytest.mark.parametrize("trials", [0, 1, 2])
def test_a_sweep_that_has_just_begun(tmp_path: Path, trials: int) -> None:
    spec = make_spec(scheduler={"name": "none", "max_t": 9})
    run = open_run(tmp_path / "s", spec)
    run.paths.spec.write_text(dump_sweep(spec))
    for _ in range(trials):
        job = run.next_trial()
        assert job is not None
        train(run, job, upto=1)
    data = read(run.paths)
    assert importances(data) == []
    write_report(data, tmp_path / "r.html")
    assert (
        f"{trials} trials: {f'{trials} running' if trials else 'none yet'}"
        in (tmp_path / "r.html").read_text()
    )


def test_a_large_sweep_makes_no_large_page(tmp_path: Path) -> None:
    data = read(make_sweep(tmp_path, trials=1000, reports=20))
    write_report(data, tmp_path / "r.html")
    assert (tmp_path / "r.html").stat().st_size - len(get_plotlyjs()) < 600_000


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_draws_every_plot(data: SweepData, tmp_path: Path) -> None:
    write_report(replace(data, importances=importances(data)), tmp_path / "r.html")
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=10000", "--dump-dom", (tmp_path / "r.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    dom = done.stdout.partition("<body>")[2]
    assert dom.count("plotly-graph-div") == 6
    assert len(re.findall(r'class="[^"]*svg-container', dom)) == 6
    assert "WebGL is not supported" not in dom
    assert "<img" not in dom
