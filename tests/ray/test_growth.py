"""One sweep that people step into: a configuration added, a trial stopped, paused, extended."""

from __future__ import annotations

from results.records import TrialState
from tests.ray.conftest import Tune, wait_for

ENDLESS = """
import time
from pathlib import Path
from pydantic import Field
from trainables.base import Trainable, TrainableConfig
from trainables.worker import Answer

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


def test_a_sweep_that_people_step_into(tune: Tune) -> None:
    (tune.cwd / "endless.py").write_text(ENDLESS)
    (tune.cwd / "endless.yaml").write_text(
        "name: grown\ntrainable: endless.py:Endless\nmetric: score\n"
        f"space: {{x: {{uniform: [0, 1]}}}}\nfixed: {{end: {tune.cwd}/end}}\n"
        "scheduler: {name: none}\nbudget: {trials: 2}\ncheckpoint: {every: 1000}\n"
        "resources: {concurrency: 1}\ntracking: {name: none}\n"
    )
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
    tune("resume", "grown")
    second = tune.trials("grown")[1]
    assert (second.state, len(second.attempts)) == (TrialState.COMPLETED, 2)
    assert [p.step for p in tune.curve("grown", "t0001") if p.attempt == 2] == [paused + 1]

    out = tune("resume", "grown", "--trials", "+1")
    assert "changed: budget.trials=3" in out
    assert "ended by budget.trials: 3 trials" in out
    *before, third = tune.trials("grown")
    assert before == [first, second]
    assert third.state is TrialState.COMPLETED
