"""Backups of a sweep folder: complete or absent, and only what changed is sent."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.checkpoints.streaming_hash import hash_file
from results.paths import SweepPaths
from results.storage.object_store import ContentMismatchError, ObjectStore
from results.sweep_folder.copies.backup import BACKUPS, FILES, labels, open_target, read_backup
from results.sweep_folder.copies.backup_writer import BackupUploader, prune_backups, take_backup
from results.sweep_folder.copies.restore import fetch_backup
from search_spaces.errors import UserError
from tests.object_store import BUCKET
from tests.results.written import add_trial, write_checkpoint

KEY = "0123456789abcdef"
RETENTION = Retention(newest=1, best=1, metric="loss", mode="min")


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.slow), "file"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_target(str(tmp_path / "far")).within("digits-1")
    request.getfixturevalue("server")
    return open_target(f"s3://{BUCKET}/{time.monotonic_ns()}").within("digits-1")


@pytest.fixture
def trained(sweep: SweepPaths) -> SweepPaths:
    """A trial with checkpoints of the steps 1 to 4; that of step 2 is the best."""
    add_trial(sweep, 0, {1: 0.9, 2: 0.1, 3: 0.8, 4: 0.7})
    for step in (1, 2, 3, 4):
        write_checkpoint(sweep.trial("t0000"), step, {"w": f"weights {step}", "sub/x": "same"})
    sweep.study.write_text('{"op": 1}\n')
    sweep.spec.write_text("name: digits-1\n")
    return sweep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each backup is taken an hour after the one before."""
    hours = iter(range(100))
    fake = SimpleNamespace(time=lambda: 1.8e9 + 3600 * next(hours))
    monkeypatch.setattr("results.sweep_folder.copies.backup_writer.time", fake)


def take(paths: SweepPaths, objects: ObjectStore) -> BackupUploader:
    return take_backup(paths.root, KEY, objects, {paths: RETENTION})[1]


def fetched(objects: ObjectStore, folder: Path, at: str | None = None) -> SweepPaths:
    assert fetch_backup(objects, read_backup(objects, at), folder) == []
    return SweepPaths(folder)


def contents(root: Path) -> dict[str, bytes]:
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_folder_comes_back_with_the_newest_and_the_best_checkpoint(
    trained: SweepPaths, objects: ObjectStore, tmp_path: Path
) -> None:
    for name in ("ray/state.pkl", "inbox/1.json", ".study.journal.1.tmp", "owner.lock"):
        (trained.root / name).parent.mkdir(exist_ok=True)
        (trained.root / name).write_text("not saved")
    take(trained, objects)
    back = fetched(objects, tmp_path / "back")
    assert back.trial("t0000").checkpoint_steps() == [2, 4]
    found = newest_intact(back.trial("t0000"))
    assert found is not None
    assert (found.folder / "w").read_text() == "weights 4"
    saved, all_files = contents(back.root), contents(trained.root)
    assert saved.items() <= all_files.items()
    lost = {name for name in all_files.keys() - saved if "checkpoints/" not in name}
    assert lost == {"ray/state.pkl", "inbox/1.json", ".study.journal.1.tmp", "owner.lock"}
    assert back.study.stat().st_mtime == pytest.approx(trained.study.stat().st_mtime, abs=0.01)


@pytest.mark.usefixtures("clock")
def test_only_what_changed_is_sent_and_older_backups_stay_whole(
    trained: SweepPaths, objects: ObjectStore, tmp_path: Path
) -> None:
    first = take(trained, objects)
    assert first.files == len(objects.sizes(FILES))
    write_checkpoint(trained.trial("t0000"), 5, {"w": "weights 5", "sub/x": "same"})
    assert take(trained, objects).files == 2  # the weights, and their manifest
    assert take(trained, objects).files == 0
    before, now, _ = labels(objects)
    assert fetched(objects, tmp_path / "a", before).trial("t0000").checkpoint_steps() == [2, 4]
    assert fetched(objects, tmp_path / "b", now).trial("t0000").checkpoint_steps() == [2, 5]

    assert prune_backups(objects, 1) == 2
    assert len(labels(objects)) == 1
    assert fetched(objects, tmp_path / "c").trial("t0000").checkpoint_steps() == [2, 5]
    used = {entry.sha256 for entry in read_backup(objects).files.values()}
    assert set(objects.sizes(FILES)) == used
    assert prune_backups(objects, 1) == 0


