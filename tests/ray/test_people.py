"""One sweep that people stop in every way that there is."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from results.paths import SweepPaths
from results.records.trial import Report, TrialRecord, TrialState
from tests.chaos.cluster import CANARY
from tests.chaos.invariants import Case, violations
from tests.chaos.recovery import raw_reports
from tests.ray.conftest import LONGEST_S, Tune, end, wait_for
from tests.ray.stepping import STEP_S

SWEEP = """
name: people
trainable: tests.ray.stepping:Endless
metric: loss
space: {{x: {{uniform: [0, 1]}}}}
fixed: {{end: {end}}}
scheduler: {{name: none}}
budget: {{trials: 2}}
resources: {{workers: 2}}
checkpoint: {{every: 3}}
tracking: {{name: none}}
"""
IN_FLIGHT = 2
"""Reports at most that come after a request: one was on its way, the next one is answered."""
Note = Callable[[str, object], None]


@dataclass
class People:
    """Who steps into the sweep.

    Attributes:
        tune: their program.
        left: step of the second trial's newest checkpoint, after each session that they ended.
    """

    tune: Tune
    left: list[int] = field(default_factory=list)

    @property
    def paths(self) -> SweepPaths:
        return self.tune.paths("people")

    def curve(self, trial: str) -> list[Report]:
        return self.tune.curve("people", trial)

    def resumed(self, attempt: int) -> subprocess.Popen[str]:
        """A new session, in which the second trial has reported."""
        run = self.tune.start("resume", "people")
        wait_for(lambda: self.curve("t0001")[-1].attempt == attempt, run)
        return run

    def ended(self) -> None:
        """A session was ended while the second trial ran, which is left to be gone on with."""
        assert self.tune.trials("people")[1].state is TrialState.PENDING
        self.left.append(self.paths.trial("t0001").checkpoint_steps()[-1])

    def stop_a_trial(self, run: subprocess.Popen[str], note: Note) -> TrialRecord:
        self.tune("add", "people", "x=0.25")
        self.tune("stop", "people", "t0000")
        asked = time.time()
        wait_for(self.paths.trial("t0001").reports.exists, run)
        stopped, added = self.tune.trials("people")
        assert stopped.state is TrialState.STOPPED
        assert stopped.reason == f"by hand at step {stopped.end_step}"
        assert self.paths.trial("t0000").checkpoint_steps()[-1] == stopped.end_step
        assert added.params == {"x": 0.25}
        assert sum(r.time > asked for r in self.curve("t0000")) <= IN_FLIGHT
        took = self.curve("t0001")[0].time - self.curve("t0000")[-1].time
        note("lane_free_s", took - STEP_S)
        assert took < 60.0
        return stopped

    def pause(self, run: subprocess.Popen[str]) -> None:
        self.tune("pause", "people")
        asked = time.time()
        out, err = run.communicate(timeout=LONGEST_S)
        assert run.returncode == 130, f"{out}\n{err}"
        self.ended()
        assert sum(r.time > asked for r in self.curve("t0001")) <= IN_FLIGHT
        assert self.left[-1] == self.curve("t0001")[-1].step

    def terminate(self, run: subprocess.Popen[str]) -> str:
        """As a cluster's manager would; gives what was said."""
        code, said = end(run, signal.SIGTERM)
        assert code == 130
        assert "go on with: tune resume people" in said
        self.ended()
        assert self.left[-1] == self.curve("t0001")[-1].step
        return said

    def interrupt_twice(self, run: subprocess.Popen[str]) -> None:
        """Twice ends it at once; what is on disk is whole all the same."""
        run.send_signal(signal.SIGINT)
        code, _ = end(run, signal.SIGINT)
        assert code == 130
        self.left.append(self.paths.trial("t0001").checkpoint_steps()[-1])


def test_a_sweep_that_people_stop_in_every_way(
    tune: Tune, record_property: Note, survived: Callable[[SweepPaths], None]
) -> None:
    enough, people = tune.cwd / "end", People(tune)
    (tune.cwd / "people.yaml").write_text(SWEEP.format(end=enough))
    run = tune.start("run", "people.yaml")
    wait_for(lambda: bool(people.paths.trial("t0000").checkpoint_steps()), run)
    assert "driven by process" in tune("resume", "people", code=2)
    assert [p.pid for p in psutil.process_iter() if CANARY in " ".join(_command(p))] == []
    stopped = people.stop_a_trial(run, record_property)
    people.pause(run)
    said = people.terminate(people.resumed(attempt=2))
    people.interrupt_twice(people.resumed(attempt=3))

    enough.touch()
    out = tune("resume", "people", "--trials", "+1")
    assert "changed: budget.trials=3" in out
    assert "ended by budget.trials: 3 trials" in out
    unchanged, longest, third = tune.trials("people")
    assert unchanged == stopped
    assert (longest.state, len(longest.attempts)) == (TrialState.COMPLETED, 4)
    assert third.state is TrialState.COMPLETED
    told = raw_reports(people.paths, longest)
    began = [next(p.step for p in told if p.attempt == attempt) for attempt in (2, 3, 4)]
    assert began == [step + 1 for step in people.left]
    assert violations(Case(people.paths, None, interval=3, said=(said,))) == []
    survived(people.paths)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []
