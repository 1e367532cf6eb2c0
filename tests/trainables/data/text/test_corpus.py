import hashlib
import os
from pathlib import Path

import pytest

from trainables.base import Split
from trainables.data import shared_folder
from trainables.data.splits import assign_splits
from trainables.data.text.config import DataConfig
from trainables.data.text.corpus import open_corpus


def test_fingerprint_hashes_large_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "LARGE_FILE", 10)
    path = tmp_path / "a.txt"
    path.write_text("x" * 100)
    data = DataConfig(source="files", paths=[str(path)])
    first = open_corpus(data, tmp_path).fingerprint()
    digest = next((tmp_path / "digests").iterdir())
    digest.write_text("remembered")
    assert open_corpus(data, tmp_path).fingerprint() != first
    before = path.stat()
    path.write_text("y" * 100)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy may do
    assert len(list((tmp_path / "digests").iterdir())) == 1
    open_corpus(data, tmp_path).fingerprint()
    assert len(list((tmp_path / "digests").iterdir())) == 2


@pytest.mark.parametrize("count", [3, 4, 10, 40, 1000])
def test_assign_splits_leaves_no_split_empty(count: int) -> None:
    units = [hashlib.sha256(b"%d" % i).hexdigest() for i in range(count)]
    splits = assign_splits(units)
    assert set(splits.values()) == set(Split)
    assert assign_splits(reversed(units * 2)) == splits
    held_out = sum(s is not Split.TRAIN for s in splits.values())
    assert held_out <= max(2, 0.14 * count)


def test_open_corpus_reads_the_standard_library_up_to_the_limit(tmp_path: Path) -> None:
    found = open_corpus(DataConfig(max_bytes=200_000), tmp_path)
    assert found == open_corpus(DataConfig(max_bytes=200_000), tmp_path)
    assert 100_000 < sum(f.stat().st_size for f in found.files) <= 200_000
    more = open_corpus(DataConfig(max_bytes=400_000), tmp_path)
    assert more.files[: len(found.files)] == found.files
    skipped = {"site-packages", "test", "idlelib"}
    assert not any(skipped & set(f.parts[-3:]) for f in more.files)
