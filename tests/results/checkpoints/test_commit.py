"""A checkpoint is whole or not there, whenever the writer dies."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import results.checkpoints.commit
import results.checkpoints.streaming_hash
from results.checkpoints.cleanup import prune, quarantine_damaged
from results.checkpoints.commit import (
    CheckpointError,
    commit,
    create_staging,
    damaged_checkpoints,
    newest_intact,
    staging_folder,
    verify,
)
from results.checkpoints.streaming_hash import write_hashed
from results.paths import TrialPaths


@pytest.fixture
def paths(tmp_path: Path) -> TrialPaths:
    return TrialPaths(tmp_path / "t0000")


@pytest.fixture(autouse=True)
def large() -> Iterator[None]:
    """What is hashed while it is written is small here, and no less in danger."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results.checkpoints.streaming_hash, "MIN_STREAMED_BYTES", 1)
        yield


def save(paths: TrialPaths, step: int, text: str = "", attempt: int = 1) -> None:
    folder = staging_folder(paths, step, attempt)
    create_staging(folder)
    write_hashed(
        folder / "model.safetensors", [memoryview((text or f"weights of {step}").encode())]
    )
    (folder / "nested").mkdir()
    (folder / "nested" / "rng.json").write_text("{}")
    commit(folder, paths.checkpoint(step), step=step)


def content(paths: TrialPaths) -> str | None:
    found = newest_intact(paths)
    return None if found is None else (found.folder / "model.safetensors").read_text()


def test_the_newest_comes_back_with_its_manifest(paths: TrialPaths) -> None:
    assert newest_intact(paths) is None
    assert damaged_checkpoints(paths) == []
    save(paths, 5)
    save(paths, 12)
    found = newest_intact(paths)
    assert found is not None
    assert (found.step, found.folder) == (12, paths.checkpoint(12))
    assert sorted(found.manifest.files) == ["model.safetensors", "nested/rng.json"]
    assert found.manifest.files["nested/rng.json"].size == 2
    assert verify(found.folder) == found.manifest
    assert [p.name for p in paths.checkpoints.iterdir() if p.name.startswith(".")] == []


def truncate(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 3)


