"""Storage that cannot keep records: read-only, or a FUSE mount of object storage."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from results.storage.probe import check_storage
from search_spaces.errors import UserError
from tests.chaos.cluster import ENV

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "search_spaces" / "digits.yaml"
MOUNTED_S = 60.0


def test_local_storage_holds_and_is_left_clean(tmp_path: Path) -> None:
    check_storage(tmp_path / "not" / "there" / "yet")
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_not_taken_for_object_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.write", write)
    with pytest.raises(UserError, match="No space left on device; free some space"):
        check_storage(tmp_path)


@pytest.fixture
def blobs(tmp_path: Path) -> Iterator[Path]:
    """A folder that is mounted as object storage is, by rclone."""
    if shutil.which("rclone") is None or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs rclone and /dev/fuse (apt-get install rclone fuse3)")
    source, mount = tmp_path / "source", tmp_path / "mount"
    source.mkdir()
    mount.mkdir()
    options = ["--config", "/dev/null", "--vfs-cache-mode", "off", "--log-level", "EMERGENCY"]
    with subprocess.Popen(["rclone", "mount", *options, f":local:{source}", str(mount)]) as rclone:
        deadline = time.monotonic() + MOUNTED_S
        while not mount.is_mount():
            assert rclone.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        try:
            yield mount
        finally:
            rclone.terminate()  # it unmounts


@pytest.mark.slow
def test_plan_and_run_refuse_a_mount_of_object_storage(blobs: Path) -> None:
    with pytest.raises(UserError, match="replacing a file at once"):
        check_storage(blobs)
    for command in ("plan", "run"):
        done = _tune(command, str(DIGITS), "--storage", str(blobs))
        assert done.returncode == 2
        assert done.stderr.startswith(f"storage {blobs}: replacing a file at once does not work")
    assert list(blobs.iterdir()) == []


@pytest.mark.slow
def test_read_only_storage_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    make = "from tests.tuning.simulate import *; spec = make_spec(name='mine', tracking={'name':"
    make += " 'none'}); finish(open_run(new_sweep(spec).root, spec))"
    env = {**ENV, "TUNE_STORAGE": str(tmp_path / "sweeps"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, env=env, check=True)
    mounted = 'mount --bind sweeps sweeps && mount -o remount,ro,bind sweeps && exec "$@"'
    read_only = ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-m", "tuning"]
    for command in (
        ["add", "mine", "x=0.5"],
        ["resume", "mine", "--trust", "--trials", "+1"],
        ["ui", "mine", "--trust", "--no-browser", "--port", "0"],
        ["stop", "mine"],
        ["plan", str(DIGITS)],
        ["run", str(DIGITS)],
    ):
        done = subprocess.run(
            [*read_only, *command], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 2, done
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "Read-only file system" in done.stderr


def _tune(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tuning", *args]
    return subprocess.run(command, env=ENV, capture_output=True, text=True)
