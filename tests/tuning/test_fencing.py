"""A driver that was frozen and taken for dead, and its orphans, write nothing more."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records import read_reports
from results.tenure import Lost, Owner
from search_spaces.errors import UserError
from tests.tuning.simulate import finish, make_spec, open_run, outcome, train
from tuning.execution.owner import STALE_S, own

DRIVER = """
import socket, sys, time
socket.gethostname = lambda: "elsewhere"
from pathlib import Path
from results.paths import SweepPaths
from tests.tuning.simulate import make_spec, open_run, train
from tuning.execution.owner import own
from tuning.search.schedulers import Decision
root = Path(sys.argv[1])
root.mkdir()
with own(SweepPaths(root).lock) as tenure:
    run = open_run(root, make_spec())
    run.tenure = tenure
    job = run.next_trial()
    train(run, job, upto=2)
    print("ready", flush=True)
    sys.stdin.readline()
    print("superseded" if job.superseded else "valid", flush=True)
    for act in (lambda: train(run, job), run.release, run.next_trial):
        try:
            act()
        except Exception as e:
            print(type(e).__name__, str(e).splitlines()[0], flush=True)
        else:
            print("wrote", flush=True)
"""


def test_a_stale_owner_that_wakes_up_writes_nothing(tmp_path: Path) -> None:
    whole = open_run(tmp_path / "whole", make_spec())
    finish(whole)
    paths = SweepPaths(tmp_path / "s")
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(paths.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as frozen:
        assert frozen.stdout.readline() == "ready\n"
        frozen.send_signal(signal.SIGSTOP)
        os.waitpid(frozen.pid, os.WUNTRACED)
        with pytest.raises(UserError, match=f"driven by process {frozen.pid} on elsewhere"):
            own(paths.lock).__enter__()
        heard = paths.lock.stat().st_mtime - STALE_S - 1
        os.utime(paths.lock, (heard, heard))
        with own(paths.lock) as tenure:
            assert tenure.fence == 2
            run = open_run(paths.root, make_spec())
            run.tenure = tenure
            before = _contents(paths.root)
            frozen.send_signal(signal.SIGCONT)
            said, _ = frozen.communicate("go on\n", timeout=100)
            lines = said.splitlines()
            assert lines[0] == "superseded"
            assert len(lines) == 4
            told = f"taken over by process {os.getpid()} on "
            assert all(s.startswith("Lost ") and told in s for s in lines[1:]), lines
            assert _contents(paths.root) == before
            finish(run)
        assert outcome(run) == outcome(whole)
    assert json.loads(paths.lock.read_bytes())["fence"] == 2


def _contents(root: Path) -> dict[Path, bytes]:
    """All files but the reports, which the worker of an attempt guards (see below)."""
    files = [p for p in root.rglob("*") if p.is_file() and p.name != "reports.jsonl"]
    return {p: p.read_bytes() for p in files}


def test_an_orphan_is_shut_out_before_its_reports_are_read(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", make_spec())
    job = run.next_trial()
    train(run, job, upto=2)
    assert not job.superseded
    again = open_run(tmp_path / "s", make_spec())
    assert job.superseded  # its workers ask before they write
    next_job = again.next_trial()
    assert (next_job.trial_id, next_job.attempt) == (job.trial_id, 2)
    assert not next_job.superseded
    assert [r.step for r in read_reports(job.paths)] == [1, 2]


@pytest.mark.parametrize(
    "damage", [None, b"", b"{", b'{"pid": 1}', b'{"pid":1,"host":2,"fence":"x"}']
)
def test_a_lock_that_is_gone_or_damaged_is_nobodys(tmp_path: Path, damage: bytes | None) -> None:
    lock = tmp_path / "owner.lock"
    with own(lock) as first:
        if damage is None:
            lock.unlink()
        else:
            lock.write_bytes(damage)
        with pytest.raises(Lost, match="without owner"):
            first.check()
        with own(lock) as second:
            second.check()
            assert second.fence == 1  # begins again, but the token is another
            with pytest.raises(Lost):
                first.check()
    assert not Owner(lock, first.token, 1).holds
