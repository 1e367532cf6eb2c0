"""A backup that is taken while a sweep runs is consistent: restored, it goes on to the same end."""

from __future__ import annotations

import shutil
import signal

from results.records.integrity import check_records
from results.records.trial import TrialState
from tests.ray.conftest import Tune, end
from tests.waiting import wait_for

SWEEP = """
name: saved
trainable: tests.cluster.short:Short
metric: loss
space: {x: {uniform: [0, 1]}}
search: {name: random}
scheduler: {name: none}
budget: {trials: 12}
checkpoint: {every: 1}
tracking: {name: none}
"""


def test_backup_beside_the_driver_is_consistent(tune: Tune) -> None:
    (tune.cwd / "saved.yaml").write_text(SWEEP)
    paths = tune.paths("saved")
    driver = tune.start("run", "saved.yaml")
    wait_for(lambda: len(paths.trial_ids()) >= 4, driver)
    for _ in range(2):
        tune("backup", "saved", "far")
    assert driver.poll() is None, "it ran meanwhile"
    whole = dict(tune.values("saved"))
    end(driver, signal.SIGINT)  # its workers end before it, and write nothing afterwards
    shutil.rmtree(paths.root)

    assert "restored from backup" in tune("restore", "far/saved")
    assert check_records(paths).problems == ()
    saved = tune.values("saved")
    assert len(saved) >= 4
    assert all(curve == whole[trial][: len(curve)] for trial, curve in saved.items())
    tune("resume", "saved")
    assert [t.state for t in tune.trials("saved")] == [TrialState.COMPLETED] * 12
    assert all(len(curve) == 2 for curve in tune.values("saved").values())
