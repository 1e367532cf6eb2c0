"""A pipeline whose folder was moved, or comes back from its backup, goes on with its next stage."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from results.models.stages import original_of, read_stages
from results.paths import Storage
from results.records.pipeline import pipelines_in
from results.records.trial import read_trials
from search_spaces.errors import UserError
from tests.tuning.pipelines import small
from tests.tuning.pipelines.small import UNTRACKED, drive
from tuning.cli.run.folders import delete, mv
from tuning.controller.backup import back_up, restore_backup
from tuning.pipelines.folder import find_pipeline
from tuning.pipelines.run import resume_pipeline, run_pipeline
from tuning.pipelines.selection import StageSelection

WITHOUT_FILTER = UNTRACKED.replace('keep_if: "keep.py:keep"', "seed: 1")


def test_an_unfinished_pipeline_that_was_moved_says_what_to_do_and_goes_on(tmp_path: Path) -> None:
    paths = small.run(
        small.write(tmp_path / "old", WITHOUT_FILTER), StageSelection(until="pretrain")
    )
    new = tmp_path / "new place"
    paths.root.parent.rename(new)
    moved = find_pipeline("small", str(new))
    assert moved is not None
    nothing, selection = StageSelection(until="pretrain"), StageSelection(until="scores")
    resume_pipeline(moved, selection=nothing, run_session=drive)
    with pytest.raises(UserError, match=f"was moved from {paths.root}, where its sweeps") as told:
        resume_pipeline(moved, selection=selection, run_session=drive)
    command = re.search(r"mkdir -p .*$", told.value.problems[0])
    assert command is not None
    subprocess.run(["sh", "-c", command[0]], check=True)
    resume_pipeline(moved, selection=selection, run_session=drive)
    assert read_stages(moved).stages["scores"].done


def test_pipeline_that_was_renamed_between_two_stages_goes_on(tmp_path: Path) -> None:
    file = small.write(tmp_path / "here", WITHOUT_FILTER)
    paths = small.run(file, StageSelection(until="pretrain"))
    storage, new = str(paths.root.parent), paths.root.with_name("new")
    mv(str(paths.root), "new", storage)
    renamed = find_pipeline("small", storage)
    assert renamed is not None
    assert renamed.root == new, "the earlier name leads to it"
    (new.parent / "loop").symlink_to("loop")
    assert [one.name for one in pipelines_in(Storage(new.parent))] == ["new"]
    with pytest.raises(UserError, match="--name new"):
        run_pipeline(file, storage=storage)
    resume_pipeline(renamed, selection=StageSelection(until="later"), run_session=drive)
    assert read_stages(renamed).stages["later"].done
    assert original_of(renamed) is None
    mv("new", "small", storage)
    assert [(one.name, one.root.is_symlink()) for one in pipelines_in(Storage(new.parent))] == [
        ("small", False)
    ]
    assert new.is_symlink(), "a stage ran there"
    delete("small", yes=True, storage=storage)
    assert not {"small", "new"} & {one.name for one in new.parent.iterdir()}


def test_pipeline_is_lost_restored_and_continued(tmp_path: Path) -> None:
    file = small.write(tmp_path / "here", WITHOUT_FILTER)
    paths = small.run(file, StageSelection(until="pretrain"))
    before, trials = read_stages(paths), read_trials(paths.sweep("pretrain"))
    taken = back_up(paths, str(tmp_path / "far"), newest=1, best=0, keep=2)
    again = back_up(paths, str(tmp_path / "far"), newest=1, best=0, keep=2)
    assert again.sent.files < 3, "what did not change is not sent again"
    shutil.rmtree(paths.root)

    back, found, left_out = restore_backup(f"{tmp_path}/far/small", str(paths.root.parent), None)
    assert (back.root, left_out) == (paths.root, [])
    assert found.files == again.backup.files
    assert len(found.files) >= len(taken.backup.files) > 10
    assert read_stages(paths) == before
    assert read_trials(paths.sweep("pretrain")) == trials
    small.run(file, StageSelection(until="averaged"))
    after = read_stages(paths).stages
    assert after["averaged"].done
    assert after["pretrain"] == before.stages["pretrain"], "it is not run again"