def flip_a_bit(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[0] ^= 1
    (folder / "model.safetensors").write_bytes(data)


def point_outside(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("nested/rng.json", "../../x"))


def be_of_another_step(folder: Path) -> None:
    shutil.copy(folder.with_name("step_00000001") / "manifest.json", folder)
    shutil.copy(folder.with_name("step_00000001") / "model.safetensors", folder)


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (truncate, "model.safetensors has 3 bytes, not 12"),
    (flip_a_bit, "model.safetensors has another SHA-256"),
    (lambda f: (f / "manifest.json").unlink(), "manifest.json is missing"),
    (lambda f: (f / "manifest.json").write_text('{"step": 2, "fil'), "manifest.json is not read"),
    (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), "manifest.json is not readable"),
    (lambda f: (f / "nested" / "rng.json").unlink(), "nested/rng.json is missing"),
    (point_outside, "../../x points outside"),
    (be_of_another_step, "manifest.json is of step 1"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_a_damaged_one_is_passed_over_and_named(
    paths: TrialPaths,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
    reason: str,
) -> None:
    save(paths, 1, "old weights")
    save(paths, 2, "new weights!")
    damage(paths.checkpoint(2))
    with caplog.at_level(logging.WARNING):
        assert content(paths) == "old weights"
    assert str(paths.checkpoint(2)) in caplog.text
    assert reason in caplog.text
    assert [e.reason.startswith(reason) for e in damaged_checkpoints(paths)] == [True]


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_damaged_ones_are_put_aside_up_to_the_newest_whole_one(
    paths: TrialPaths,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
    reason: str,
) -> None:
    for step in (1, 2, 3):
        save(paths, step, "old weights!")
    damage(paths.checkpoint(3))
    with caplog.at_level(logging.WARNING):
        quarantine_damaged(paths)
    flip_a_bit(paths.checkpoint(1))
    assert paths.checkpoint_steps() == [1, 2]
    assert (paths.checkpoints / "step_00000003.damaged").is_dir()
    assert "step_00000003.damaged" in caplog.text
    assert "put aside by a resume" in damaged_checkpoints(paths)[-1].reason
    assert content(paths) == "old weights!"
    quarantine_damaged(paths)  # what is older than the newest whole one is left as it is
    assert paths.checkpoint_steps() == [1, 2]


def test_a_file_in_the_place_of_a_folder_is_damage(paths: TrialPaths) -> None:
    paths.checkpoints.mkdir(parents=True)
    paths.checkpoint(3).write_text("what?")
    with pytest.raises(CheckpointError, match="not readable"):
        verify(paths.checkpoint(3))
    assert newest_intact(paths) is None


class Crash(BaseException):
    """As abrupt as an exception can be: no `except Exception` sees it."""


FAULTS = ("open", "fsync", "rename", "replace", "rmdir", "unlink")


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """Arm a crash before the n-th system call that changes files or makes them durable."""

    def arm(n: int) -> list[str]:
        monkeypatch.undo()
        calls: list[str] = []
        for name in FAULTS:
            monkeypatch.setattr(os, name, counted(getattr(os, name), name, calls, n))
        exchange = results.checkpoints.commit.exchange
        monkeypatch.setattr(
            results.checkpoints.commit, "exchange", counted(exchange, "exchange", calls, n)
        )
        return calls

    yield arm
    monkeypatch.undo()


def counted(call: Callable[..., object], name: str, calls: list[str], n: int) -> object:
    def run(*args: object, **kwargs: object) -> object:
        if len(calls) == n:
            raise Crash(name)
        calls.append(name)
        return call(*args, **kwargs)

    return run


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two-renames"])
@pytest.mark.parametrize("redo", [False, True], ids=["new", "redo"])
def test_a_crash_at_any_moment_leaves_a_whole_checkpoint(
    paths: TrialPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    crash_at: Callable[[int], list[str]],
    redo: bool,
    exchange: bool,
) -> None:
    if exchange and not renames_can_exchange(tmp_path):
        pytest.skip("this file system cannot exchange two names")
    allowed = {"redone", "two"} if redo and exchange else {"one", "redone", "two"}
    seen = set()
    for n in range(200):
        shutil.rmtree(paths.root, ignore_errors=True)
        save(paths, 1, "one")
        if redo:
            save(paths, 2, "two")
        calls = crash_at(n)
        if not exchange:
            monkeypatch.setattr(results.checkpoints.commit, "exchange", lambda a, b: False)
        try:
            save(paths, 2, "redone", attempt=2)
        except Crash:
            died = True
        else:
            died = False
        monkeypatch.undo()
        seen.add(content(paths))
        assert content(paths) in allowed, f"after {calls}"
        assert damaged_checkpoints(paths) == [], f"after {calls}"
        paths.attempt(3).mkdir(parents=True)
        save(paths, 3, attempt=3)  # whatever lies about, the next attempt goes on
        prune(paths, keep=1)
        assert [p.name for p in paths.checkpoints.iterdir()] == ["step_00000003"]
        if not died:
            break
    assert not died
    assert len(calls) > 8
    assert "redone" in seen


def renames_can_exchange(folder: Path) -> bool:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    return results.checkpoints.commit.exchange(folder / "a", folder / "b")


def test_prune_keeps_the_newest_whole_ones(paths: TrialPaths) -> None:
    for step in (1, 2, 3, 4, 5):
        save(paths, step)
    flip_a_bit(paths.checkpoint(5))
    truncate(paths.checkpoint(3))
    prune(paths, keep=2)
    assert paths.checkpoint_steps() == [2, 3, 4, 5]  # 4 and 2 are whole
    prune(paths, keep=1)
    assert paths.checkpoint_steps() == [4, 5]
    save(paths, 6)
    prune(paths, keep=1)
    assert paths.checkpoint_steps() == [6]
    with pytest.raises(ValueError, match="at least one"):
        prune(paths, keep=0)


def test_prune_leaves_the_last_whole_one_alone(paths: TrialPaths) -> None:
    save(paths, 1)
    for step in (2, 3):
        save(paths, step)
        flip_a_bit(paths.checkpoint(step))
    prune(paths, keep=1)
    assert content(paths) == "weights of 1"


def test_prune_removes_what_dead_attempts_left(paths: TrialPaths) -> None:
    save(paths, 1, attempt=2)
    for attempt in (1, 2):
        create_staging(staging_folder(paths, 9, attempt))
    (paths.checkpoints / ".step_00000001.pruned").mkdir()
    (paths.checkpoints / "notes").mkdir()
    paths.attempt(2).mkdir(parents=True)
    prune(paths, keep=3)
    left = sorted(p.name for p in paths.checkpoints.iterdir())
    assert left == [".step_00000009.attempt_0002", "notes", "step_00000001"]
    paths.attempt(3).mkdir()  # a newer attempt has begun: nobody writes the second one's any more
    prune(paths, keep=3)
    assert not staging_folder(paths, 9, 2).exists()


def test_open_staging_starts_empty(paths: TrialPaths) -> None:
    folder = staging_folder(paths, 1, 1)
    create_staging(folder)
    (folder / "half").write_text("written")
    create_staging(folder)
    assert list(folder.iterdir()) == []
