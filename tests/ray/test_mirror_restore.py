"""A sweep folder is lost, restored from object storage, and the sweep continues."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from results.records.trial import TrialState
from tests.object_store import BUCKET, s3_server
from tests.ray.conftest import LONGEST_S, Tune
from tests.waiting import wait_for

SWEEP = """
name: mirrored
trainable: tests.ray.stepping:Endless
metric: loss
space: {{x: {{grid_search: [0.25, 0.5]}}}}
fixed: {{end: {end}}}
scheduler: {{name: none}}
checkpoint: {{every: 1000, mirror: 's3://{bucket}/far{query}'}}
resources: {{concurrency: 1}}
tracking: {{name: none}}
"""


@pytest.fixture
def query() -> Iterator[str]:
    """Query string of an address in object storage, with the server's endpoint."""
    with s3_server() as url:
        yield f"?endpoint_override={url.removeprefix('http://')}&scheme=http&region=us-east-1"


def test_sweep_continues_from_its_mirror(tune: Tune, query: str) -> None:
    paths = tune.paths("mirrored")
    text = SWEEP.format(end=tune.cwd / "end", bucket=BUCKET, query=query)
    (tune.cwd / "mirrored.yaml").write_text(text)
    run = tune.start("run", "mirrored.yaml")
    wait_for(paths.trial("t0000").reports.exists, run)
    tune("stop", "mirrored", "t0000")
    wait_for(paths.trial("t0001").reports.exists, run)
    tune("pause", "mirrored")
    out, err = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 130, f"{out}\n{err}"
    stopped, _ = tune.trials("mirrored")
    curves = tune.values("mirrored")
    (paused,) = paths.trial("t0001").checkpoint_steps()

    shutil.rmtree(paths.root)
    (tune.cwd / "end").touch()
    tune("resume", f"s3://{BUCKET}/far/mirrored{query}")
    first, second = tune.trials("mirrored")
    assert first == stopped
    assert (second.state, len(second.attempts)) == (TrialState.COMPLETED, 2)
    assert tune.values("mirrored")["t0000"] == curves["t0000"]
    assert tune.values("mirrored")["t0001"][:-1] == curves["t0001"]
    assert [p.step for p in tune.curve("mirrored", "t0001") if p.attempt == 2] == [paused + 1]
