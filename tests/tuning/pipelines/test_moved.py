"""A pipeline whose folder was moved: a line tells what to do, and then it goes on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from results.records.pipeline import read_stages
from search_spaces.errors import UserError
from tests.tuning.pipelines import small
from tests.tuning.pipelines.small import UNTRACKED, drive
from tuning.pipelines.chosen import Chosen
from tuning.pipelines.folder import find_pipeline
from tuning.pipelines.run import resume_pipeline


def test_an_unfinished_pipeline_that_was_moved_says_what_to_do_and_goes_on(tmp_path: Path) -> None:
    without = UNTRACKED.replace('keep_if: "keep.py:keep"', "seed: 1")
    paths = small.run(small.write(tmp_path / "old", without), Chosen(until="pretrain"))
    new = tmp_path / "new place"
    paths.root.parent.rename(new)
    moved = find_pipeline("small", str(new))
    assert moved is not None
    chosen = Chosen(until="scores")
    resume_pipeline(moved, chosen=Chosen(until="pretrain"), drive=drive)  # nothing to run
    with pytest.raises(UserError, match=f"was moved from {paths.root}, where its sweeps") as told:
        resume_pipeline(moved, chosen=chosen, drive=drive)
    command = re.search(r"mkdir -p .*$", told.value.problems[0])
    assert command is not None
    subprocess.run(["sh", "-c", command[0]], check=True)
    resume_pipeline(moved, chosen=chosen, drive=drive)
    assert read_stages(moved).stages["scores"].done
