"""Sessions that start a Ray cluster of their own: signals to the process group, a failed start."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.chaos.cluster import ENV
from tests.ray.conftest import LONGEST_S, Tune
from tests.waiting import wait_for

SWEEP = """
name: own
trainable: tests.ray.stepping:Endless
metric: loss
space: {x: {uniform: [0, 1]}}
fixed: {end: never}
scheduler: {name: none}
budget: {trials: 1}
resources: {workers: 1}
checkpoint: {every: 3}
tracking: {name: none}
"""


@pytest.fixture
def own(tmp_path: Path) -> Tune:
    """A sweep whose sessions start a cluster."""
    (tmp_path / "own.yaml").write_text(SWEEP)
    return Tune(tmp_path, address="")


def test_sigterm_to_the_process_group_saves_and_stops(own: Tune) -> None:
    """GNU `timeout` signals its child, then the group: the driver gets the signal twice."""
    wrapper = ("timeout", "--signal=TERM", f"{LONGEST_S:.0f}")
    run = own.start("run", "own.yaml", wrapper=wrapper)
    trial = own.paths("own").trial("t0000")
    wait_for(lambda: bool(trial.checkpoint_steps()), run)
    below = psutil.Process(run.pid).children(recursive=True)
    run.terminate()  # `timeout` passes it on as it does after its time
    out, err = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 130, f"{out}\n{err}"
    assert "continue with: tune resume own" in out
    assert trial.checkpoint_steps()[-1] == own.curve("own", "t0000")[-1].step
    assert psutil.wait_procs(below, timeout=LONGEST_S)[1] == []


def test_ray_that_does_not_start_is_one_line(own: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENV, "RAY_GCS_SERVER_PORT", "1x")
    err = own("run", "own.yaml", code=4)
    assert "trying once more" in err
    last = err.splitlines()[-1]
    assert last.startswith("Ray does not start on this machine: ")
    assert last.endswith("and try again")
    assert "Traceback" not in err
    assert not own.paths("own").root.exists()
