from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.sweep_folder.copies.checkpoint_mirror import OWNER, MirrorLocation, TrialMirror
from results.trial_paths import TrialPaths
from tests.trainables.local import make_worker
from trainables.checkpointing.uploads import MirrorUploads, make_uploads, restore_newest
from trainables.worker import Worker

TOKEN = "0123456789abcdef"
CONFIG = {"hidden_units": 8, "num_layers": 1, "epochs": 6, "batch_size": 256, "dropout": 0.1}


@pytest.fixture
def place(tmp_path: Path) -> MirrorLocation:
    found = MirrorLocation((tmp_path / "far").as_uri(), "sweep", TOKEN)
    found.open().put(OWNER, json.dumps({"token": TOKEN}).encode())
    return found


def worker_of(folder: Path, place: MirrorLocation, **options: Any) -> Worker:
    return make_worker(folder, checkpoint_every=1, mirror=place, **options)


def save(folder: Path) -> None:
    (folder / "model.safetensors").write_text(folder.name)


def steps_in(place: MirrorLocation) -> set[str]:
    keys = place.open().sizes("trials/t0000/checkpoints")
    return {key[:13] for key in keys if key.endswith("manifest.json")}


@pytest.mark.parametrize("ended", [False, True])
def test_upload_does_not_block_training_and_sends_the_newest_next(
    tmp_path: Path, place: MirrorLocation, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    begun, go_on, sent = threading.Event(), threading.Event(), []
    send = TrialMirror.send

    def slowly(self: TrialMirror, paths: TrialPaths, step: int) -> None:
        begun.set()
        assert go_on.wait(60)
        send(self, paths, step)
        sent.append(step)

    monkeypatch.setattr(TrialMirror, "send", slowly)
    worker = worker_of(tmp_path / "t0000", place, retention=Retention(newest=1))
    worker.report(step=1, metrics={}, checkpoint=save)
    assert begun.wait(60)
    for step in (2, 3, 4):
        worker.report(step=step, metrics={}, checkpoint=save)
    worker.report(step=5, metrics={}, checkpoint=save, final=True)  # no report has waited
    paths = worker.job.paths
    assert paths.checkpoint_steps() == [1, 5]  # checkpoint 1 is still being sent
    go_on.set()
    for thread in [t for t in threading.enumerate() if ended and t.name == "upload"]:
        thread.join()
    worker.close()
    assert sent == [1, 5]
    assert paths.checkpoint_steps() == [5]
    assert steps_in(place) == {"step_00000005"}


def test_upload_error_does_not_fail_training(
    tmp_path: Path,
    place: MirrorLocation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(self: TrialMirror, paths: TrialPaths, step: int) -> None:
        raise OSError("the network is gone, says https://me:pa55word@host")

    monkeypatch.setattr(TrialMirror, "send", fails)
    worker = worker_of(tmp_path / "t0000", place)
    with caplog.at_level(logging.WARNING):
        worker.report(step=1, metrics={}, checkpoint=save, final=True)
        worker.close()
    assert worker.job.paths.checkpoint_steps() == [1]
    assert "step 1 was not sent (the network is gone, says https://me:***@host)" in caplog.text


def test_unreachable_mirror_is_an_error_only_without_a_local_checkpoint(
    tmp_path: Path, place: MirrorLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_of(tmp_path / "t0000", place, attempt=2)

    def unreachable(self: TrialMirror, paths: TrialPaths, newer_than: int) -> None:
        raise OSError("AWS Error NETWORK_CONNECTION")

    monkeypatch.setattr(TrialMirror, "fetch", unreachable)
    with pytest.raises(OSError, match="NETWORK"):  # training must not start again from step 0
        restore_newest(worker.job, newest_intact(worker.job.paths))
    worker.report(step=1, metrics={}, checkpoint=save, final=True)
    worker.close()
    here = restore_newest(worker.job, newest_intact(worker.job.paths))
    assert here is not None
    assert here.step == 1


def test_only_rank_0_uploads(tmp_path: Path, place: MirrorLocation) -> None:
    job = worker_of(tmp_path / "t0000", place).job
    assert isinstance(make_uploads(job, rank=0), MirrorUploads)
    assert not isinstance(make_uploads(job, rank=1), MirrorUploads)
