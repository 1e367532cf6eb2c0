"""What the workers of an attempt are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuning.simulate import make_spec
from tuning.controller.trial_jobs import make_job

PROGRAM: dict[str, Any] = {"trainable": None, "command": ["true", "{args}"]}


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 600.0),
        (PROGRAM, 3600.0),  # sends no heartbeats, and may print nothing
        ({"failure": {"hang_timeout": "20m"}}, 1200.0),
        ({**PROGRAM, "failure": {"hang_timeout": 90}}, 90.0),
    ],
)
def test_silence_that_ends_a_worker(
    tmp_path: Path, changes: dict[str, Any], seconds: float
) -> None:
    job = make_job(make_spec(**changes), tmp_path, {}, 0, "")
    assert job.hang_timeout_s == seconds
    assert job.wait_for_room_s <= seconds / 2, "waiting for room on the disk is silent too"
