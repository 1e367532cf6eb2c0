import time

import pytest
from pydantic import ValidationError

from results.records.trial import Report, TrialState, read_reports, read_trials
from search_spaces.errors import UserError
from tests.reports import append_report
from tests.tuning.simulate import finish, make_spec, outcome, train
from tests.tuning.sources import sampler_findings, session, sweep, warm_start
from tuning.search.findings import value_of_rank
from tuning.search.warm_start import (
    describe_source,
    is_same_task,
    load_evidence,
    source_sweeps,
)


def test_sampler_sees_findings_before_own_trials(tmp_path):
    first = sweep(tmp_path, "first", budget={"trials": 8})
    run = session(sweep(tmp_path, run=False, **warm_start("first")))
    known = sampler_findings(run)
    assert [t.number for t in known] == list(range(-8, 0))
    theirs = {r.params["x"]: r for r in read_trials(first)}
    for trial in known:
        record = theirs[trial.params["x"]]
        complete = record.state is TrialState.COMPLETED
        assert trial.state.name == ("COMPLETE" if complete else "PRUNED")
        curve = [r.metrics["loss"] for r in read_reports(first.trial(record.id), record.end_step)]
        assert list(trial.intermediate_values.values()) == curve
    # its own trials are counted by themselves
    job = run.next_trial()
    assert job.trial_id == "t0000"
    assert len(run.study.trials) == 1


def test_evidence_is_fixed_at_the_first_session(tmp_path):
    first = sweep(tmp_path, "first", run=False)
    early = session(first)
    for _ in range(3):
        train(early, early.next_trial())
    whole = sweep(tmp_path, "whole", **warm_start("first"))
    cut = sweep(tmp_path, "cut", run=False, **warm_start("first"))
    run = session(cut)
    train(run, run.next_trial())
    frozen_then = cut.evidence.read_bytes()
    assert frozen_then == whole.evidence.read_bytes()

    finish(session(first))
    assert len(read_trials(first)) == 6
    again = session(cut)
    finish(again)
    assert cut.evidence.read_bytes() == frozen_then
    assert outcome(again) == outcome(session(whole))


def test_findings_from_a_different_space(tmp_path):
    space = {"x": {"uniform": [-1.0, 0.5]}, "opt": {"k": {"choice": [1, 2]}}}
    searched = {**space, "old": {"uniform": [0.0, 1.0]}}
    first = sweep(tmp_path, "first", space=searched, budget={"trials": 20})
    k = {"k": {"choice": [2, 3]}}
    other = {"x": {"uniform": [0.0, 2.0]}, "opt": k, "new": {"uniform": [0.0, 1.0]}}
    run = session(sweep(tmp_path, run=False, space=other, **warm_start("first")))
    theirs = [r.params for r in read_trials(first)]
    inside = sorted(p["x"] for p in theirs if p["x"] >= 0 and p["opt.k"] == 2)
    assert inside
    assert sorted(t.params["x"] for t in sampler_findings(run)) == inside
    assert all(t.params.keys() == {"x", "opt.k"} for t in sampler_findings(run))
    assert describe_source(first, run.spec) == (
        f"warm start {len(inside)} of {len(theirs)} trials of first (values count)"
    )
    blind = make_spec(space=other, **warm_start("first", name="sobol"))
    assert describe_source(first, blind).endswith("(sobol learns nothing from them)")
    finish(run)
    nothing = {"y": {"uniform": [0.0, 1.0]}}
    assert (
        sampler_findings(
            session(sweep(tmp_path, "strange", run=False, space=nothing, **warm_start("first")))
        )
        == []
    )


def test_findings_of_another_task_count_by_rank(tmp_path):
    sweep(tmp_path, "first", budget={"trials": 8}, fixed={"data": "a"})
    paths = sweep(tmp_path, run=False, fixed={"data": "b"}, **warm_start("first", name="tpe"))
    run = session(paths)
    ranked = sorted(load_evidence(paths, run.spec), key=lambda f: f.ranks)
    assert [f.ranks for f in ranked] == [[(i + 0.5) / 8] for i in range(8)]
    complete = [f.complete for f in ranked]
    assert complete == sorted(complete, reverse=True)
    finals = [f.curve[-1][1] for f in ranked if f.complete]
    assert finals == sorted(finals)

    by_x = {t.params["x"]: t for t in sampler_findings(run)}
    values = [by_x[f.params["x"]].value for f in ranked]
    assert {t.state.name for t in by_x.values()} == {"COMPLETE"}
    assert values == sorted(values)
    finish(run)
    own = [t.value for t in run.study.trials if t.state.name == "COMPLETE"]
    assert len(own) > 1
    values = [t.value for t in sampler_findings(run)]
    assert min(own) <= min(values) <= max(values) <= max(own)


