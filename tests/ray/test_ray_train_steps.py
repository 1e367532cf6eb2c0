"""Steps, checkpoints and the end of Ray Train loops that do not do as the examples do."""

from __future__ import annotations

import numpy as np
import pytest

from results.records.trial import TrialState
from tests.object_store import s3_server
from tests.ray.conftest import Tune

pytestmark = pytest.mark.scripts

UNCOUNTED = """
import os
import tempfile

import ray.train


def loop(config):
    start, checkpoint = 1, ray.train.get_checkpoint() if config["restores"] else None
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = int(open(os.path.join(folder, "epoch")).read()) + 1
    for epoch in range(start, 7):
        if epoch == 4 and not os.path.exists("failed"):
            open("failed", "w").close()
            raise ConnectionError("once")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "epoch"), "w") as f:
                f.write(str(epoch))
            saved = ray.train.Checkpoint.from_directory(folder) if epoch % 2 == 0 else None
            ray.train.report(
                {"loss": 1.0 / epoch},
                checkpoint=saved,  # of a folder that is deleted: it is copied all the same
                checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD,
            )
"""


def test_steps_of_a_resumed_loop_are_counted_from_its_checkpoint(tune: Tune) -> None:
    (tune.cwd / "uncounted.py").write_text(UNCOUNTED)
    (tune.cwd / "uncounted.yaml").write_text(
        "name: uncounted\ntrainable: uncounted.py:loop\nmetric: loss\n"
        "space: {restores: {grid_search: [true, false]}}\nscheduler: {name: none}\n"
        "resources: {concurrency: 2}\ntracking: {name: none}\n"
    )
    output = tune("run", "uncounted.yaml")
    assert "warning: attempt t0001.2 had a checkpoint, and the loop did not ask for it" in output
    paths = tune.paths("uncounted")
    for record, attempts in zip(
        tune.trials("uncounted"), ([1, 1, 2, 2, 2, 2], [2] * 6), strict=True
    ):
        curve = tune.curve("uncounted", record.id)
        assert [r.step for r in curve] == [1, 2, 3, 4, 5, 6]
        assert [r.metrics["loss"] for r in curve] == [1.0 / step for step in range(1, 7)]
        assert [r.attempt for r in curve] == attempts
        warned = "did not ask for it" in paths.trial(record.id).log(2, 0).read_text()
        assert warned is not record.params["restores"]


CLOSING = """
import os
import pathlib
import tempfile
import time

import numpy as np
import ray.train


def loop(config):
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = int(pathlib.Path(folder, "epoch").read_text()) + 1
    print("starting at", start)
    for epoch in range(start, 4):
        if epoch == 3 and not os.path.exists("hung"):
            open("hung", "w").close()
            time.sleep(1000)
        ray.train.report(
            {"epoch": epoch, "eval": {"loss": np.float32(1 / (epoch + 1))}}, save(config, epoch)
        )
    time.sleep(1)
    ray.train.report({}, save(config, "last"))


def save(config, epoch):
    import pyarrow.fs

    keys = {"access_key": "tests", "secret_key": "tests", "scheme": "http"}
    remote = pyarrow.fs.S3FileSystem(endpoint_override=config["store"], **keys)
    folder = f"bucket/{os.path.basename(os.path.dirname(os.getcwd()))}/{epoch}"
    remote.create_dir(folder)
    with remote.open_output_stream(f"{folder}/epoch") as f:
        f.write(str(epoch).encode())
    return ray.train.Checkpoint(folder, remote)
"""


def test_loop_that_counts_from_zero_saves_elsewhere_hangs_and_saves_again_at_its_end(
    tune: Tune,
) -> None:
    (tune.cwd / "closing.py").write_text(CLOSING)
    with s3_server() as url:
        (tune.cwd / "closing.yaml").write_text(
            "name: closing\ntrainable: closing.py:loop\nmetric: eval/loss\n"
            f"space: {{x: {{uniform: [0, 1]}}}}\nfixed: {{store: '{url.partition('//')[2]}'}}\n"
            "scheduler: {name: asha, time_attr: epoch, max_t: 4}\nbudget: {trials: 1}\n"
            "checkpoint: {keep: 1, keep_best: 1}\nfailure: {hang_timeout: 8}\n"
            "tracking: {name: none}\n"
        )
        tune("run", "closing.yaml")
    (record,) = tune.trials("closing")
    assert (record.state, record.end_step) == (TrialState.COMPLETED, 4)
    assert record.attempts[0].error.startswith("hung: ")
    curve = tune.curve("closing", "t0000")
    assert [(r.step, r.metrics["epoch"], r.attempt) for r in curve] == [
        (1, 1.0, 1),
        (2, 2.0, 1),
        (3, 3.0, 1),
        (4, 4.0, 2),
    ]
    assert [r.metrics["eval/loss"] for r in curve] == [np.float32(1 / n) for n in (1, 2, 3, 4)]
    trial = tune.paths("closing").trial("t0000")
    assert "starting at 3" in trial.log(2, 0).read_text()
    kept = [(trial.checkpoint(step) / "epoch").read_text() for step in trial.checkpoint_steps()]
    assert kept == ["last"]  # the best one, and the newest one
    assert (trial.newest_checkpoint() / "epoch").read_text() == "last"
