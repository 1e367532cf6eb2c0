"""What reaches the disk of a process's output: everything but secrets, also of one that crashes."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from results.storage.log_filter import filtered_log
from tests.waiting import wait_for

SECRET = "canary/7f+31=c0de"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)


def filters(mark: Path) -> list[psutil.Process]:
    """The processes that write the logs of a program which was started by `run_marked`."""
    running = psutil.process_iter(["cmdline", "environ"])
    return [
        p
        for p in running
        if (p.info["environ"] or {}).get("MARK") == str(mark) and "-ISc" in p.info["cmdline"]
    ]


def run_marked(program: str, mark: Path) -> subprocess.Popen[bytes]:
    """Run a program in a process group of its own; `mark` is also its argument."""
    command = [sys.executable, "-c", program, str(mark)]
    environment = {**os.environ, "MARK": str(mark)}
    return subprocess.Popen(command, start_new_session=True, env=environment)


def test_secret_in_two_writes_is_hidden(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    for start in range(1, len(SECRET)):
        with filtered_log(log) as fd:
            os.write(fd, f"first\n{SECRET[:start]}".encode())
            wait_for(lambda: log.read_bytes().endswith(b"first\n"))  # lines are written at once
            os.write(fd, f"{SECRET[start:]} and more".encode())
        assert log.read_text() == "first\n*** and more"
        log.unlink()


def test_secret_anywhere_in_a_long_line_is_hidden(tmp_path: Path) -> None:
    log = tmp_path / "rank_0.log"
    line = b"".join(b"%d " % n + SECRET.encode() * (n % 97 == 0) for n in range(60_000))
    with filtered_log(log) as fd:
        for start in range(0, len(line), 1_009):
            os.write(fd, line[start : start + 1_009])
    assert log.read_bytes() == line.replace(SECRET.encode(), b"***")


CRASH = """
import faulthandler, os, signal, sys
from pathlib import Path
from results.storage.log_filter import filtered_log
with filtered_log(Path(sys.argv[1])) as fd:
    for standard in (1, 2):
        os.dup2(fd, standard)
    faulthandler.enable()
    print("token", os.environ["HF_TOKEN"], flush=True)
    os.write(2, f"last words {os.environ['HF_TOKEN']}".encode())
    if sys.argv[2] == "abort":
        os.abort()
    os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("how", ["9", "11", "abort"])
def test_last_words_of_a_crashed_process_are_in_the_log(tmp_path: Path, how: str) -> None:
    log = tmp_path / "rank_0.log"
    ended = subprocess.run([sys.executable, "-c", CRASH, log, how], check=False)
    assert ended.returncode < 0
    expected = b"token ***\nlast words ***"
    wait_for(lambda: log.read_bytes().startswith(expected))
    if how != "9":
        wait_for(lambda: b"most recent call first" in log.read_bytes())


def test_log_of_a_full_disk_does_not_stop_the_process(tmp_path: Path) -> None:
    with filtered_log(Path("/dev/full")) as fd:
        os.write(fd, b"lost\n")
    with filtered_log(tmp_path / "log") as fd:
        os.write(fd, b"kept\n")
    assert (tmp_path / "log").read_text() == "kept\n"


TWO_LOGS = """
import os, sys
from pathlib import Path
from results.storage.log_filter import filtered_log
for name in ("first", "second"):
    with filtered_log(Path(sys.argv[1]) / name) as fd:
        os.write(fd, f"{os.environ['HF_TOKEN']}\\n".encode())
    while not (Path(sys.argv[1]) / "go").exists():
        pass
"""


def test_filter_that_was_killed_is_replaced(tmp_path: Path) -> None:
    process = run_marked(TWO_LOGS, tmp_path)
    wait_for(lambda: (tmp_path / "first").exists() and (tmp_path / "first").stat().st_size > 0)
    (killed,) = filters(tmp_path)
    killed.send_signal(signal.SIGKILL)
    wait_for(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
    (tmp_path / "go").touch()
    assert process.wait(60) == 0
    assert (tmp_path / "second").read_text() == "***\n"


UNTIL_KILLED = f"""
import signal
{CRASH.partition("    faulthandler")[0]}
    print("up", flush=True)
    signal.pause()
"""


def test_filter_survives_signals_to_the_group_and_ends_with_its_process(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = run_marked(UNTIL_KILLED, log)
    wait_for(lambda: log.exists() and log.read_text() == "up\n")
    (own,) = filters(log)
    own.send_signal(signal.SIGTERM)
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)
    wait_for(lambda: not own.is_running() or own.status() == psutil.STATUS_ZOMBIE)
    assert "KeyboardInterrupt" not in log.read_text()


def test_secret_that_the_code_reads_itself_is_hidden_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filtered_log(tmp_path / "log") as fd:
        monkeypatch.setenv("LATE_TOKEN", "late-canary-1")  # as `load_dotenv` does
        os.write(fd, b"late-canary-1\n")
    assert "late-canary" not in (tmp_path / "log").read_text()


def test_filter_ends_with_a_writer_that_is_killed_before_it_names_the_secrets(
    tmp_path: Path,
) -> None:
    ours, theirs = socket.socketpair()
    program = f"from results.storage.log_filter import main; main({theirs.fileno()})"
    process = subprocess.Popen([sys.executable, "-c", program], pass_fds=[theirs.fileno()])
    theirs.close()
    output, written = os.pipe()
    with open(tmp_path / "log", "wb") as log, open(output, "rb"), open(written, "wb"), ours:
        socket.send_fds(ours, [struct.pack("I", 10)], [output, log.fileno()])
    try:
        assert process.wait(60) == 0
    finally:
        process.kill()
