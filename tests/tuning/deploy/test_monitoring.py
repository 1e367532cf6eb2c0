"""`tune monitor`: what it writes, as Prometheus and Alertmanager read it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from search_spaces.errors import UserError
from tuning.cli.app import make_app

TESTS = Path(__file__).with_name("rules_test.yml")


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def monitor(folder: Path, *options: str) -> Path:
    result = CliRunner().invoke(make_app(["monitor", "down"]), ["monitor", str(folder), *options])
    if isinstance(result.exception, UserError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return folder


def checked(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs("promtool")
def test_prometheus_takes_the_files(tmp_path: Path) -> None:
    out = checked("promtool", "check", "config", "prometheus.yml", cwd=monitor(tmp_path))
    assert "8 rules found" in out


@needs("promtool")
def test_each_alert_is_raised_when_it_should_be(tmp_path: Path) -> None:
    shutil.copy(TESTS, monitor(tmp_path))
    checked("promtool", "test", "rules", TESTS.name, cwd=tmp_path)


@needs("amtool")
def test_alertmanager_takes_the_files(tmp_path: Path) -> None:
    url = "https://example.org/hook"
    monitor(tmp_path, "--webhook", url)
    assert "1 receivers" in checked("amtool", "check-config", "alertmanager.yml", cwd=tmp_path)
    assert url in (tmp_path / "alertmanager.yml").read_text()


def test_thresholds_are_the_users(tmp_path: Path) -> None:
    options = ["--temperature", "71", "--temperature-for", "2m", "--utilization", "33"]
    options += ["--utilization-for", "1h", "--stalled", "42s", "--failures", "5", "--budget", "77"]
    options += ["--disk", "3", "--checkpoint", "2h", "--down", "3m", "--interval", "7s"]
    monitor(tmp_path, *options, "--storage", str(tmp_path / "st"))
    rules = (tmp_path / "rules.yml").read_text()
    for text in ("> 71", "for: 120s", "< 33", "[3600s]", "> 42", ">= 5", "> 77", "< 3", "> 7200"):
        assert text in rules
    assert "for: 180s" in rules
    prometheus = (tmp_path / "prometheus.yml").read_text()
    assert f"{tmp_path}/st/.monitoring/*.json" in prometheus
    assert "scrape_interval: 7s" in prometheus


def test_a_wrong_duration_is_a_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--down: must be a duration"):
        monitor(tmp_path, "--down", "soon")


def test_a_folder_that_cannot_be_written_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/m: cannot be written \(Not a directory\)"):
        monitor(tmp_path / "file" / "m")


def test_the_dashboard_has_each_row_and_no_panel_over_another(tmp_path: Path) -> None:
    board = json.loads((monitor(tmp_path) / "dashboard.json").read_text())
    rows = [panel["title"] for panel in board["panels"] if panel["type"] == "row"]
    named = "Progress GPUs System Communication Throughput Checkpoints Sweep Workers"
    assert rows == named.split()
    taken = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
