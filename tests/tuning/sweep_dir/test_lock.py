"""One driver per sweep."""

import json
import os
import subprocess
import sys
import time

import pytest

from search_spaces.errors import UserError
from tuning.controller.sweep_dir.lock import STALE_S, acquire_lock, current_driver

HOLD = """
import sys, time
from pathlib import Path
from tuning.controller.sweep_dir.lock import acquire_lock
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


def test_lock_after_a_killed_driver_has_a_higher_fencing_number(lock, holder):
    holder.kill()
    holder.wait()
    assert current_driver(lock) is None
    with acquire_lock(lock) as fence:
        assert fence.number == 2


def test_lock_is_free_after_release(lock):
    for expected in (1, 2, 3):
        with acquire_lock(lock) as fence:
            assert fence.number == expected
            assert current_driver(lock)
        assert current_driver(lock) is None


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


def test_damaged_lock_is_free(lock):
    lock.write_text('{"host": "x", "pi')
    with acquire_lock(lock) as fence:
        assert fence.number == 1
