"""The live page stops a trial and then the sweep, through the real command and a real driver."""

from __future__ import annotations

import json
import re
import urllib.request

from results.records.trial import TrialState
from tests.ray.conftest import LONGEST_S, Tune
from tests.waiting import wait_for

SWEEP = """
name: watched
trainable: tests.ray.stepping:Endless
metric: loss
space: {{x: {{uniform: [0, 1]}}}}
fixed: {{end: {end}}}
scheduler: {{name: none}}
budget: {{trials: 3}}
resources: {{workers: 1, concurrency: 1}}
tracking: {{name: none}}
"""


def test_page_stops_a_trial_then_the_sweep(tune: Tune) -> None:
    (tune.cwd / "watched.yaml").write_text(SWEEP.format(end=tune.cwd / "never"))
    run = tune.start("run", "watched.yaml")
    paths = tune.paths("watched")
    wait_for(lambda: paths.trial("t0000").reports.exists(), run)
    server = tune.start("ui", "--live", "watched", "--port", "0", "--no-browser")
    try:
        assert server.stdout is not None
        base, token = re.findall(r"(http://.*)/\?token=(.*)", server.stdout.readline())[0]
        assert "t0000 at the next report" in _stop(base, token, trial="t0000")
        wait_for(lambda: tune.trials("watched")[0].state is TrialState.STOPPED, run)
        wait_for(lambda: paths.trial("t0001").reports.exists(), run)
        assert "all running trials" in _stop(base, token)
        out, err = run.communicate(timeout=LONGEST_S)
    finally:
        server.terminate()
        server.communicate(timeout=LONGEST_S)
    assert run.returncode == 0, f"{out}\n{err}"
    trials = tune.trials("watched")
    assert [t.state for t in trials] == [TrialState.STOPPED] * 2
    assert all(t.reason.startswith("by hand at step") for t in trials)


def _stop(base: str, token: str, **what: str) -> str:
    request = urllib.request.Request(f"{base}/do/stop/watched", json.dumps(what).encode())
    request.add_header("Origin", base)
    request.add_header("X-Tune-Token", token)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["said"])
