"""Ray Jobs without a cluster; `tests/cluster/test_ray_jobs.py` has a real one."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from results.sweep_folder.lock import start_times
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import ROOT
from tests.cluster.slurm import free_ports
from tuning.cluster.session_folder import user_folder
from tuning.submit.engine import make_engine
from tuning.submit.ray_head import Head, running_head

FILE = ROOT / "search_spaces" / "llm.yaml"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No cluster of this user is known."""
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # pytest's is too long
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield


def write_head(born: float) -> Head:
    head = Head(os.getpid(), born, "http://127.0.0.1:8265", "secret", "127.0.0.1:1")
    (user_folder(create=True) / "jobs.json").write_text(json.dumps(asdict(head)))
    return head


def test_cluster_must_be_known() -> None:
    with pytest.raises(UserError, match="no cluster is known; name it by --address"):
        make_engine("ray")
    with pytest.raises(UserError, match="--address file:///etc: must be like http://HOST:8265"):
        make_engine("ray", "file:///etc")


def test_another_program_at_the_address_is_a_line() -> None:
    def serve() -> None:
        with server.accept()[0] as connection:
            connection.recv(1 << 16)
            connection.sendall(b"SSH-2.0-x\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor() as thread:
        thread.submit(serve)
        engine = make_engine("ray", f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(UserError, match=r"no cluster answers at .* \(SSH-2.0-x\)"):
            engine.check([], [])


def test_cluster_of_tune_up_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    head = write_head(psutil.Process().create_time())
    assert running_head() == head
    head = write_head(start_times(os.getpid())[0])
    monkeypatch.setattr(psutil.Process, "create_time", lambda process: 1e9)  # the clock was set
    assert running_head() == head
    assert make_engine("ray").place == head.address
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://head:8265/")
    assert make_engine("ray").place == "http://head:8265"
    write_head(born=1.0)  # the process id was used again
    assert running_head() is None


def test_option_that_ray_does_not_have_is_named() -> None:
    engine, loaded = make_engine("ray", "http://127.0.0.1:1"), load_sweep(FILE)
    with pytest.raises(UserError, match=r"--with num_cpus=1: no option .*entrypoint_num_cpus"):
        engine.check([loaded], ["num_cpus=1"])
    with pytest.raises(UserError, match="--with entrypoint_num_cpus=x: must be a number"):
        engine.check([loaded], ["entrypoint_num_cpus=x"])


def test_jobs_end_with_a_cluster_of_this_machine() -> None:
    [port] = free_ports(1)
    engine = make_engine("ray", f"http://127.0.0.1:{port}")
    assert engine.state("llm-1").over
    with pytest.raises(UserError, match=f"no cluster answers at http://127.0.0.1:{port}"):
        engine.cancel("llm-1")
    with pytest.raises(UserError, match=r"no id of a job: \.\./x"):
        engine.state("../x")


def test_folder_is_the_users_own() -> None:
    assert user_folder(create=True).stat().st_mode & 0o077 == 0
    assert user_folder().parent == Path(os.environ["RAY_TMPDIR"])
