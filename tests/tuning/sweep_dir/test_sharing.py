"""A storage of several people: its files are their group's; any other storage is private."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.storage.sharing import use_modes_of
from results.sweep_folder.lock import acquire_lock
from tests.results.written import write_checkpoint
from tests.tuning.simulate import make_spec, new_sweep, open_run


@pytest.fixture(autouse=True)
def private_again(tmp_path: Path) -> Iterator[None]:
    yield
    use_modes_of(tmp_path)


def written(storage: Path) -> SweepPaths:
    """A sweep with records, a log and a checkpoint, and the lock of its driver."""
    paths = new_sweep(make_spec(), storage)
    with acquire_lock(paths.lock):
        open_run(paths.root).next_trial()
        write_checkpoint(paths.trial("t0000"), 1, {"model.safetensors": "w"})
    return paths


@pytest.mark.parametrize("shared", [True, False])
def test_files_have_the_modes_of_their_storage(tmp_path: Path, shared: bool) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    storage.chmod(0o2770 if shared else 0o755)
    group = 65534 if os.geteuid() == 0 else os.getegid()
    os.chown(storage, -1, group)
    if shared:
        storage.chmod(0o2770)  # chown takes the bit away
    paths = written(storage)
    files = [paths.root, *paths.root.rglob("*")]
    assert len(files) > 8
    for file in files:
        found = file.stat()
        mode = stat.S_IMODE(found.st_mode)
        assert not mode & stat.S_IRWXO, file
        assert bool(mode & stat.S_IRGRP) is bool(mode & stat.S_IWGRP) is shared, file
        assert not shared or found.st_gid == group, file
