"""Errors that no retry can mend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.trial import TrialState
from tests.tuning.simulate import make_spec, next_job, open_run, train
from trainables.launch.errors import error_line
from trainables.launch.run_trial import output_to
from trainables.user_code.private_folders import private_folders

NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory:"


def state_after(folder: Path, error: str, steps: int) -> TrialState:
    """The state of a trial that fails once, after a number of reports."""
    run = open_run(folder / "s", make_spec(failure={"max_retries": 2}, scheduler={"name": "none"}))
    job = next_job(run)
    if steps:
        train(run, job, upto=steps)
    run.on_failed(job.trial_id, error)
    return run.records[job.trial_id].state


CERTAIN = [
    "rank 0: AttributeError: module 'numpy' has no attribute 'float'",
    f"rank 0: {NO_FILE} 'data/train.csv'; a relative path starts from … (rel.py:5)",
    "rank 0: CommandError: the program exited with code 2: usage: t.py | t.py: error: argument -x",
    "rank 0: CommandError: the program exited with code 2: Error: No such option: --lr",
]


@pytest.mark.parametrize("error", CERTAIN)
def test_mistake_before_the_first_report_is_not_tried_again(tmp_path: Path, error: str) -> None:
    assert state_after(tmp_path, error, 0) is TrialState.FAILED
    assert state_after(tmp_path / "later", error, 1) is TrialState.PENDING


@pytest.mark.parametrize(
    "error",
    [
        f"rank 0: {NO_FILE} '/mnt/data/train.csv'",
        f"rank 0: {NO_FILE} 's3://bucket/x'",
        "rank 0: CommandError: the program exited with code 2: killed",
        "rank 0: ValueError: bad shape",
    ],
)
def test_what_may_pass_is_tried_again(tmp_path: Path, error: str) -> None:
    assert state_after(tmp_path, error, 0) is TrialState.PENDING


@pytest.mark.parametrize("given", ["data/train.csv", "/nowhere/train.csv"])
def test_relative_path_says_where_it_was_looked_for(tmp_path: Path, given: str) -> None:
    paths = SweepPaths(tmp_path).trial("t0000")
    with (
        pytest.raises(FileNotFoundError) as raised,
        output_to(paths.log(1, 0)),
        private_folders(paths),
    ):
        os.stat(given)
    said = f"the working directory, {paths.work}" in error_line(raised.value)
    assert said is not given.startswith("/")
