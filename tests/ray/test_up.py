"""`tune up`: runs begin earlier, give the same results, and leave nothing behind."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.chaos.cluster import ENV
from tests.ray.conftest import LONGEST_S, Tune
from tests.waiting import wait_for

pytestmark = pytest.mark.cluster

SWEEP = """
name: own
trainable: tests.ray.stepping:Stepping
metric: loss
space: {steps: {choice: [4, 5, 6]}}
scheduler: {name: none}
budget: {trials: 2}
resources: {workers: 1}
tracking: {name: none}
"""

WAITING = "ray::RayTrainWorker"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tune]:
    """A sweep, and a folder for processes that no other test looks at."""
    (tmp_path / "own.yaml").write_text(SWEEP)
    tune = Tune(tmp_path, address="")
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # pytest's is too long
        monkeypatch.setitem(ENV, "RAY_TMPDIR", folder)
        yield tune
        tune("down")
        wait_for(lambda: not processes(folder))


def processes(folder: str) -> list[psutil.Process]:
    """All processes of this test: their environment names its folder."""
    return [p for p in psutil.process_iter(["environ"]) if folder in str(p.info["environ"] or "")]


def waiting() -> set[psutil.Process]:
    """The worker of each of the two lanes."""
    found = {p for p in processes(ENV["RAY_TMPDIR"]) if p.cmdline()[0].startswith(WAITING)}
    assert len(found) == 2
    return found


def first_report_s(tune: Tune, name: str, said: str = "") -> float:
    """Seconds until the first report of a run, which then goes on to its end.

    Args:
        said: why it does not take the prepared driver.
    """
    began = time.monotonic()
    run = tune.start("run", "own.yaml", "--name", name)
    reports = tune.paths(name).trial("t0000").root / "reports.jsonl"
    wait_for(lambda: reports.exists() and reports.stat().st_size > 0, run)
    seconds = time.monotonic() - began
    out, err = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 0, f"{out}\n{err}"
    assert said in err if said else "prepared driver" not in err
    return seconds


def test_runs_begin_earlier_with_equal_results_and_nothing_is_left(
    own: Tune, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    assert "is up" in own("up", "own.yaml")
    ready = waiting()
    assert "no.such.key" in own("run", "own.yaml", "--set", "no.such.key=1", code=2)
    assert own("run", "own.yaml", "--set", "trainable=tests.ray.stepping:No", code=2)
    assert waiting() == ready, "a mistake costs no processes"
    warm = first_report_s(own, "one")
    assert "is up; end it with" in own("up")  # once it is ready
    for process in waiting():
        process.kill()
    first_report_s(own, "two")  # as a cold one
    monkeypatch.setitem(ENV, "ANOTHER", "1")
    cold = first_report_s(own, "cold", "other environment variables (ANOTHER)")
    record_property("first report after, with tune up", warm)
    record_property("first report after, without", cold)
    assert warm < cold
    assert own.values("one") == own.values("two") == own.values("cold") != {}
