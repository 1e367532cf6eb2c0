"""`tune add`, `stop`, `pause`, SIGTERM and SIGINT, in the sessions of one sweep."""

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
from tests.ray.conftest import LONGEST_S, Tune, end
from tests.ray.stepping import STEP_S
from tests.waiting import wait_for

SWEEP = """
name: stopped
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
"""Most reports after a request: one was on its way, and the next one is answered."""
Note = Callable[[str, object], None]


@dataclass
class Sessions:
    """The sessions of the sweep.

    Attributes:
        tune: the program.
        left: step of the second trial's newest checkpoint, after each session.
    """

    tune: Tune
    left: list[int] = field(default_factory=list)

    @property
    def paths(self) -> SweepPaths:
        return self.tune.paths("stopped")

    def curve(self, trial: str) -> list[Report]:
        return self.tune.curve("stopped", trial)

    def resumed(self, attempt: int) -> subprocess.Popen[str]:
        """Start a session and wait until the second trial reports in it."""
        run = self.tune.start("resume", "stopped")
        wait_for(lambda: self.curve("t0001")[-1].attempt == attempt, run)
        return run

    def ended(self) -> None:
        """A session ended while the second trial ran. Check that the trial is left for a resume."""
        assert self.tune.trials("stopped")[1].state is TrialState.PENDING
        self.left.append(self.paths.trial("t0001").checkpoint_steps()[-1])

    def stop_a_trial(self, run: subprocess.Popen[str], note: Note) -> TrialRecord:
        self.tune("add", "stopped", "x=0.25")
        self.tune("stop", "stopped", "t0000")
        asked = time.time()
        wait_for(self.paths.trial("t0001").reports.exists, run)
        stopped, added = self.tune.trials("stopped")
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
        self.tune("pause", "stopped")
        asked = time.time()
        out, err = run.communicate(timeout=LONGEST_S)
        assert run.returncode == 130, f"{out}\n{err}"
        self.ended()
        assert sum(r.time > asked for r in self.curve("t0001")) <= IN_FLIGHT
        assert self.left[-1] == self.curve("t0001")[-1].step

    def terminate(self, run: subprocess.Popen[str]) -> str:
        """End a session by SIGTERM; return its output."""
        code, said = end(run, signal.SIGTERM)
        assert code == 130
        assert "continue with: tune resume stopped" in said
        self.ended()
        assert self.left[-1] == self.curve("t0001")[-1].step
        return said

    def interrupt_twice(self, run: subprocess.Popen[str]) -> None:
        """End a session at once by a second SIGINT."""
        run.send_signal(signal.SIGINT)
        code, _ = end(run, signal.SIGINT)
        assert code == 130
        self.left.append(self.paths.trial("t0001").checkpoint_steps()[-1])


def test_sweep_resumes_after_every_kind_of_stop(
    tune: Tune, record_property: Note, survived: Callable[[SweepPaths], None]
) -> None:
    enough, sessions = tune.cwd / "end", Sessions(tune)
    (tune.cwd / "stopped.yaml").write_text(SWEEP.format(end=enough))
    run = tune.start("run", "stopped.yaml")
    wait_for(lambda: bool(sessions.paths.trial("t0000").checkpoint_steps()), run)
    assert "driven by process" in tune("resume", "stopped", code=2)
    assert [p.pid for p in psutil.process_iter() if CANARY in " ".join(_command(p))] == []
    stopped = sessions.stop_a_trial(run, record_property)
    sessions.pause(run)
    said = sessions.terminate(sessions.resumed(attempt=2))
    sessions.interrupt_twice(sessions.resumed(attempt=3))

    enough.touch()
    out = tune("resume", "stopped", "--trials", "+1")
    assert "changed: budget.trials=3" in out
    assert "ended by budget.trials: 3 trials" in out
    unchanged, longest, third = tune.trials("stopped")
    assert unchanged == stopped
    assert (longest.state, len(longest.attempts)) == (TrialState.COMPLETED, 4)
    assert third.state is TrialState.COMPLETED
    told = raw_reports(sessions.paths, longest)
    began = [next(p.step for p in told if p.attempt == attempt) for attempt in (2, 3, 4)]
    assert began == [step + 1 for step in sessions.left]
    assert violations(Case(sessions.paths, None, interval=3, said=(said,))) == []
    survived(sessions.paths)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []
