"""The hash that is taken while a file is written is the file's, or it is taken again."""

import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import results.checkpoints.streaming_hash
from results.checkpoints.commit import commit, verify
from results.checkpoints.streaming_hash import (
    FileEntry,
    hash_file,
    is_hash_sidecar,
    pop_hash_sidecar,
    write_hashed,
)

MIB = 2**20
SIZES = [[0], [3], [], [MIB - 1], [MIB], [5, 0, 9 * MIB + 3, 1], [2**16] * 40]


def parts(sizes: list[int]) -> list[memoryview]:
    return [memoryview(bytes([i + 1]) * size) for i, size in enumerate(sizes)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_write_hashed_records_the_hash_of_large_files(tmp_path: Path, sizes: list[int]) -> None:
    file, content = tmp_path / "file", b"".join(parts(sizes))
    file.write_text("of an attempt before")
    write_hashed(file, parts(sizes))
    assert file.read_bytes() == content
    assert pop_hash_sidecar(file) == (hash_file(file) if len(content) >= MIB else None)
    digest = hashlib.sha256(content).hexdigest()
    assert hash_file(file) == FileEntry(size=len(content), sha256=digest)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert pop_hash_sidecar(file) is None


def change(file: Path) -> None:
    file.write_bytes(b"#" * MIB)  # as many bytes
    os.utime(file, ns=(0, 0))


def tear_the_note(file: Path) -> None:
    (note,) = [p for p in file.parent.iterdir() if is_hash_sidecar(p)]
    note.write_text('{"entry"')


@pytest.mark.parametrize("spoil", [change, tear_the_note])
def test_commit_ignores_a_stale_or_damaged_hash_sidecar(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    draft, final = tmp_path / "draft", tmp_path / "step_00000001"
    draft.mkdir()
    write_hashed(draft / "file", parts([MIB]))
    spoil(draft / "file")
    commit(draft, final, step=1)
    assert verify(final).files["file"] == hash_file(final / "file")
    assert sorted(p.name for p in final.iterdir()) == ["file", "manifest.json"]


def test_commit_does_not_hash_streamed_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, hashed = tmp_path / "draft", list[str]()
    (draft / "in").mkdir(parents=True)
    write_hashed(draft / "in" / "weights", parts([2 * MIB]))
    (draft / "small.json").write_text("{}")

    def counted(path: Path) -> FileEntry:
        hashed.append(path.name)
        return hash_file(path)

    monkeypatch.setattr("results.checkpoints.commit.hash_file", counted)
    manifest = commit(draft, tmp_path / "final", step=1)
    assert hashed == ["small.json"]
    monkeypatch.undo()
    assert verify(tmp_path / "final") == manifest
    assert sorted(manifest.files) == ["in/weights", "small.json"]


def test_write_hashed_retries_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, calls = os.fsync, list[int]()

    def flaky(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            os.ftruncate(fd, 1)  # what it held is gone
            raise OSError(errno.EIO, "flaked")
        fsync(fd)

    monkeypatch.setattr(results.checkpoints.streaming_hash.os, "fsync", flaky)
    write_hashed(tmp_path / "file", parts([2 * MIB]))
    assert len(calls) == 2
    assert pop_hash_sidecar(tmp_path / "file") == hash_file(tmp_path / "file")


def test_write_hashed_works_without_sync_file_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results.checkpoints.streaming_hash, "sync_file_range", lambda: None)
    write_hashed(tmp_path / "file", parts([9 * MIB]))
    assert pop_hash_sidecar(tmp_path / "file") == hash_file(tmp_path / "file")
