"""One driver per sweep."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import psutil
import pytest

from results.sweep_folder.lock import (
    STALE_S,
    acquire_lock,
    current_driver,
    wait_for_sign_of_life,
)
from search_spaces.errors import UserError

HOLD = """
import sys, time
from pathlib import Path
from results.sweep_folder.lock import acquire_lock
with acquire_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "owner.lock"


@pytest.fixture
def holder(lock):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def test_lock_refuses_a_second_driver_and_names_the_first(lock, holder):
    assert current_driver(lock).startswith(f"process {holder.pid} on ")
    with (
        pytest.raises(UserError, match=f"driven by process {holder.pid} on "),
        acquire_lock(lock),
    ):
        pass


def test_copy_of_a_running_sweeps_folder_is_driven_by_nobody(lock, holder, tmp_path):
    copy = shutil.copytree(tmp_path, tmp_path.parent / f"{tmp_path.name}-copy") / lock.name
    assert current_driver(copy) is None
    moved = tmp_path.rename(tmp_path.parent / f"{tmp_path.name}-moved") / lock.name
    assert current_driver(moved).startswith(f"process {holder.pid} on ")


def test_driver_is_known_after_the_clock_was_set(lock, holder, monkeypatch):
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: 1e9)
    assert current_driver(lock).startswith(f"process {holder.pid} on ")


def test_lock_after_a_killed_driver_has_a_higher_fencing_number(lock, holder):
    holder.kill()
    holder.wait()
    assert current_driver(lock) is None
    with acquire_lock(lock) as fence:
        assert fence.number == 2


def test_lock_is_free_after_release_and_keeps_its_length(lock):
    lengths = set()
    for expected in range(1, 13):
        with acquire_lock(lock) as fence:
            assert fence.number == expected
            assert current_driver(lock)
            lengths.add(lock.stat().st_size)
        assert current_driver(lock) is None
        lengths.add(lock.stat().st_size)
    assert len(lengths) == 1


@pytest.mark.parametrize(("age_s", "alive"), [(1.0, True), (STALE_S + 1, False)])
def test_driver_on_another_machine_is_alive_by_its_heartbeat(lock, age_s, alive):
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "fence": 4}))
    os.utime(lock, (time.time() - age_s,) * 2)
    assert (current_driver(lock) is not None) == alive


def test_flipped_bit_in_a_released_lock_names_no_driver(lock):
    with acquire_lock(lock):
        pass
    intact = lock.read_bytes()
    for at in range(len(intact)):
        lock.write_bytes(intact[:at] + bytes([intact[at] ^ 1]) + intact[at + 1 :])
        assert current_driver(lock) is None, lock.read_bytes()


def test_fast_clock_of_this_machine_takes_no_sweep_over(lock, monkeypatch):
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "fence": 4}))
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 2 * STALE_S)
    with pytest.raises(UserError, match="driven by process 1 on elsewhere"), acquire_lock(lock):
        pass


def test_containers_of_one_name_are_told_apart(lock):
    """A process id of one means another process in the other, or none."""
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    command = [*alone, sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert current_driver(lock).startswith("process 1 on ")
        other.stdin.close()
    assert current_driver(lock) is None


def test_silent_driver_is_waited_for_and_a_living_one_is_not(lock):
    said = []
    lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "fence": 4}))
    os.utime(lock, (time.time() - STALE_S + 1.5,) * 2)
    wait_for_sign_of_life(lock, said.append)  # until it counts as dead
    assert current_driver(lock) is None
    os.utime(lock)
    beats = threading.Timer(0.5, os.utime, [lock])
    beats.start()
    wait_for_sign_of_life(lock, said.append)
    beats.join()
    assert current_driver(lock) == "process 1 on elsewhere"
    assert len(said) == 2
    wait_for_sign_of_life(lock.with_name("none"), said.append)
    with acquire_lock(lock.with_name("own")):
        wait_for_sign_of_life(lock.with_name("own"), said.append)
    assert len(said) == 2
