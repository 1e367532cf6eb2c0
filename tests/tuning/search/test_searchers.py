"""Conformance tests of all searchers, and tests of single ones."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path

import pytest
from optuna.distributions import FloatDistribution

from results.records.trial import Report, TrialState
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.positions import Source
from search_spaces.spec.search import SEARCHERS, SearchSpec
from tests.tuning.simulate import (
    finish,
    loss,
    make_spec,
    open_run,
    outcome,
    run_sweep,
    run_trials,
    train,
)
from tuning.controller.preflight.checks import preflight
from tuning.search.auto import choose_searcher
from tuning.search.evidence import Evidence, TrialEvidence
from tuning.search.schedulers import Decision
from tuning.search.searchers import make_sampler

SPACE = {
    "x": {"uniform": [-1.0, 1.0]},
    "lr": {"qloguniform": [0.01, 1.0, 0.01]},
    "opt": {"k": {"choice": [1, 2]}, "width": {"qlograndint": [8, 64, 8]}},
}
FINITE = {
    "x": {"quniform": [-1.0, 1.0, 1.0]},
    "opt": {"k": {"choice": [1, 2]}, "width": {"qlograndint": [8, 24, 8]}},
}
EVERY_DOMAIN = {
    "x": {"uniform": [-1.0, 1.0]},
    "a": {"quniform": [0.0, 1.0, 0.25]},
    "b": {"loguniform": [1e-5, 1e-1]},
    "c": {"qloguniform": [0.1, 10.0, 0.1]},
    "d": {"randint": [3, 9]},
    "e": {"qrandint": [8, 128, 8]},
    "f": {"lograndint": [1, 1000]},
    "g": {"qlograndint": [8, 128, 8]},
    "h": {"choice": ["a", 1, 2.5, None, False, [64, 64], {"n": 2}]},
    "i": {"grid_search": [1, 2, 3]},
    "j": {"ordinal": ["s", "m", "l"]},
    "l": {"randn": [1.0, 0.5]},
    "m": {"qrandn": [0.0, 1.0, 4.0]},
    "opt": {"k": {"choice": [1, 2]}},
}
SCHEDULER = {"name": "asha_promote", "grace_period": 1, "max_t": 9}


@pytest.mark.parametrize("name", sorted([*SEARCHERS, "auto"]))
class TestConformance:
    def spec(self, name, **changes):
        search = {"name": name, "startup_trials": 3}
        space = FINITE if name == "grid" else SPACE
        settings = {"space": space, "budget": {"trials": 8}, "scheduler": SCHEDULER, **changes}
        return make_spec(search=search, **settings)

    def test_proposals_are_in_every_kind_of_domain(self, tmp_path, name):
        space = dict(EVERY_DOMAIN)
        if name == "grid":  # what can be listed
            space = {k: v for k, v in EVERY_DOMAIN.items() if k in ("h", "i", "j", "m", "opt")}
            space |= {"x": {"quniform": [-1.0, 1.0, 1.0]}, "e": {"qrandint": [8, 16, 8]}}
            space |= {"d": {"randint": [3, 5]}}
        spec = self.spec(name, space=space, budget={"trials": 5})
        run = run_sweep(tmp_path, spec)
        for record in run.records.values():
            assert all(spec.domains()[k].contains(v) for k, v in record.params.items())

    def test_proposals_differ_and_depend_on_the_seed_alone_despite_kills(self, tmp_path, name):
        whole = run_sweep(tmp_path / "whole", self.spec(name))
        proposed = {str(r.params) for r in whole.records.values()}
        assert len(proposed) == 8
        other = run_sweep(tmp_path / "other", self.spec(name, seed=2))
        assert ({str(r.params) for r in other.records.values()} == proposed) == (name == "grid")
        for asked in (False, True):
            killed = run_trials(tmp_path / str(asked), self.spec(name), count=5)
            recorded = set(killed.records)
            if asked and (job := killed.next_trial()).trial_id not in recorded:
                shutil.rmtree(job.paths.root)  # killed after the proposal, before its record
            resumed = run_sweep(tmp_path / str(asked), self.spec(name))
            assert outcome(resumed) == outcome(whole)

    def test_parallel_proposals_differ(self, tmp_path, name):
        run = open_run(tmp_path, self.spec(name))
        jobs = [run.next_trial() for _ in range(6)]
        assert len({str(j.config) for j in jobs}) == 6

    def test_search_survives_failures_and_missing_values(self, tmp_path, name):
        run = open_run(tmp_path, self.spec(name, failure={"max_retries": 0, "stop_after_same": 0}))
        for _ in range(3):
            run.on_failed(run.next_trial().trial_id, "boom")
        for _ in range(2):
            assert train(run, run.next_trial(), value=lambda c, s: math.nan) is Decision.STOP
        run.on_ended(run.next_trial().trial_id)
        finish(run)
        states = [r.state for r in sorted(run.records.values(), key=lambda r: r.number)]
        assert states[:6] == [TrialState.FAILED] * 6
        assert len(states) == 8
        assert TrialState.COMPLETED in states


class TestGrid:
    def test_grid_tries_every_point_once_despite_a_kill(self, tmp_path):
        spec = make_spec(search={"name": "grid"}, space=FINITE, budget={})
        run = run_trials(tmp_path, spec, count=7)
        run = run_sweep(tmp_path, spec)
        points = [str(r.params) for r in run.records.values()]
        assert len(points) == len(set(points)) == spec.budget.trials == 3 * 2 * 3

    def test_grid_over_a_part_of_the_space(self, tmp_path):
        space = {**SPACE, "opt": {"k": {"grid_search": [1, 2, 3]}}}
        run = run_sweep(tmp_path, make_spec(space=space, search={"name": "sobol"}))
        records = sorted(run.records.values(), key=lambda r: r.number)
        assert [r.params["opt.k"] for r in records] == [1, 2, 3, 1, 2, 3]
        assert len({r.params["x"] for r in records}) == 6

    def test_grid_refuses_continuous_domains(self):
        with pytest.raises(ValueError, match=r"x is uniform; write \{grid_search"):
            make_spec(search={"name": "grid"})
        with pytest.raises(ValueError, match=r"x is randn; write \{grid_search"):
            make_spec(search={"name": "grid"}, space={"x": {"randn": []}})
        make_spec(search={"name": "grid"}, space={"x": {"qrandn": [0, 1, 0.5]}})


class TestMultiFidelity:
    @pytest.mark.parametrize(("name", "near"), [("mfgp", 1.0), ("tpe", 2.5), ("cmaes", 2.5)])
    def test_searcher_learns_from_paused_trials(self, tmp_path, name, near):
        """Of 27 trials, 18 get no further than the first rung; the model still finds x = 0.3."""
        changes = {"space": {"x": {"uniform": [-9.0, 9.0]}, "opt": {"k": {"choice": [1, 2]}}}}
        spec = make_spec(
            search={"name": name, "startup_trials": 6, "random_share": 0.0},
            scheduler=SCHEDULER,
            budget={"trials": 27},
            **changes,
        )
        run = open_run(tmp_path, spec)
        while not run.finished:
            train(run, run.next_trial(), value=loss)
        late = [abs(r.params["x"] - 0.3) for r in run.records.values() if r.number >= 20]
        assert sorted(late)[len(late) // 2] < near


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"space": SPACE}, "mfgp"),
        ({"space": {"a": {"choice": [1, 2]}, "b": {"choice": [1, 2]}}}, "tpe"),
        ({"space": {"a": {"choice": {"p": {"x": {"uniform": [0, 1]}}, "q": {}}}}}, "tpe"),
        ({"space": {"a": {"grid_search": [1, 2]}}}, "random"),
        ({"budget": {"trials": 5000}}, "tpe"),
        ({"metric": ["a", "b"]}, "tpe"),
        ({"metric": ["a", "b"], "budget": {"trials": 500}}, "nsga2"),
        ({"metric": ["a", "b", "c", "d"]}, "nsga3"),
        ({"scheduler": {"name": "pbt", "max_t": 9}}, "sobol"),
    ],
)
def test_auto_searcher_chooses_by_space_budget_and_objectives(changes, name):
    choice = choose_searcher(make_spec(search={"name": "auto"}, **changes))
    assert choice.name == name
    assert str(choice).startswith(f"{name} (auto: ")


@pytest.mark.parametrize("diverged", [1e160, 1.7e308])
@pytest.mark.parametrize("scheduler", [SCHEDULER, {"name": "none", "max_t": 3}])
def test_mfgp_avoids_a_region_whose_values_are_huge(tmp_path, diverged, scheduler):
    spec = make_spec(
        space={"x": {"uniform": [-1.0, 1.0]}},
        search={"name": "mfgp", "startup_trials": 8, "random_share": 0.0},
        scheduler=scheduler,
        budget={"trials": 20},
    )
    run = open_run(tmp_path, spec)
    while not run.finished:
        train(run, run.next_trial(), value=lambda c, s: diverged if c["x"] > 0 else c["x"] ** 2)
    late = [r.params["x"] for r in run.records.values() if r.number >= 10]
    assert sum(x > 0.02 for x in late) <= 2


@pytest.mark.parametrize("name", ["mfgp", "cmaes"])
def test_searcher_of_one_metric_refuses_several(name):
    space = {"dropout": {"uniform": [0, 0.5]}}
    spec = make_spec(metric=["a", "b"], search={"name": name}, space=space)
    loaded = LoadedSweep(spec, Source("two.yaml"), Path("two.yaml"), ())
    with pytest.raises(UserError, match=f"search.name: {name} takes one metric; nsga2"):
        preflight(loaded)


class TestCostAware:
    def seconds(self, *, cost_aware, trials):
        """Seconds per step of a proposal, on average, where what costs more is better."""
        space = {"width": FloatDistribution(1.0, 100.0, log=True), "lr": FloatDistribution(0, 1)}
        rng, seen = random.Random(0), []
        for _ in range(trials):
            params = {"width": 100 ** rng.random(), "lr": rng.random()}
            score = math.log(params["width"]) / 20 - (params["lr"] - 0.5) ** 2 + rng.gauss(0, 0.1)
            seen.append(TrialEvidence(params, {1: score}, step_seconds=params["width"] ** 2))
        evidence = Evidence(space=space, trials=seen, number=trials)
        spec = SearchSpec(name="mfgp", cost_aware=cost_aware, random_share=0.0)
        sampled = [
            make_sampler(spec, seed, evidence).sample_relative(None, None, space)
            for seed in range(5)
        ]
        return sum(params["width"] ** 2 for params in sampled) / len(sampled)

    def test_proposals_are_cheap_while_there_are_few_trials(self):
        few = self.seconds(cost_aware=True, trials=15)
        assert few < self.seconds(cost_aware=False, trials=15) / 2
        assert few < self.seconds(cost_aware=True, trials=80) / 2

    def test_a_resumed_sweep_knows_the_same_seconds(self, tmp_path):
        spec = make_spec(search={"name": "mfgp", "cost_aware": True}, scheduler=SCHEDULER)
        run = run_trials(tmp_path, spec, count=4)
        known = run.scheduler.curves.step_seconds
        assert len(known) >= 2
        assert min(known.values()) > 0
        run.lifecycle.release()
        assert open_run(tmp_path, spec).scheduler.curves.step_seconds == known

    def test_seconds_until_a_report_are_without_pauses_and_waits(self, tmp_path):
        run = run_trials(tmp_path, make_spec(), count=1)
        (record,) = run.records.values()
        (attempt,) = record.attempts
        record = record.model_copy(
            update={
                "attempts": (
                    attempt.model_copy(update={"started": 10.0, "ended": 15.0, "waited": 2.0}),
                    attempt.model_copy(update={"number": 2, "started": 90.0, "ended": 99.0}),
                )
            }
        )
        times = [(1, 14.0), (2, 94.0)]
        found = [Report(step=1, metrics={}, attempt=a, time=t) for a, t in times]
        assert [record.seconds_until(r) for r in found] == [2.0, 7.0]

    @pytest.mark.parametrize("name", ["tpe", "auto"])
    def test_other_searchers_refuse_it(self, name):
        space = {"a": {"choice": [1, 2]}, "b": {"choice": [1, 2]}}
        spec = make_spec(search={"name": name, "cost_aware": True}, space=space)
        with pytest.raises(UserError, match=r"search.cost_aware: tpe .*mfgp"):
            preflight(LoadedSweep(spec, Source("two.yaml"), Path("two.yaml"), ()))


SPACES = {
    "whole numbers": {"k": {"randint": [0, 16]}},
    "categories": {"a": {"choice": [1, 2, 3, 4]}, "b": {"choice": [1, 2, 3, 4]}},
    "quantised logarithms": {"k": {"qlograndint": [8, 128, 8]}},
    "quantised": {"x": {"quniform": [0.0, 1.5, 0.1]}},
    "conditional": {
        "o": {"choice": {"one": {"p": {"randint": [0, 8]}}, "two": {"q": {"randint": [0, 8]}}}}
    },
}


@pytest.mark.parametrize("name", SPACES)
def test_mfgp_proposes_each_of_sixteen_values_once(tmp_path, name):
    trials = propose(tmp_path, SPACES[name], 17)
    assert len(set(trials[:16])) == 16
    assert trials[16] in trials[:16]


def test_random_proposals_of_mfgp_differ(tmp_path):
    assert len(set(propose(tmp_path, SPACES["conditional"], 16, random_share=1.0))) == 16


def test_quantised_normal_proposals_of_mfgp_differ(tmp_path):
    """Of 25 values; random samples hardly find those of the tails."""
    assert len(set(propose(tmp_path, {"x": {"qrandn": [0.0, 1.0, 0.5]}}, 12))) == 12


def propose(tmp_path, space, count, random_share=0.0):
    spec = make_spec(
        space=space,
        search={"name": "mfgp", "startup_trials": 6, "random_share": random_share},
        scheduler={"name": "none", "max_t": 1},
        budget={"trials": count},
    )
    run = open_run(tmp_path, spec)
    for _ in range(count):
        train(run, run.next_trial(), upto=1, value=lambda c, s: float(len(str(c).split("1"))))
    return [str(r.params) for r in sorted(run.records.values(), key=lambda r: r.number)]
