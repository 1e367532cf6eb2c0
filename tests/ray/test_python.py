"""A sweep from Python, inside a running event loop, which the command line then continues."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.ray.conftest import ENV, LONGEST_S, Tune

SCRIPT = '''
import asyncio, json, sys
import tuning
from trainables import Trainable, TrainableConfig

class Settings(TrainableConfig):
    learning_rate: float = 0.1
    init_seed: int = 0

class Mine(Trainable[Settings]):
    """A class of the main script: workers get it by value."""

    Config = Settings

    def train(self, config, worker):
        for step in range(1, 4):
            worker.report(step=step, metrics={"loss": config.learning_rate / step})

    def evaluate(self, config, checkpoint, split, cache):
        return {}

class Seen(tuning.SweepEvents):
    reports = 0
    def trial_reported(self, record, report):
        self.reports += 1

seen = Seen()

async def notebook():
    sweep = tuning.Sweep(
        Mine, "loss", {"learning_rate": tuning.uniform(0.1, 0.2)}, name="python",
        budget=tuning.Budget(trials=2), tracking={"name": "none"},
        notify={"command": ["cp", "/dev/null", "{event}.sent"], "on": ["end", "budget", "failure"]},
    )
    run = sweep.start(callbacks=[seen], address=sys.argv[1])
    while not run.wait(timeout=0):
        await asyncio.sleep(0.1)  # the loop is free while the sweep runs
    return sweep

sweep = asyncio.run(notebook())
best = sweep.best()
print(json.dumps([len(sweep.trials), seen.reports, best["value"], best["params"]]))
'''


def test_python_begins_what_the_command_line_ends(tmp_path: Path, address: str) -> None:
    tune = Tune(tmp_path, address)
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, script, address],
        cwd=tmp_path,
        env={**os.environ, **ENV},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trials, reports, value, params = json.loads(done.stdout.splitlines()[-1])
    assert (trials, reports) == (2, 6)
    assert value == params["learning_rate"] / 3
    assert sorted(p.name for p in tmp_path.glob("*.sent")) == ["budget.sent", "end.sent"]
    script.unlink()
    tune("resume", "python", "--trials", "+1")
    assert [r.state.value for r in tune.trials("python")] == ["completed"] * 3
