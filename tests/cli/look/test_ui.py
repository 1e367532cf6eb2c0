"""`tune ui`, and Optuna's dashboard on the study of a sweep."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.cli.conftest import Tune
from tests.results.tracking.servers import free_port


def test_ui_refuses_sweeps_with_different_servers(tune: Tune) -> None:
    tune.sweep("mine", done=False)
    tune.sweep("other", done=False, tracking={"uri": "http://127.0.0.1:1"})
    assert tune.refused("ui", "mine", "other", "--no-browser") == (
        "mine and other have different tracking servers: open them one by one\n"
    )


@pytest.mark.slow
def test_optuna_dashboard_reads_the_study(tune: Tune) -> None:
    paths = tune.sweep("mine")
    port = free_port()
    where = ["--host", "127.0.0.1", "--port", str(port)]
    main = "from optuna_dashboard._cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", main, str(paths.study), *where],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            [study] = _get(f"http://127.0.0.1:{port}/api/studies", server)["study_summaries"]
        finally:
            server.terminate()
    assert study["study_name"] == "mine"
    assert study["directions"] == ["minimize"]


def _get(url: str, server: subprocess.Popen[bytes]) -> dict[str, list[dict[str, object]]]:
    deadline = time.monotonic() + 100
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                found: dict[str, list[dict[str, object]]] = json.load(answer)
                return found
        except OSError:
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server never answered"
            time.sleep(0.1)
