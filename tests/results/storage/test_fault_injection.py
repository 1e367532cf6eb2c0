"""Fault points: all of them are registered, and only the requested one kills."""

import errno
import os
import re
import signal
from pathlib import Path

import pytest

from results.storage.atomic import append_line, write_atomic
from results.storage.fault_injection import POINTS, VARIABLE, fault_point
from search_spaces.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that were sent, without their effect."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    return sent


def test_fault_point_kills_at_the_nth_passing(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    fault_point("driver:asked")
    monkeypatch.setenv(VARIABLE, "driver:asked:2")
    fault_point("driver:asked")
    fault_point("driver:told")
    assert kills == []
    fault_point("driver:asked")
    assert kills == [(os.getpid(), signal.SIGKILL)]


def test_fault_point_fails_from_the_nth_passing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "driver:claimed:2=EROFS")
    fault_point("driver:claimed")
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only") as failed:
            fault_point("driver:claimed")
        assert failed.value.errno == errno.EROFS


def test_fault_point_exists_for_each_file_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    for point in ("trial.json:renamed", "reports.jsonl:durable"):
        monkeypatch.setenv(VARIABLE, point)
        write_atomic(tmp_path / "trial.json", b"{}")
        append_line(tmp_path / "reports.jsonl", "{}")
    assert len(kills) == 2


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("driver:askd", "unknown point 'driver:askd' (did you mean 'driver:asked'?)"),
        ("driver:asked=EFOO", "must end in =hang or a name of errno, got 'driver:asked=EFOO'"),
        ("driver:asked:0", "must be point or point:n with n >= 1, got 'driver:asked:0'"),
    ],
)
def test_fault_point_refuses_an_unknown_name(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, asked)
    with pytest.raises(UserError, match=re.escape(f"{VARIABLE}: {said}")):
        fault_point("driver:told")


def test_fault_points_match_their_registry() -> None:
    files = [p for room in ("results", "trainables", "tuning") for p in (ROOT / room).rglob("*.py")]
    text = "\n".join(p.read_text() for p in files)
    named = set(re.findall(r'fault_point\("([^".]+)"\)', text))
    assert named == {p for p in POINTS if "." not in p}