def test_line_that_is_being_written_is_left_out(
    trained: SweepPaths, objects: ObjectStore, tmp_path: Path
) -> None:
    with trained.study.open("a") as journal:
        journal.write('{"op": 2')
    take(trained, objects)
    assert fetched(objects, tmp_path / "back").study.read_text() == '{"op": 1}\n'


def test_backup_without_its_manifest_does_not_exist(
    trained: SweepPaths, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("results.sweep_folder.copies.backup_writer.write_backup", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        take(trained, objects)
    with pytest.raises(UserError, match="holds no backup"):
        read_backup(objects)


def test_damaged_checkpoint_is_left_out_and_damaged_record_refused(
    trained: SweepPaths, objects: ObjectStore, tmp_path: Path
) -> None:
    take(trained, objects)
    files = read_backup(objects).files
    objects.put(f"{FILES}/{files['trials/t0000/checkpoints/step_00000004/w'].sha256}", b"w")
    left_out = fetch_backup(objects, read_backup(objects), tmp_path / "a")
    assert left_out == ["trials/t0000/checkpoints/step_00000004"]
    assert SweepPaths(tmp_path / "a").trial("t0000").checkpoint_steps() == [2]
    objects.remove(f"{FILES}/{files['trials/t0000/trial.json'].sha256}")
    with pytest.raises(UserError, match=r"t0000/trial\.json of .* is damaged; there is no other"):
        fetch_backup(objects, read_backup(objects), tmp_path / "b")


@pytest.mark.usefixtures("clock")
def test_damaged_manifest_names_the_one_before(trained: SweepPaths, objects: ObjectStore) -> None:
    take(trained, objects)
    take(trained, objects)
    before, newest = labels(objects)
    key = f"{BACKUPS}/{newest}.json"
    whole = objects.read(key) or b""
    objects.put(key, whole.replace(b"study", b"stuDy"))
    with pytest.raises(
        UserError, match=rf"does not match its checksum\); try another: --at {before}"
    ):
        read_backup(objects)
    with pytest.raises(UserError, match="cannot be read"):
        prune_backups(objects, 1)
    assert labels(objects) == [before, newest]


def test_manifest_cannot_write_outside_of_the_folder(
    trained: SweepPaths, objects: ObjectStore, tmp_path: Path
) -> None:
    take(trained, objects)
    backup = read_backup(objects)
    evil = backup.model_copy(update={"files": {"../evil": backup.files["sweep.yaml"]}})
    with pytest.raises(UserError, match=r"\.\./evil of .* is damaged"):
        fetch_backup(objects, evil, tmp_path / "back")
    assert not (tmp_path / "evil").exists()


def test_backups_of_another_sweep_and_another_release_are_refused(
    trained: SweepPaths, objects: ObjectStore
) -> None:
    take(trained, objects)
    with pytest.raises(UserError, match="holds backups of another sweep of this name"):
        take_backup(trained.root, "f" * 16, objects, {trained: RETENTION})
    (label,) = labels(objects)
    raw = json.loads(objects.read(f"{BACKUPS}/{label}.json") or b"")
    del raw["crc32"]
    objects.put(f"{BACKUPS}/{label}.json", json.dumps({**raw, "version": 9}).encode())
    with pytest.raises(UserError, match="version 9 is of another release"):
        read_backup(objects)
    with pytest.raises(UserError, match=r"no backup 'x'"):
        read_backup(objects, "x")


def test_content_that_a_file_lost_while_it_was_sent_comes_from_another(
    objects: ObjectStore, tmp_path: Path
) -> None:
    changed, kept = tmp_path / "changed", tmp_path / "kept"
    changed.write_text("new")
    kept.write_text("old")
    uploader = BackupUploader(objects)
    with pytest.raises(ContentMismatchError):
        uploader.send_file(changed, hash_file(kept))
    assert uploader.send_file(kept).sha256 in objects.sizes(FILES)
