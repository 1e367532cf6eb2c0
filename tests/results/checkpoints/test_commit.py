"""The commit protocol: a checkpoint is complete or absent, whenever the writer dies."""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import results.checkpoints.commit
import results.checkpoints.streaming_hash
from results.checkpoints.cleanup import prune
from results.checkpoints.commit import (
    CheckpointError,
    create_staging,
    damaged_checkpoints,
    newest_intact,
    staging_folder,
    verify,
)
from results.trial_paths import TrialPaths
from tests.results.checkpoints.damage import DAMAGE, content, save


@pytest.fixture(autouse=True)
def stream_small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results.checkpoints.streaming_hash, "MIN_STREAMED_BYTES", 1)
        yield


def test_newest_intact_returns_the_newest_with_its_manifest(paths: TrialPaths) -> None:
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


@pytest.mark.parametrize(("damage", "reason"), DAMAGE)
def test_newest_intact_skips_damaged_checkpoints_and_names_them(
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


def test_verify_refuses_a_file_in_place_of_a_folder(paths: TrialPaths) -> None:
    paths.checkpoints.mkdir(parents=True)
    paths.checkpoint(3).write_text("what?")
    with pytest.raises(CheckpointError, match="not readable"):
        verify(paths.checkpoint(3))
    assert newest_intact(paths) is None


class Crash(BaseException):
    """Not an `Exception`, so that no handler catches it."""


FAULTS = ("open", "fsync", "rename", "replace", "rmdir", "unlink")


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[str]]]:
    """Crash before the n-th system call that changes files or flushes them."""

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
def test_commit_survives_a_crash_at_any_system_call(
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
        save(paths, 3, attempt=3)  # the next attempt ignores leftovers
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


def test_create_staging_empties_the_folder(paths: TrialPaths) -> None:
    folder = staging_folder(paths, 1, 1)
    create_staging(folder)
    (folder / "half").write_text("written")
    create_staging(folder)
    assert list(folder.iterdir()) == []
