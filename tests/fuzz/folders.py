"""Damaged sweep folders: each command answers or gives a message, and changes no intact file."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
import shutil
from pathlib import Path
from typing import Any

import typer

from results.analysis.dataframes import trials_frame, write_parquet
from results.analysis.leaderboard import read_leaderboard
from results.paths import SweepPaths
from results.records import environment
from results.records.environment import Environment, version_changes
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_trial
from results.records.worker_samples import sample_line
from search_spaces.errors import UserError
from tests.fuzz.files import flip_bit, truncate
from tests.tuning.simulate import finish, make_spec, new_sweep, save, train
from trainables.job import TrialJob
from trainables.runtime.provenance import library_versions
from tuning.cli.look.ls import ls
from tuning.cli.look.show import show
from tuning.cli.use.best import best
from tuning.controller.commands import CommandHandler, send
from tuning.controller.session import open_sweep


def make_sweep(storage: Path) -> SweepPaths:
    """An unfinished sweep with all kinds of files; it learns from a finished one."""
    earlier = _create(storage, name="earlier", budget={"trials": 2})
    with open_sweep(earlier, read_spec(earlier)) as run:
        finish(run)
    paths = _create(storage, search={"startup_trials": 3, "warm_start": [str(earlier.root)]})
    with open_sweep(paths, read_spec(paths)) as run:
        for _ in range(2):
            job = run.next_trial()
            save(job, 1)
            _write_provenance(job)
            train(run, job)
        train(run, run.next_trial(), upto=1)
        write_parquet(paths, trials_frame(read_leaderboard(paths, "loss", "min"), run.spec))
    send(paths, "add", params={"x": 0.25})
    return paths


def _create(storage: Path, **changes: Any) -> SweepPaths:
    spec = make_spec(**{"tracking": {"name": "none"}, "budget": {"trials": 4}, **changes})
    return new_sweep(spec, storage)


def _write_provenance(job: TrialJob) -> None:
    """Write what a worker writes beside its reports."""
    ran = Environment(source={}, versions=dict(library_versions()), hardware={})
    environment.write(job.paths, job.attempt, ran)
    job.paths.samples(job.attempt).write_text(sample_line(1, 1.0, {"system/memory_mb": 1.0}))
    job.paths.log(job.attempt, 0).write_text("step 1\n")


def damaged(sweep: SweepPaths, storage: Path, rng: random.Random) -> SweepPaths:
    """A copy in which one to three files were truncated, changed or deleted."""
    paths = SweepPaths(storage / sweep.name)
    shutil.copytree(sweep.root, paths.root)
    files = sorted(p for p in paths.root.rglob("*") if p.is_file())
    for file in rng.sample(files, rng.randint(1, 3)):
        data = file.read_bytes()
        act = rng.randrange(5)
        if act == 0:
            file.unlink()
        elif act == 1:
            file.write_bytes(truncate(data, rng))
        elif act == 2 and data:
            file.write_bytes(flip_bit(data, rng))
        elif act == 3:
            file.write_bytes(rng.randbytes(rng.randrange(200)))
        else:
            file.write_bytes(data + rng.randbytes(20))
    return paths


def check(paths: SweepPaths) -> bool:
    """Whether the sweep can be resumed; any exception but a `UserError` escapes."""
    storage, name = str(paths.root.parent), paths.name
    before = _hashes(paths.root)
    for look in (
        lambda: ls(storage=storage),
        lambda: show(name, storage=storage),
        lambda: show(name, "t0000", storage=storage),
        lambda: best(name, json_=True, storage=storage),
    ):
        with contextlib.suppress(UserError, typer.Exit), contextlib.redirect_stdout(io.StringIO()):
            look()
    assert _hashes(paths.root) == before, "looking at a sweep changed it"
    finished = _finished(paths)
    try:
        spec = read_spec(paths)
        with open_sweep(paths, spec) as run:
            CommandHandler(run).begin()
            version_changes(paths, run.records, dict(library_versions()))
            finish(run)
    except UserError as e:
        assert all(line and "\n" not in line for line in e.problems), e.problems
        return False
    after = _finished(paths)
    changed = [i for i, record in finished.items() if after.get(i) != record]
    assert not changed, f"finished trials changed: {changed}"
    return True


def _finished(paths: SweepPaths) -> dict[str, TrialRecord]:
    found = {}
    for trial_id in paths.trial_ids():
        with contextlib.suppress(UserError):
            record = read_trial(paths.trial(trial_id))
            if record.state.finished:
                found[trial_id] = record
    return found


def _hashes(root: Path) -> dict[str, str]:
    files = [p for p in root.rglob("*") if p.is_file()]
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