def test_value_of_rank():
    assert value_of_rank(0.0, [3.0, 1.0, 2.0], "min") == 1.0
    assert value_of_rank(1.0, [3.0, 1.0, 2.0], "min") == 3.0
    assert value_of_rank(0.0, [3.0, 1.0, 2.0], "max") == 3.0
    assert value_of_rank(0.25, [], "min") < value_of_rank(0.75, [], "min")
    assert value_of_rank(0.25, [7.0], "max") > 7.0 > value_of_rank(0.75, [7.0], "max")


def test_same_task_compares_data_metrics_and_length():
    spec = make_spec(fixed={"data": "a", "deep": {"er": 1}})
    assert is_same_task(spec, make_spec(fixed={"data": "a", "deep": {"er": 1}}, seed=9))
    assert not is_same_task(spec, make_spec(fixed={"data": "b", "deep": {"er": 1}}))
    assert not is_same_task(spec, make_spec(fixed={"data": "a"}))
    longer = make_spec(
        fixed={"data": "a", "deep": {"er": 1}}, scheduler={"name": "asha", "max_t": 99}
    )
    assert not is_same_task(spec, longer)
    # one of them searches it: it is of the search
    searched = make_spec(
        fixed={"deep": {"er": 1}},
        space={"x": {"uniform": [0.0, 1.0]}, "data": {"choice": ["a", "b"]}},
    )
    assert is_same_task(spec, searched)


def test_trials_with_other_values_of_what_is_fixed_count_by_rank(tmp_path):
    first = sweep(tmp_path, "first", budget={"trials": 8})
    space = {"x": {"uniform": [-1.0, 1.0]}}
    mine = sweep(tmp_path, run=False, space=space, fixed={"opt": {"k": 1}}, **warm_start("first"))
    alike = {r.params["x"] for r in read_trials(first) if r.params["opt.k"] == 1}
    found = load_evidence(mine, session(mine).spec)
    assert {f.params["x"] for f in found if f.same} == alike
    assert 0 < len(alike) < 8
    line = describe_source(first, session(mine).spec)
    assert f"(values of {len(alike)} count, of others ranks: they have not" in line


def test_sweep_of_the_opposite_mode_is_refused(tmp_path):
    sweep(tmp_path, "first", mode="max")
    with pytest.raises(UserError, match="first: has max loss, not min"):
        source_sweeps(make_spec(**warm_start("first")), str(tmp_path))


def test_curves_of_findings_are_by_the_clock_of_the_scheduler(tmp_path):
    clock = {"scheduler": {"name": "asha", "max_t": 9, "time_attr": "epoch"}}
    run = session(sweep(tmp_path, "first", run=False, **clock))
    job = run.next_trial()
    for epoch in (1, 2):
        metrics = {"loss": 1.0 / epoch, "epoch": float(epoch)}
        given = {"metrics": metrics, "attempt": job.attempt, "time": time.time()}
        append_report(job.paths, report := Report(step=100 * epoch, **given))
        run.on_report(job.trial_id, report)
    run.on_ended(job.trial_id)
    (known,) = sampler_findings(session(sweep(tmp_path, run=False, **clock, **warm_start("first"))))
    assert known.intermediate_values == {1: 1.0, 2: 0.5}


def test_warm_start_sources_are_found_or_refused(tmp_path):
    paths = sweep(tmp_path, "first", run=False)
    elsewhere = str(tmp_path / "first")
    spec = make_spec(**warm_start("first", elsewhere))
    assert [p.root for p in source_sweeps(spec, str(tmp_path))] == [paths.root] * 2
    with pytest.raises(UserError, match=r"search\.warm_start: no sweep 'frist'.*'first'"):
        source_sweeps(make_spec(**warm_start("frist")), str(tmp_path))
    with pytest.raises(ValidationError, match="reuse needs warm_start"):
        make_spec(search={"reuse": True})


def test_damaged_source_is_named(tmp_path):
    paths = sweep(tmp_path, "first")
    paths.trial("t0001").reports.unlink()
    words = r"search\.warm_start: first: incomplete: t0001/reports\.jsonl has no report"
    with pytest.raises(UserError, match=words):
        source_sweeps(make_spec(**warm_start("first")), str(tmp_path))


def test_relative_source_folder_is_stored_as_absolute(tmp_path, monkeypatch):
    sweep(tmp_path / "there", "first")
    monkeypatch.chdir(tmp_path)
    paths = sweep(tmp_path / "here", run=False, **warm_start("there/first"))
    monkeypatch.chdir("/")
    assert len(sampler_findings(session(paths))) == 6


def test_damaged_evidence_file_is_refused(tmp_path):
    sweep(tmp_path, "first")
    paths = sweep(tmp_path, run=False, **warm_start("first"))
    session(paths)
    paths.evidence.write_text('[{"source": 1}]')
    with pytest.raises(UserError, match=r"evidence.json: not readable .* remove it"):
        session(paths)
