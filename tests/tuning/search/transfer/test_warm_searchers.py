"""Warm starts with every searcher, with one objective and with several."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import Report, read_trials
from search_spaces.spec.search import SEARCHERS
from tests.reports import append_report
from tests.tuning.sources import sampler_findings, session, sweep, warm_start
from trainables.job import TrialJob
from tuning.controller.sweep import SweepController
from tuning.controller.sweep_dir.amend import amend_sweep
from tuning.search.schedulers import Decision
from tuning.search.warm_start import collect_findings, describe_source

SPACE = {"x": {"uniform": [-1.0, 1.0]}, "y": {"uniform": [-1.0, 1.0]}}
NONE = {"name": "none", "max_t": 2}
LEARN = ("cmaes", "gp", "mfgp", "nsga2", "nsga3", "tpe")
LEARN_NOTHING = ("grid", "random", "sobol")
EACH = [pytest.param(n, marks=pytest.mark.slow) if n == "gp" else n for n in LEARN]
OF_SEVERAL = ("gp", "nsga2", "nsga3", "tpe")
TRADE_OFF = {"metric": ["loss", "size"], "mode": ["min", "min"]}
MANY = 20


def loss(config: dict[str, Any]) -> float:
    return (config["x"] - 0.6) ** 2 + (config["y"] + 0.5) ** 2


def size(config: dict[str, Any]) -> float:
    """Least beside the least loss, so that the front is a short line."""
    return (config["x"] - 0.6) ** 2 + (config["y"] + 0.3) ** 2


def train(
    run: SweepController, job: TrialJob, **metrics: Callable[[dict[str, Any]], float]
) -> None:
    """Two reports of what functions of the configuration say."""
    for step in (1, 2):
        values = {name: value(job.config) + 1 / step for name, value in metrics.items()}
        report = Report(step=step, metrics=values, attempt=job.attempt, time=time.time())
        append_report(job.paths, report)
        if run.on_report(job.trial_id, report) is not Decision.CONTINUE:
            return


def explored(storage: Path, **changes: Any) -> SweepPaths:
    """The sweep `first` of random trials, which reported loss and size."""
    return run_out(begun(storage, "first", "random", **changes), killed=False).paths


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return explored(tmp_path_factory.mktemp("explored")).root


@pytest.fixture
def first(made: Path, tmp_path: Path) -> SweepPaths:
    """A copy of the sweep `first` in the storage of the test."""
    return SweepPaths(shutil.copytree(made, tmp_path / "first"))


def run_out(run: SweepController, *, killed: bool) -> SweepController:
    """Run trial after trial, perhaps with a new driver for each."""
    while (job := run.next_trial()) is not None:
        train(run, job, loss=loss, size=size)
        run = session(run.paths) if killed else run
    return run


def begun(
    storage: Path, name: str, searcher: str, *sources: str, **changes: Any
) -> SweepController:
    """The first session of a sweep, warm from others."""
    settings = {"space": SPACE, "scheduler": NONE, "budget": {"trials": MANY}, **changes}
    how = {"name": searcher, "startup_trials": 5, "population": MANY, "random_share": 0.0}
    return session(sweep(storage, name, run=False, **settings, **warm_start(*sources, **how)))


def proposed(run: SweepController, count: int = 3) -> list[dict[str, Any]]:
    """The first configurations, of trials of which none has reported."""
    jobs = [run.next_trial() for _ in range(count)]
    return [job.config for job in jobs if job]


def distance(run: SweepController) -> float:
    """How far the first proposals are from the optimum."""
    return sum(loss(config) for config in proposed(run))


@pytest.mark.parametrize("fixed", [{}, {"width": 3}], ids=["same task", "another task"])
@pytest.mark.parametrize("name", EACH)
class TestConformance:
    def test_warm_start_proposes_nearer_to_the_optimum(
        self, tmp_path: Path, first: SweepPaths, name: str, fixed: dict[str, Any]
    ) -> None:
        warm_one = begun(tmp_path, "hot", name, "first", fixed=fixed)
        assert distance(warm_one) < distance(begun(tmp_path, "cold", name, fixed=fixed))

    def test_warm_start_with_several_objectives_proposes_nearer(
        self, tmp_path: Path, first: SweepPaths, name: str, fixed: dict[str, Any]
    ) -> None:
        if name not in OF_SEVERAL:  # refused
            return
        changes = {**TRADE_OFF, "fixed": fixed}
        warm_one = begun(tmp_path, "hot", name, "first", **changes)
        assert distance(warm_one) < distance(begun(tmp_path, "cold", name, **changes))

    def test_warm_started_proposals_are_the_same_after_kills(
        self, tmp_path: Path, first: SweepPaths, name: str, fixed: dict[str, Any]
    ) -> None:
        several: dict[str, Any] = TRADE_OFF if name in OF_SEVERAL else {}
        changes = {**several, "fixed": fixed, "budget": {"trials": 4}}
        whole = run_out(begun(tmp_path, "whole", name, "first", **changes), killed=False)
        killed = run_out(begun(tmp_path, "killed", name, "first", **changes), killed=True)
        told = [[(t.params, t.values) for t in r.study.trials] for r in (whole, killed)]
        assert told[0] == told[1]


@pytest.mark.parametrize("name", EACH)
def test_searcher_learns_from_compatible_trials_of_a_changed_space(
    tmp_path: Path, name: str
) -> None:
    """Also from trials of another searcher: `auto` may choose another for a larger budget."""
    several: dict[str, Any] = TRADE_OFF if name in OF_SEVERAL else {}
    loop = tmp_path / "loop.py"
    loop.write_text("def train(config): report(config)\n")
    paths = explored(tmp_path, trainable=f"{loop}:train", **several)
    narrower = "space.x={uniform: [-0.8, 1.0]}"
    changed = amend_sweep(paths, "+5", None, [narrower, f"search.name={name}"])
    assert changed is not None
    assert changed.excluded == tuple(r.id for r in read_trials(paths) if r.params["x"] < -0.8)
    assert 0 < len(changed.excluded) < MANY / 2
    space = {**SPACE, "x": {"uniform": [-0.8, 1.0]}}
    cold = begun(tmp_path, "cold", name, space=space, **several)
    assert distance(session(paths)) < distance(cold)


@pytest.mark.parametrize("name", ["random", "sobol"])
def test_searcher_without_model_ignores_warm_start(
    tmp_path: Path, first: SweepPaths, name: str
) -> None:
    hot, cold = begun(tmp_path, "hot", name, "first"), begun(tmp_path, "cold", name)
    assert proposed(hot) == proposed(cold)


def test_every_searcher_learns_or_not() -> None:
    assert {*LEARN, *LEARN_NOTHING} == SEARCHERS.keys()


class TestSeveral:
    def test_findings_of_the_same_task_keep_their_values(
        self, tmp_path: Path, first: SweepPaths
    ) -> None:
        """Also values of a metric that the other sweep reported, but did not optimise."""
        run = begun(tmp_path, "mine", "tpe", "first", **TRADE_OFF)
        assert (
            describe_source(first, run.spec)
            == f"warm start {MANY} of {MANY} trials of first (values count)"
        )
        values = {t.params["x"]: t.values for t in sampler_findings(run)}
        for record in read_trials(first):
            expected = [loss(record.config) + 0.5, size(record.config) + 0.5]
            assert values[record.params["x"]] == pytest.approx(expected)

    def test_findings_of_another_task_count_by_rank_per_objective(self, tmp_path: Path) -> None:
        first = explored(tmp_path, fixed={"width": 3})
        modes = {**TRADE_OFF, "mode": ["min", "max"]}
        run = begun(tmp_path, "mine", "tpe", "first", **modes)
        assert "another task: ranks count" in describe_source(first, run.spec)
        by_x = {r.params["x"]: r.config for r in read_trials(first)}
        trials = sampler_findings(run)
        by_loss = sorted(trials, key=lambda t: t.values[0])
        assert by_loss == sorted(trials, key=lambda t: loss(by_x[t.params["x"]]))
        by_size = sorted(trials, key=lambda t: t.values[1])
        assert by_size == sorted(trials, key=lambda t: size(by_x[t.params["x"]]))
        while (job := run.next_trial()) is not None:
            train(run, job, loss=loss, size=lambda config: 100 + size(config))
        own = zip(*(t.values for t in run.study.trials), strict=True)
        theirs = zip(*(t.values for t in sampler_findings(run)), strict=True)
        for column, ours in zip(theirs, own, strict=True):
            assert min(ours) <= min(column) <= max(column) <= max(ours)

    def test_unknown_objective_counts_as_the_middle_rank(
        self, tmp_path: Path, first: SweepPaths
    ) -> None:
        """The first objective is replaced by the one that the other sweep optimised."""
        goals = {"metric": ["error", "latency"], "mode": ["max", "min"]}
        run = begun(tmp_path, "mine", "tpe", "first", **goals)
        assert "(ranks count: it reports no error, latency)" in describe_source(first, run.spec)
        found = collect_findings(first, run.spec)
        assert [f.ranks for f in found] == [[(i + 0.5) / MANY, 0.5] for i in range(MANY)]
        assert [f.curve[-1][1] for f in found] == sorted(f.curve[-1][1] for f in found)
        assert len({t.values[1] for t in sampler_findings(run)}) == 1

    def test_single_objective_learns_from_several(self, tmp_path: Path) -> None:
        first = explored(tmp_path, **TRADE_OFF)
        run = begun(tmp_path, "mine", "tpe", "first", metric="size", mode="min")
        assert describe_source(first, run.spec).endswith("(values count)")
        values = {t.params["x"]: t.value for t in sampler_findings(run)}
        sizes = {r.params["x"]: size(r.config) + 0.5 for r in read_trials(first)}
        assert values == pytest.approx(sizes)
