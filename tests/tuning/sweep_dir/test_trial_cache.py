"""Trials that another sweep has completed are reused."""

import json
import os

import pytest

from results.checkpoints.commit import newest_intact
from results.records.trial import TrialState, read_reports, read_trial, read_trials
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.command import ReportFromSpec
from tests.results.written import write_checkpoint
from tests.tuning.simulate import make_spec, outcome
from tests.tuning.sources import session, sweep, warm_start
from trainables.registry import resolve
from trainables.runtime.fingerprint import identity
from trainables.runtime.source import source_digests
from tuning.controller.events import SweepEvents
from tuning.controller.trial_jobs import trial_identity
from tuning.search.trial_cache import TrialCache
from tuning.search.warm_start import collect_findings

GRID = {"space": {"x": {"grid_search": [0.0, 0.5, 1.0]}, "opt": {"k": {"choice": [1]}}}}
PLAIN = {**GRID, "scheduler": {"name": "none", "max_t": 9}, "budget": {"trials": 3}}


@pytest.fixture
def first(tmp_path):
    """A sweep of completed trials, each with a checkpoint."""
    paths = sweep(tmp_path, "first", **PLAIN)
    for trial in map(paths.trial, paths.trial_ids()):
        write_checkpoint(trial, 9, {"model.safetensors": trial.root.name})
    return paths


def reusing(storage, name="mine", **changes):
    """A sweep that may reuse the trials of `first`."""
    settings = {**PLAIN, **warm_start("first", reuse=True), **changes}
    return sweep(storage, name, run=False, **settings)


class Killed(SweepEvents):
    """Ends the driver when a trial starts, which is before a reused trial is copied."""

    def trial_started(self, record):
        raise KeyboardInterrupt


class EventRecorder(SweepEvents):
    """Records which trials started, and how they ended."""

    def __init__(self):
        self.events = []

    def trial_started(self, record):
        self.events.append(("started", record.id))

    def trial_ended(self, record):
        self.events.append((record.state, record.id))


def test_trial_cache_copies_an_identical_trial(tmp_path, first):
    paths = reusing(tmp_path)
    run = session(paths)
    run.observers.add(observer := EventRecorder())
    assert run.next_trial() is None
    assert run.finished
    assert observer.events[:2] == [("started", "t0000"), (TrialState.COMPLETED, "t0000")]
    for ours, theirs in zip(read_trials(paths), read_trials(first), strict=True):
        assert ours.reason == f"reused from first/{theirs.id}"
        same = theirs.config, theirs.seed, theirs.end_step
        assert (ours.config, ours.seed, ours.end_step, ours.attempts) == (*same, ())
        curves = [
            [(p.step, p.metrics) for p in read_reports(s.trial(ours.id))] for s in (paths, first)
        ]
        assert curves[0] == curves[1] != []
        taken = newest_intact(paths.trial(ours.id)).folder / "model.safetensors"
        assert taken.read_bytes() == ours.id.encode()
        assert os.stat(taken).st_nlink == 2
    assert outcome(session(paths)) == outcome(run)


def test_trial_cache_reuses_identical_trials_only(tmp_path, first):
    for name, changes in {
        "seed": {"seed": 4},
        "workers": {"resources": {"workers": 2}},
        "length": {"scheduler": {"name": "none", "max_t": 12}},
        "fixed": {"fixed": {"width": 3}},
        "unasked": warm_start("first"),
    }.items():
        assert session(reusing(tmp_path, name, **changes)).next_trial() is not None, name
    space = {**GRID["space"], "x": {"grid_search": [0.0, 0.5, 2.0]}}
    job = session(reusing(tmp_path, "partly", space=space)).next_trial()
    assert (job.trial_id, job.config["x"]) == ("t0002", 2.0)


def test_trial_cache_copies_again_if_the_driver_was_killed(tmp_path, first):
    paths = reusing(tmp_path)
    run = session(paths)
    run.observers.add(Killed())
    with pytest.raises(KeyboardInterrupt):
        run.next_trial()
    half = paths.trial("t0000").checkpoint(9)
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"ha")
    again = session(paths)
    assert again.next_trial() is None
    reasons = [r.reason for r in again.records.values()]
    assert reasons == [f"reused from first/t000{i}" for i in range(3)]
    assert newest_intact(paths.trial("t0000")) is not None


def test_trial_runs_if_its_source_is_gone(tmp_path, first):
    paths = reusing(tmp_path)
    session(paths)
    first.root.rename(tmp_path / "moved")
    assert session(paths).next_trial().trial_id == "t0000"


def test_identity_depends_on_code_data_configuration_and_seed(tmp_path):
    script = tmp_path / "loop.py"
    script.write_text("def train(config): report(config)\n")
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.txt").write_text("a")
    loop, config = resolve(f"{script}:train").source(), {"path": str(data), "lr": 0.1}
    base = identity(loop, config, 1, 2)
    assert identity(loop, dict(reversed(config.items())), 1, 2) == base
    assert len({base, identity(loop, config, 2, 2), identity(loop, config, 1, 3)}) == 3
    assert identity(loop, {**config, "lr": 0.2}, 1, 2) != base
    (data / "b.txt").write_text("b")
    assert identity(loop, config, 1, 2) != base
    (data / "b.txt").unlink()
    assert identity(loop, config, 1, 2) == base
    script.write_text("def train(config): pass\n")
    source_digests.cache_clear()
    assert identity(resolve(f"{script}:train").source(), config, 1, 2) != base


def test_identity_of_a_folder_with_a_link_to_nothing(tmp_path):
    before = identity({}, {"data": str(tmp_path)}, 1)
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")
    assert identity({}, {"data": str(tmp_path)}, 1) == before


def test_identity_depends_on_how_reports_are_read():
    spec = make_spec(trainable=None, command=["true"])
    told = spec.model_copy(update={"report_from": ReportFromSpec(jsonl="metrics.jsonl")})
    assert len({trial_identity(one, {"x": 1.0}, 3) for one in (spec, told)}) == 2


INHERITED = {"step": 3, "donor": "t0001", "donor_step": 3, "before": {}, "after": {}}


@pytest.mark.parametrize("change", [{"identity": ""}, {"lineage": [INHERITED]}])
def test_trial_cache_ignores_records_that_no_configuration_gives(first, change):
    for trial_id in first.trial_ids():
        file = first.trial(trial_id).record
        file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    found = collect_findings(first, load_sweep(first.spec).spec)
    assert TrialCache(found).find(read_trial(first.trial("t0000"))) is None
