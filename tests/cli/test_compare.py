"""`tune report` and `tune compare`, as a person calls them; and Optuna's own dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.cli.conftest import Tune
from tests.results.servers import free_port


def test_report(tune: Tune) -> None:
    paths = tune.sweep("mine", budget={"trials": 12})
    assert tune("report", "mine").out == f"page {paths.report}\n"
    winner = json.loads(tune("best", "mine", "--json").out)["trial"]
    assert f"Winner: {winner}, loss" in paths.report.read_text()
    assert tune("report", "mine", "--html", "own.html").out == f"page {tune.cwd / 'own.html'}\n"
    assert (tune.cwd / "own.html").read_text().count("<h2>") == 7
    (tune.cwd / "file").write_text("")
    said = tune.refused("report", "mine", "--html", "file/r.html")
    assert said.startswith("file/r.html: cannot be written (")


def test_compare(tune: Tune) -> None:
    tune.sweep("mine")
    tune.sweep("other", budget={"trials": 9})
    tune.sweep("upwards", mode="max", done=False)
    said = tune("compare", "mine", "other")
    assert [words[:2] for words in said.lines[1:]] == [["mine", "6"], ["other", "9"]]
    best = json.loads(tune("best", "other", "--json").out)
    assert said.lines[2][2:4] == [best["trial"], f"{best['value']:.5g}"]
    said = tune("compare", "mine", "other", "--html", "both.html")
    assert said.out.endswith(f"page {tune.cwd / 'both.html'}\n")
    assert tune.refused("compare", "mine") == (
        "tune compare takes two sweeps or more, got mine alone\n"
    )
    assert "only sweeps of the same metrics and modes" in tune.refused("compare", "mine", "upwards")


def test_ui_opens_sweeps_of_one_place(tune: Tune) -> None:
    tune.sweep("mine", done=False)
    tune.sweep("other", done=False, tracking={"uri": "http://127.0.0.1:1"})
    assert tune.refused("ui", "mine", "other", "--no-browser") == (
        "mine and other are tracked in different places: open them one by one\n"
    )


@pytest.mark.slow
def test_optuna_dashboard_opens_the_study_as_it_is(tune: Tune) -> None:
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
