"""A sweep whose machine and disk are lost resumes on another one from its mirror."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from results.records.trial import TrialRecord, read_reports, read_trials
from results.storage.object_store import open_object_store
from results.sweep_folder.copies import mirror as record_mirror
from results.sweep_folder.copies.checkpoint_mirror import OWNER, OwnershipTakenError, TrialMirror
from results.sweep_folder.copies.mirror import (
    RecordMirror,
    has_driver,
    mirror_records,
    wait_for_mirrors_driver,
)
from results.sweep_folder.copies.restore import fetch_checkpoints, restore_sweep
from results.sweep_folder.lock import acquire_lock
from search_spaces.errors import UserError
from search_spaces.spec.sweep import SweepSpec
from tests.object_store import BUCKET, CANARY, s3_server
from tests.tuning.simulate import (
    STEPS,
    finish,
    make_spec,
    new_sweep,
    next_job,
    open_run,
    outcome,
    run_sweep,
    save,
    train,
)
from tuning.controller.sweep import SweepController


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNE_STORAGE", str(tmp_path / "sweeps"))
    return tmp_path / "sweeps"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.slow), "file"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> SweepSpec:
    if request.param == "s3":
        request.getfixturevalue("server")
    address = f"s3://{BUCKET}/{tmp_path.name}" if request.param == "s3" else tmp_path.as_uri()
    scheduler = {"name": "none", "max_t": STEPS}
    return make_spec(checkpoint={"mirror": f"{address}/far"}, scheduler=scheduler)


def driven(
    paths: SweepPaths, spec: SweepSpec, stack: ExitStack
) -> tuple[SweepController, RecordMirror]:
    """A sweep with its lock and its mirror, driven by the test."""
    fence = stack.enter_context(acquire_lock(paths.lock))
    mirror = stack.enter_context(mirror_records(paths, spec, fence))
    assert isinstance(mirror, RecordMirror)
    run = open_run(paths.root, spec, fence=fence, mirror=mirror.place)
    mirror.watch(run.note_problem)
    return run, mirror


def test_lost_sweep_resumes_from_its_mirror(storage: Path, spec: SweepSpec) -> None:
    whole = run_sweep(storage.parent / "whole", spec)
    with ExitStack() as lost:
        paths = new_sweep(spec, storage)
        paths.code.mkdir()
        (paths.code / "loop.py").write_text("training code of a notebook")
        trial_id = _run_until_third_trial(paths, spec, lost)
        before = [r for r in read_trials(paths) if r.state.finished]
        shutil.rmtree(storage)
        _declare_driver_dead(spec)
        _resume_elsewhere(spec, trial_id, before, outcome(whole))


def _resume_elsewhere(
    spec: SweepSpec, trial_id: str, before: list[TrialRecord], expected: list[tuple[Any, ...]]
) -> None:
    paths = restore_sweep(f"{spec.checkpoint.mirror}/simulated", None)
    assert [r for r in read_trials(paths) if r.state.finished] == before
    assert (paths.code / "loop.py").read_text() == "training code of a notebook"
    unfinished = paths.trial(trial_id)
    assert [r.step for r in read_reports(unfinished)] == [1, 2]  # the checkpoint has them
    assert fetch_checkpoints(paths, read_trials(paths))[trial_id] == 2
    assert (unfinished.checkpoint(2) / "weights.txt").read_text() == f"{trial_id} at 2"
    with ExitStack() as stack:
        again, _ = driven(paths, spec, stack)
        finish(again)
    assert outcome(again) == expected
    assert not has_driver(open_object_store(f"{spec.checkpoint.mirror}/simulated"))


def _run_until_third_trial(paths: SweepPaths, spec: SweepSpec, stack: ExitStack) -> str:
    """Mirror two finished trials and two steps of the third; returns its id."""
    run, mirror = driven(paths, spec, stack)
    for _ in range(2):
        train(run, next_job(run))
    job = next_job(run)
    mirror.send()
    train(run, job, upto=2)
    save(job, 2)
    assert job.mirror is not None
    TrialMirror(job.mirror, job.trial_id, job.attempt).send(job.paths, 2)
    return job.trial_id


def _declare_driver_dead(spec: SweepSpec) -> None:
    """Change the start time of the driver in the mirror: its process, of this test, is alive."""
    objects = open_object_store(f"{spec.checkpoint.mirror}/simulated")
    held = json.loads(objects.read(OWNER) or b"")
    objects.put(OWNER, json.dumps({**held, "born": 0.0}).encode())


def test_mirror_has_one_driver_and_one_sweep_of_a_name(storage: Path, spec: SweepSpec) -> None:
    with ExitStack() as stack:
        paths = new_sweep(spec, storage)
        run, mirror = driven(paths, spec, stack)
        next_job(run)
        mirror.send()
        copy = storage / "copy"
        shutil.copytree(paths.root, copy, ignore=shutil.ignore_patterns("owner.lock*"))
        with acquire_lock(SweepPaths(copy).lock) as fence:
            with pytest.raises(UserError, match=r": driven by process \d+ on .*; end it, or wait"):
                stack.enter_context(mirror_records(SweepPaths(copy), spec, fence))
            _declare_driver_dead(spec)
            with mirror_records(SweepPaths(copy), spec, fence), pytest.raises(OwnershipTakenError):
                mirror.send()
        other = new_sweep(spec, storage)
        assert other.name == "simulated-2"
        fence = stack.enter_context(acquire_lock(other.lock))
        with pytest.raises(UserError, match="holds another sweep of this name; give this one"):
            stack.enter_context(mirror_records(other, spec, fence))


def test_silent_driver_of_a_mirror_is_waited_for(storage: Path) -> None:
    spec = make_spec(checkpoint={"mirror": (storage.parent / "far").as_uri()})
    address, said = f"{spec.checkpoint.mirror}/simulated", list[str]()
    with ExitStack() as stack:
        run, mirror = driven(new_sweep(spec, storage), spec, stack)
        next_job(run)
        mirror.send()
        objects = open_object_store(address)
        owner = json.loads(objects.read(OWNER) or b"")
        objects.put(OWNER, json.dumps({**owner, "host": "elsewhere"}).encode())
        [heartbeat] = (storage.parent / "far").rglob(f"drivers/{owner['token']}.json")
        heartbeat.write_text("{}")
        os.utime(heartbeat, (time.time() - record_mirror.STALE_S + 1.0,) * 2)
        wait_for_mirrors_driver(address, said.append)
        assert not has_driver(objects)
        assert len(said) == 1
        wait_for_mirrors_driver(address, said.append)
        assert len(said) == 1


def test_driver_that_lost_the_mirror_ends_its_session(
    storage: Path, spec: SweepSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_mirror, "PERIOD_S", 0.01)
    with ExitStack() as stack:
        paths = new_sweep(spec, storage)
        run, _ = driven(paths, spec, stack)
        next_job(run)
        objects = open_object_store(f"{spec.checkpoint.mirror}/simulated")
        objects.put(OWNER, b'{"token": "another"}')
        deadline = time.monotonic() + 60
        while not run.gave_up and time.monotonic() < deadline:
            time.sleep(0.01)
        assert run.interrupted
        assert run.gave_up
        assert "another driver has taken the sweep over" in str(run.problem)


def test_mirror_of_a_sweep_without_trials_is_removed(storage: Path, spec: SweepSpec) -> None:
    paths = new_sweep(spec, storage)
    with ExitStack() as stack:
        stack.enter_context(
            mirror_records(paths, spec, stack.enter_context(acquire_lock(paths.lock)))
        )
    assert open_object_store(f"{spec.checkpoint.mirror}/simulated").sizes("") == {}


@pytest.mark.slow
def test_mirror_folder_and_log_hold_no_secret(
    storage: Path, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == CANARY
    spec = make_spec(checkpoint={"mirror": f"s3://{BUCKET}/secrets"})
    with ExitStack() as stack, caplog.at_level(logging.DEBUG):
        paths = new_sweep(spec, storage)
        run, mirror = driven(paths, spec, stack)
        finish(run)
        mirror.send()
    far = open_object_store(f"s3://{BUCKET}/secrets")
    there = [far.read(key) or b"" for key in far.sizes("")]
    here = [p.read_bytes() for p in paths.root.rglob("*") if p.is_file()]
    assert len(there) > 10
    assert not any(CANARY.encode() in data for data in [*there, *here, caplog.text.encode()])


def test_restore_explains_what_it_cannot_restore(storage: Path, spec: SweepSpec) -> None:
    address = f"{spec.checkpoint.mirror}"
    with pytest.raises(
        UserError, match="/nothing: holds no sweep; the address of a sweep is MIRROR/NAME"
    ):
        restore_sweep(f"{address}/nothing", None)
    new_sweep(spec, storage)
    with pytest.raises(UserError, match="exists; continue it: tune resume "):
        restore_sweep(f"{address}/simulated", None)
    with pytest.raises(UserError, match="has no mirror in object storage"):
        fetch_checkpoints(new_sweep(make_spec(name="plain"), storage), [])


def test_mirror_of_a_sweep_whose_folder_is_lost_while_it_runs_stays(
    spec: SweepSpec, storage: Path
) -> None:
    paths = new_sweep(spec, storage)
    with ExitStack() as stack:
        run, mirror = driven(paths, spec, stack)
        train(run, next_job(run))
        mirror.send()
        paths.trials.rename(storage / "lost")
    assert "trials/t0000/trial.json" in mirror.place.open().sizes("records")
