"""What every searcher must do: stay in the space, repeat itself by seed, and go on after a kill."""

import pytest

from search_spaces.schema import SearchSpec
from tests.tuning.simulate import finish, make_spec, open_run, outcome, train
from tuning.search.searchers import SEARCHERS

SPACE = {
    "x": {"uniform": [-1.0, 1.0]},
    "lr": {"qloguniform": [0.01, 1.0, 0.01]},
    "opt": {"k": {"choice": [1, 2]}, "width": {"qlograndint": [8, 64, 8]}},
}


@pytest.mark.parametrize("name", sorted(SEARCHERS))
class TestConformance:
    def spec(self, name, **changes):
        search = {"name": name, "startup_trials": 3}
        return make_spec(search=search, space=SPACE, budget={"trials": 12}, **changes)

    def test_proposals_are_in_the_space(self, tmp_path, name):
        spec = self.spec(name)
        run = open_run(tmp_path, spec)
        finish(run)
        for record in run.records.values():
            assert all(spec.domains()[k].contains(v) for k, v in record.params.items())
        assert len({str(r.params) for r in run.records.values()}) == 12

    def test_the_seed_decides(self, tmp_path, name):
        runs = [
            open_run(tmp_path / str(i), self.spec(name, seed=seed))
            for i, seed in enumerate((1, 1, 2))
        ]
        for run in runs:
            finish(run)
        assert outcome(runs[0]) == outcome(runs[1]) != outcome(runs[2])

    def test_proposals_go_on_after_a_kill(self, tmp_path, name):
        whole = open_run(tmp_path / "whole", self.spec(name))
        finish(whole)
        killed = open_run(tmp_path / "killed", self.spec(name))
        for _ in range(7):
            train(killed, killed.next_trial())
        resumed = open_run(tmp_path / "killed", self.spec(name))
        finish(resumed)
        assert outcome(resumed) == outcome(whole)

    def test_parallel_proposals_differ(self, tmp_path, name):
        run = open_run(tmp_path, self.spec(name))
        jobs = [run.next_trial() for _ in range(6)]
        assert len({str(j.config) for j in jobs}) == 6

    def test_failures_are_survived(self, tmp_path, name):
        run = open_run(tmp_path, self.spec(name, failure={"max_retries": 0}))
        for _ in range(5):
            run.on_failed(run.next_trial().trial_id, "boom")
        finish(run)
        assert len(run.records) == 12


def test_the_schema_names_every_searcher():
    assert {SearchSpec(name=name).name for name in SEARCHERS} == set(SEARCHERS)
