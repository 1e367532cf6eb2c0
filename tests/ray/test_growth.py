"""One sweep that people step into: a configuration added, a trial stopped, paused, extended.

Its folder is lost in between, and made again from object storage.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from results.records.trial import TrialRecord, TrialState
from tests.object_store import BUCKET, s3_server
from tests.ray.conftest import Tune, wait_for

ENDLESS = """
import time
from pathlib import Path
from pydantic import Field
from trainables.base import Trainable, TrainableConfig
from trainables.job import Answer

class Config(TrainableConfig):
    x: float = Field(description="what it reports")
    end: str = Field(description="a file: the training ends once it is there")

class Endless(Trainable):
    Config = Config

    def train(self, config, worker):
        found = worker.resume()
        step, over = found.step if found else 0, False
        while not over:
            step, over = step + 1, Path(config.end).exists()
            answer = worker.report(step=step, metrics={"score": config.x}, final=over,
                                   checkpoint=lambda f: (f / "state.txt").write_text("state"))
            if answer is not Answer.CONTINUE:
                return
            time.sleep(0.2)

    def evaluate(self, config, weights, split, cache):
        return {"score": config.x}
"""


@pytest.fixture
def far() -> Iterator[str]:
    """The query of an address in object storage; the cluster was there before the server."""
    with s3_server() as url:
        yield f"?endpoint_override={url.removeprefix('http://')}&scheme=http&region=us-east-1"


def write_sweep(tune: Tune, far: str) -> None:
    (tune.cwd / "endless.py").write_text(ENDLESS)
    (tune.cwd / "endless.yaml").write_text(
        "name: grown\ntrainable: endless.py:Endless\nmetric: score\n"
        f"space: {{x: {{uniform: [0, 1]}}}}\nfixed: {{end: {tune.cwd}/end}}\n"
        "scheduler: {name: none}\nbudget: {trials: 2}\n"
        f"checkpoint: {{every: 1000, mirror: 's3://{BUCKET}/far{far}'}}\n"
        "resources: {concurrency: 1}\ntracking: {name: none}\n"
    )


def gone_on_elsewhere(tune: Tune, far: str) -> TrialRecord:
    """Lose the folder, go on from object storage: what was there is there; gives the last trial."""
    records, curves = tune.trials("grown"), tune.values("grown")
    shutil.rmtree(tune.paths("grown").root)
    tune("resume", f"s3://{BUCKET}/far/grown{far}")
    first, second = tune.trials("grown")
    assert first == records[0]
    assert tune.values("grown")["t0000"] == curves["t0000"]
    assert tune.values("grown")["t0001"][:-1] == curves["t0001"]
    return second


def test_a_sweep_that_people_step_into(tune: Tune, far: str) -> None:
    write_sweep(tune, far)
    paths = tune.paths("grown")
    run = tune.start("run", "endless.yaml")
    wait_for(paths.trial("t0000").reports.exists, run)
    tune("add", "grown", "x=0.25")
    tune("stop", "grown", "t0000")
    wait_for(paths.trial("t0001").reports.exists, run)
    first, second = tune.trials("grown")
    assert first.state is TrialState.STOPPED
    assert first.reason == f"by hand at step {first.end_step}"
    wait_for(lambda: paths.trial("t0000").checkpoint_steps() == [first.end_step], run)
    assert second.params == {"x": 0.25}

    tune("pause", "grown")
    out, err = run.communicate(timeout=200)
    assert run.returncode == 130, f"{out}\n{err}"
    assert tune.trials("grown")[1].state is TrialState.PENDING
    (paused,) = paths.trial("t0001").checkpoint_steps()

    (tune.cwd / "end").touch()
    second = gone_on_elsewhere(tune, far)
    assert (second.state, len(second.attempts)) == (TrialState.COMPLETED, 2)
    assert [p.step for p in tune.curve("grown", "t0001") if p.attempt == 2] == [paused + 1]

    out = tune("resume", "grown", "--trials", "+1")
    assert "changed: budget.trials=3" in out
    assert "ended by budget.trials: 3 trials" in out
    *before, third = tune.trials("grown")
    assert before == [first, second]
    assert third.state is TrialState.COMPLETED
