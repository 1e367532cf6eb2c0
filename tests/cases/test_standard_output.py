"""Errors of stdout are not those of the storage; only a running sweep goes on without it."""

import os
import subprocess
import sys
from typing import Any

import pytest

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PRINTS = """
import sys
from search_spaces.errors import UserError
from tuning.cli.output import guarded_output
try:
    with guarded_output(sys.argv[1]):
        for _ in range(3):
            try:
                sys.stdout.write("gr\\xf6\\xdfe" * 10_000)
                sys.stdout.flush()
            except UserError:
                pass  # as some libraries do
    sys.stderr.write("ended")
except UserError as e:
    sys.stderr.write(str(e))
"""


def python(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *args], text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("args", [("--version",), ("schema",), ("ls", "--storage", "/tmp")])
def test_command_names_a_full_stdout(args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as device:
        done = python("-m", "tuning", *args, stdout=device)
    assert done.returncode == 2
    assert done.stderr.startswith("stdout: No space left on device")


def test_command_ends_silently_when_its_reader_has_left() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = python("-m", "tuning", "schema", stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("command", ["run", "resume"])
def test_session_goes_on_without_stdout(command: str) -> None:
    with open("/dev/full", "w") as device:
        done = python("-c", PRINTS, command, stdout=device)
    assert done.stderr.count("the sweep goes on") == 1
    assert done.stderr.endswith("ended")
    with open("/dev/full", "w") as device:  # stderr goes to the same place
        assert (
            subprocess.run(
                [sys.executable, "-c", PRINTS, command], stdout=device, stderr=device
            ).returncode
            == 0
        )


def test_other_commands_end_although_a_library_drops_the_error() -> None:
    with open("/dev/full", "w") as device:
        done = python("-c", PRINTS, "best", stdout=device)
    assert done.stderr.startswith("stdout: No space left on device")


def test_ascii_terminal_gets_escapes() -> None:
    done = python("-c", PRINTS, "ls", env={**os.environ, **ASCII}, stdout=subprocess.PIPE)
    assert done.stdout.startswith("gr\\xf6\\xdfe")
