"""Which Ray clusters are joined without a token."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from tuning.cluster.connection import (
    accepts_any_token,
    check_cluster_auth,
    require_answer,
)
from tuning.cluster.ray_processes import RayStartError


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    "address",
    [None, "auto", "127.0.0.1:6379", "[::1]:6379", socket.gethostname()],
)
def test_cluster_on_this_machine_needs_no_token(address: str | None) -> None:
    check_cluster_auth(address, insecure=False)


def test_cluster_that_is_not_reached_needs_a_token() -> None:
    with pytest.raises(UserError, match="with its token only"):
        check_cluster_auth("192.0.2.7:6379", insecure=False)


def test_cluster_on_another_machine_needs_a_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = "0.0.0.0:6379"
    with pytest.raises(UserError, match="with its token only"):
        check_cluster_auth(address, insecure=False)
    check_cluster_auth(address, insecure=True)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(UserError, match="--insecure"):
        check_cluster_auth(None, insecure=False)
    with monkeypatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", "0123456789abcdef")
        check_cluster_auth(address, insecure=False)
        patch.setenv("RAY_AUTH_MODE", "disabled")
        with pytest.raises(UserError, match="set RAY_AUTH_TOKEN"):
            check_cluster_auth(address, insecure=False)
    token = tmp_path / ".ray" / "auth_token"  # Ray makes it for a local cluster
    token.parent.mkdir()
    token.write_text("0123456789abcdef")
    with pytest.raises(UserError, match="with its token only"):
        check_cluster_auth(address, insecure=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    check_cluster_auth(address, insecure=False)


@contextmanager
def control_store(folder: Path, **environment: str) -> Iterator[str]:
    """Ray's control store alone, at a free port of this machine."""
    program = Path(str(files("ray"))) / "core/src/ray/gcs/gcs_server"
    where = [f"--log_dir={folder}", f"--session-dir={folder}", "--node-ip-address=127.0.0.1"]
    names = ["--session-name=s", f"--node-id={'ab' * 28}", "--config_list=e30="]
    ports = ["--gcs_server_port=0", "--metrics-agent-port=0"]
    with subprocess.Popen(
        [program, *where, *names, *ports],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            deadline = time.monotonic() + 60
            while not (port := "".join(p.read_text() for p in folder.glob("gcs_server_port*"))):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.mark.parametrize("token", [None, "ab" * 16])
def test_cluster_that_needs_no_token_is_recognised(tmp_path: Path, token: str | None) -> None:
    needs = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {}
    with control_store(tmp_path, **{"RAY_AUTH_MODE": "disabled", **needs}) as address:
        assert accepts_any_token(address) is (token is None)
    assert not accepts_any_token(address)  # it has ended


def test_ray_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--address auto"):
        check_cluster_auth("ray://localhost:10001", insecure=True)
    monkeypatch.setenv("RAY_ADDRESS", "ray://localhost:10001")
    with pytest.raises(UserError, match="RAY_ADDRESS=ray://"):
        check_cluster_auth(None, insecure=True)


def test_cluster_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with control_store(tmp_path) as address:
        require_answer(address)
    with pytest.raises(RayStartError, match="refused"):  # it has ended
        require_answer(address)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(RayStartError, match=r"RAY_ADDRESS=.* nothing"):
            require_answer(None)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
def test_machine_that_does_not_reach_itself_is_named(tmp_path: Path) -> None:
    script = "from tuning.cluster.ray_processes import local_cluster as start\n"
    script += f"from pathlib import Path\nwith start(Path({str(tmp_path)!r}), print): pass"
    command = ["unshare", "--net", sys.executable, "-c", script]  # its loopback interface is down
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "RayStartError" in done.stderr
    assert "ip link set lo up" in done.stderr
