"""A pipeline that is lost comes back from its backup, and goes on with its next stage."""

from __future__ import annotations

import shutil
from pathlib import Path

from results.records.pipeline import read_stages
from results.records.trial import read_trials
from tests.tuning.pipelines import small
from tests.tuning.pipelines.small import UNTRACKED
from tuning.controller.backup import back_up, restore_backup
from tuning.pipelines.chosen import Chosen


def test_pipeline_is_lost_restored_and_continued(tmp_path: Path) -> None:
    without = UNTRACKED.replace('keep_if: "keep.py:keep"', "seed: 1")
    file = small.write(tmp_path / "here", without)
    paths = small.run(file, Chosen(until="pretrain"))
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
    small.run(file, Chosen(until="averaged"))
    after = read_stages(paths).stages
    assert after["averaged"].done
    assert after["pretrain"] == before.stages["pretrain"], "it is not run again"
