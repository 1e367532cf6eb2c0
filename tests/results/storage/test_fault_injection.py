"""Fault points: only those that exist, only when asked for."""

import os
import re
import signal
from pathlib import Path

import pytest

from results.storage import fault_injection
from results.storage.atomic import append_line, write_atomic
from results.storage.fault_injection import POINTS, VARIABLE, fault_point
from search_spaces.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that would have been sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    fault_injection._passed.clear()
    return sent


def test_the_nth_passing_kills(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    fault_point("driver:asked")
    monkeypatch.setenv(VARIABLE, "driver:asked:2")
    fault_point("driver:asked")
    fault_point("driver:told")
    assert kills == []
    fault_point("driver:asked")
    assert kills == [(os.getpid(), signal.SIGKILL)]


def test_files_have_points_of_their_own(
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
        ("driver:asked:0", "must be point or point:n with n >= 1, got 'driver:asked:0'"),
    ],
)
def test_an_unknown_point_is_refused(
    asked: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, asked)
    with pytest.raises(UserError, match=re.escape(f"{VARIABLE}: {said}")):
        fault_point("driver:told")


def test_the_registry_and_the_code_name_the_same_points() -> None:
    files = [p for room in ("results", "trainables", "tuning") for p in (ROOT / room).rglob("*.py")]
    text = "\n".join(p.read_text() for p in files)
    named = set(re.findall(r'fault_point\("([^"]+)"\)', text))
    assert named == {p for p in POINTS if "." not in p}
