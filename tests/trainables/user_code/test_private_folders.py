"""Two trials of user code share no folder that a library could find by a fixed name."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from results.trial_paths import TrialPaths

ENTER = """
import json, os, sys, tempfile
from pathlib import Path
from results.trial_paths import TrialPaths
from trainables.user_code.private_folders import enter_private_folders
enter_private_folders(TrialPaths(Path(sys.argv[1])))
print(json.dumps([os.getcwd(), tempfile.gettempdir(), os.environ["TMPDIR"]]), flush=True)
sys.stdin.read()
"""


def enter(trial: Path, shared: Path) -> subprocess.Popen[str]:
    """A process in its folders, until its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-c", ENTER, str(trial)],
        env={**os.environ, "TMPDIR": str(shared), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def folders(process: subprocess.Popen[str]) -> tuple[Path, Path]:
    """Its working directory and its temporary folder."""
    assert process.stdout is not None
    work, temporary, variable = json.loads(process.stdout.readline())
    assert temporary == variable
    return Path(work), Path(temporary)


def test_two_trials_have_different_folders(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    with enter(tmp_path / "t0000", shared) as first, enter(tmp_path / "t0001", shared) as second:
        (work_1, temporary_1), (work_2, temporary_2) = folders(first), folders(second)
        assert work_1 == TrialPaths(tmp_path / "t0000").work
        assert work_2 == TrialPaths(tmp_path / "t0001").work
        assert temporary_1 != temporary_2
        first.communicate(), second.communicate()


def test_working_directory_is_kept_and_temporary_folder_is_not(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    with enter(tmp_path / "t0000", shared) as living, enter(tmp_path / "t0000", shared) as dead:
        (work, kept), (_, abandoned) = folders(living), folders(dead)
        (work / "last.pt").write_text("weights")
        dead.kill()
        dead.wait()
        for folder in (kept, abandoned):
            os.utime(folder, (time.time() - 3600,) * 2)
        with enter(tmp_path / "t0000", shared) as resumed:
            assert folders(resumed)[0] == work
            resumed.communicate()
        assert (work / "last.pt").read_text() == "weights"
        assert kept.is_dir()
        assert not abandoned.exists()
        living.communicate()


HOLD = """
import os, sys
from pathlib import Path
from results.trial_paths import TrialPaths
from trainables.user_code.private_folders import attempt_lock
with attempt_lock(TrialPaths(Path(sys.argv[1])), int(sys.argv[2])):
    print(None, flush=True)
    sys.stdin.read()
"""


def test_attempt_begins_after_the_processes_of_earlier_ones(tmp_path: Path) -> None:
    def attempt(number: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLD, str(tmp_path / "t0000"), str(number)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def began(process: subprocess.Popen[str], timeout_s: float) -> bool:
        return bool(select.select([process.stdout], [], [], timeout_s)[0])

    old = [attempt(1), attempt(1)]
    assert all(began(rank, 60) for rank in old), "ranks of an attempt do not wait for each other"
    new = [attempt(2), attempt(2)]
    lock = TrialPaths(tmp_path / "t0000").processes(2)
    while not lock.exists():
        time.sleep(0.01)
    for rank in old:
        assert not began(new[0], 0.2)
        assert not began(new[1], 0.0)
        rank.kill()
        rank.communicate()
    assert all(began(rank, 60) for rank in new)
    assert [rank.communicate()[0] for rank in new] == ["None\n"] * 2


def test_name_of_a_run_is_unique_by_sweep_trial_and_attempt(tmp_path: Path) -> None:
    trials = [tmp_path / a / "trials" / b for a in ("llm", "other") for b in ("t0000", "t0001")]
    runs = {TrialPaths(root).ray_train_attempt(n).name for root in trials for n in (1, 2)}
    assert len(runs) == 8


def test_run_folders_of_a_moved_sweep_are_found(tmp_path: Path) -> None:
    old = TrialPaths(tmp_path / "old")
    (old.ray_train / "attempt_0001").mkdir(parents=True)  # as version 0.1 named it
    old.ray_train_attempt(2).mkdir()
    new = TrialPaths(old.root.rename(tmp_path / "new"))
    new.ray_train_attempt(3).mkdir()
    numbers = [folder.name[-4:] for folder in new.ray_train_attempts()]
    assert numbers == ["0001", "0002", "0003"]
