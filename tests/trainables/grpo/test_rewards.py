"""Rewards by name and of a script, and the process that runs what a model wrote."""

import os
import sys
import time
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from trainables.grpo.rewards import Completion, RewardConfig, problem_of, rewards_of
from trainables.grpo.sandbox import passes


def reward(name: str, completion: str, answer: str = "", **settings: object) -> float:
    config = RewardConfig.model_validate(settings)
    return rewards_of([Completion("question", answer, completion)], {name: config})[name][0]


@pytest.mark.parametrize(
    ("name", "completion", "answer", "settings", "expected"),
    [
        ("exact", " 42\n", "42", {}, 1),
        ("exact", "43", "42", {}, 0),
        ("exact", "so <a>42</a>", "42", {"pattern": "<a>(.*)</a>"}, 1),
        ("exact", "so 42", "42", {"pattern": "<a>(.*)</a>"}, 0),
        ("equation", "3*(8-5)", "(8-5)*3", {}, 1),
        ("equation", "9", "(8-5)*3", {}, 0),
        ("equation", "3*8-5*3", "(8-5)*3", {}, 0),
        ("equation", "8-5-3", "(8-5)*3", {}, 0),
        ("equation", "8/(5-5)", "8*5-5", {}, 0),
        ("equation", "__import__('os')", "1+1", {}, 0),
        ("equation", "9**9**9", "9*9*9", {}, 0),
        ("words", "Mia had a hat. She met a fox.", "Mia fox kite hat", {}, 0.75),
        ("words", "foxes", "fox", {}, 0),
        ("format", "x <a>1</a>", "", {"pattern": "<a>.*</a>"}, 1),
        ("format", "x", "", {"pattern": "<a>.*</a>"}, 0),
        ("length", "abcd", "", {"most": 4}, 1),
        ("length", "abcdef", "", {"most": 4}, 0.5),
        ("length", "abcdefghi", "", {"most": 4}, 0),
        ("parses", "x = 1", "", {}, 1),
        ("parses", "x = = 1", "", {}, 0),
        ("parses", "", "", {}, 0),
        ("tests", "def f(x): return x + 1", "assert f(1) == 2", {}, 1),
        ("tests", "def f(x): return x", "assert f(1) == 2", {}, 0),
    ],
)
def test_reward(
    name: str, completion: str, answer: str, settings: dict[str, object], expected: float
) -> None:
    assert reward(name, completion, answer, **settings) == expected


def test_function_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "def score(question, answer, completion):\n    return len(completion) / len(answer)\n"
        "def wrong(**row):\n    return float('nan')\n"
        "def of_trl(completions, **kwargs):\n    return [1.0 for _ in completions]\n"
        "largest = max\n"
    )
    assert reward(f"{script}:score", "ab", "abcd") == 0.5
    with pytest.raises(UserError, match="must return a finite number, got nan"):
        reward(f"{script}:wrong", "ab")
    with pytest.raises(UserError, match="missing a required argument: 'completions'"):
        reward(f"{script}:of_trl", "ab")
    with pytest.raises(UserError, match="no signature found for builtin"):
        reward(f"{script}:largest", "ab")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("exakt", {}, "unknown reward (did you mean 'exact'?)"),
        ("format", {}, "needs a pattern"),
        ("format", {"pattern": "("}, "not a regular expression"),
        ("exact", {"pattern": "abc"}, "has no group"),
    ],
)
def test_mistakes(name: str, settings: dict[str, object], message: str) -> None:
    found = problem_of(name, RewardConfig.model_validate(settings))
    assert found is not None
    assert message in found


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import os; os._exit(0)",
        "raise SystemExit(0)",
        "x = bytearray(1 << 31)",
        "import socket; socket.create_connection(('127.0.0.1', PORT), timeout=1)",
        "open('big', 'wb').write(bytes(1 << 22))",
        "import sys; print('x' * (1 << 22)); sys.exit(1)",
    ],
)
def test_sandbox_refuses(code: str) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connects = "socket" in code
        if connects and not _has_own_network():
            pytest.skip("this kernel gives an unprivileged process no network of its own")
        assert not passes(code.replace("PORT", str(port)), timeout_s=2.0, memory_mib=256)


def test_sandbox_kills_what_the_code_started(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    code = (
        "import os, time\n"
        f"pid = os.fork()\nif pid == 0:\n    open({str(marker)!r}, 'w').write(str(os.getpid()))\n"
        "    time.sleep(600)\ntime.sleep(600)\n"
    )
    assert not passes(code, timeout_s=1.5, memory_mib=256)
    if not marker.exists():
        return  # the limit of processes refused the fork
    pid, deadline = int(marker.read_text()), time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_sandbox_has_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    assert passes("import os; assert 'SECRET' not in os.environ", 5.0, 256)
    assert passes("import os; assert os.listdir() == []", 5.0, 256)


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def _has_own_network() -> bool:
    if sys.platform != "linux":
        return False
    pid = os.fork()
    if pid == 0:
        import ctypes

        os._exit(0 if ctypes.CDLL(None).unshare(0x10000000 | 0x40000000) == 0 else 1)
    return os.waitpid(pid, 0)[1] == 0
