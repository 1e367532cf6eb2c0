"""One sweep in which each trial has another real fault; the outcome of each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from results.records.failures import Cause, Remedy
from results.records.trial import Attempt, TrialRecord, TrialState
from tests.chaos.cluster import Cluster
from tests.chaos.invariants import Case, violations
from tests.chaos.pytest_rows import LOST, RECOVERY_S
from tests.chaos.recovery import recoveries
from tests.ray.conftest import Tune

STEPS = 6

KILLED = ["rank_0_is_killed", "rank_1_is_killed", "rank_1_hangs", "rank_1_is_frozen"]
DAMAGED = ["loses_a_checkpoint", "flips_a_bit", "loses_a_manifest"]
SURVIVED = ["is_preempted", "needs_much_memory", *DAMAGED, "loses_a_folder", *KILLED]
BESIDE = ["kills_broker"]
KINDS = ["well", "is_poison", "diverges", *SURVIVED, *BESIDE]


@dataclass
class Sweep:
    """The finished sweep.

    Attributes:
        tune: the program that ran it.
        out: its output.
        trials: trial records by fault.
        before: processes that were in the cluster before.
    """

    tune: Tune
    out: str
    trials: dict[str, TrialRecord]
    before: set[str]

    def curve(self, kind: str) -> list[tuple[int, float]]:
        reports = self.tune.curve("faulty", self.trials[kind].id)
        return [(r.step, r.metrics["loss"]) for r in reports]

    def tried(self, kind: str) -> list[Attempt]:
        """Attempts that began. One that was handed to a lane that was ending did not."""
        attempts = self.trials[kind].attempts
        return [a for a in attempts if a.error is not None or a is attempts[-1]]

    def logs(self, kind: str, index: int) -> list[str]:
        """Output of each rank in the attempt with this index in `tried`."""
        paths = self.tune.paths("faulty").trial(self.trials[kind].id)
        number = self.tried(kind)[index].number
        return [paths.log(number, rank).read_text() for rank in range(2)]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory, joined: Cluster) -> Sweep:
    tune, before = Tune(tmp_path_factory.mktemp("faulty"), joined.address), joined.here()
    (tune.cwd / "faulty.yaml").write_text(
        "name: faulty\ntrainable: tests.ray.faulty:Faulty\nmetric: loss\nmode: max\n"
        f"space: {{kind: {{grid_search: [{', '.join(KINDS)}]}}}}\n"
        f"fixed: {{marks: {tune.cwd}}}\nscheduler: {{name: none}}\n"
        "resources: {workers: 2}\ntracking: {name: none}\ncheckpoint: {every: 1}\n"
        "failure: {max_retries: 1, hang_timeout: 15s}\n"
    )
    out = tune("run", "faulty.yaml")
    return Sweep(tune, out, {r.params["kind"]: r for r in tune.trials("faulty")}, before)


def test_sweep_with_faults_finishes(sweep: Sweep) -> None:
    states = Counter(r.state for r in sweep.trials.values())
    assert states == {TrialState.COMPLETED: len(KINDS) - 2, TrialState.FAILED: 2}
    said = sweep.tune("show", "faulty")
    assert "failures: " in said
    assert "1 shrink" in said


@pytest.mark.parametrize("kind", SURVIVED)
def test_fault_keeps_the_curve_and_costs_one_interval(
    sweep: Sweep, kind: str, record_property: Callable[[str, object], None]
) -> None:
    record = sweep.trials[kind]
    assert sweep.curve(kind) == sweep.curve("well")
    assert len(sweep.tried(kind)) == 2, [a.error for a in record.attempts]
    assert sweep.tried(kind)[1].error is None
    lines = sweep.tune.paths("faulty").trial(record.id).reports.read_text().splitlines()
    lost = len(lines) - STEPS
    assert lost <= 1 + (kind.startswith(("loses", "flips")))
    took = dict(recoveries(sweep.tune.paths("faulty")))
    record_property(LOST, lost)
    record_property(
        RECOVERY_S, max(s for what, s in took.items() if what.endswith(f" of {record.id}"))
    )


@pytest.mark.parametrize("kind", BESIDE)
def test_death_of_the_broker_costs_an_attempt(
    sweep: Sweep, kind: str, record_property: Callable[[str, object], None]
) -> None:
    record, paths = sweep.trials[kind], sweep.tune.paths("faulty")
    assert sweep.curve(kind) == sweep.curve("well")
    assert len(record.attempts) > 1
    assert {a.cause for a in record.attempts} <= {None, Cause.INFRASTRUCTURE}
    lines = paths.trial(record.id).reports.read_text().splitlines()
    assert len(lines) <= STEPS + 1
    record_property(LOST, len(lines) - STEPS)
    took = [s for what, s in recoveries(paths) if what.endswith(f" of {record.id}")]
    record_property(RECOVERY_S, max(took, default=0.0))


@pytest.mark.parametrize(
    ("kind", "remedy", "cause"),
    [
        ("rank_0_is_killed", Remedy.RETRY, Cause.INFRASTRUCTURE),
        ("rank_1_is_killed", Remedy.RETRY, Cause.INFRASTRUCTURE),
        ("rank_1_hangs", Remedy.RETRY, Cause.BUG),
        ("rank_1_is_frozen", Remedy.RETRY, Cause.BUG),
        ("is_preempted", Remedy.RETRY, Cause.PREEMPTION),
        ("is_poison", Remedy.RETRY, Cause.BUG),
        ("needs_much_memory", Remedy.SHRINK, Cause.BUG),
        ("diverges", Remedy.DIVERGED, Cause.BUG),
    ],
)
def test_failure_is_classified(sweep: Sweep, kind: str, remedy: Remedy, cause: Cause) -> None:
    first = sweep.trials[kind].attempts[0]
    assert (first.remedy, first.cause) == (remedy, cause), first.error


def test_hang_writes_stacks_to_the_logs(sweep: Sweep) -> None:
    assert "hung: " in (sweep.trials["rank_1_hangs"].attempts[0].error or "")
    waits, hangs = sweep.logs("rank_1_hangs", 0)
    assert "in rank_1_hangs" in hangs
    assert "in report" in waits or "in barrier" in waits
    assert "Timeout (0:00:15)" in waits + hangs


def test_preempted_trial_leaves_a_checkpoint(sweep: Sweep) -> None:
    assert "left after step 4" in (sweep.trials["is_preempted"].attempts[0].error or "")
    assert any("from step 4" in log for log in sweep.logs("is_preempted", 1))


def test_repeated_error_ends_the_trial(sweep: Sweep) -> None:
    record = sweep.trials["is_poison"]
    assert record.state is TrialState.FAILED
    assert re.fullmatch(
        r"rank \d: ValueError: bad shape \d+ of \*\*\* "
        r"\(stepping.py:\d+, faulty.py:\d+, faulty.py:\d+\) \(the same error 2 times\)",
        record.reason,
    )
    log = sweep.tune.paths("faulty").trial(record.id).log(2, 0)
    assert str(log) in sweep.out
    assert "bad shape" in log.read_text()


def test_exception_keeps_the_process(sweep: Sweep) -> None:
    def pid(kind: str, index: int) -> str:
        return re.findall(r"^pid (\d+)", sweep.logs(kind, index)[1], re.MULTILINE)[0]

    lane = pid("well", 0)
    assert lane == pid("is_poison", 0) == pid("is_poison", 1) == pid("diverges", 0)
    assert pid("rank_1_is_killed", 0) != pid("rank_1_is_killed", 1)


def test_secrets_are_redacted_in_all_files(sweep: Sweep) -> None:
    assert all("token ***" in log for log in sweep.logs("well", 0))
    assert sweep.tune.leaks() == []


def test_diverged_trial_never_wins(sweep: Sweep) -> None:
    record = sweep.trials["diverges"]
    assert record.reason == "diverged: loss is nan"
    steps = sweep.tune.paths("faulty").trial(record.id).checkpoint_steps()
    assert max(steps) < 3
    assert sweep.tune.best("faulty")["trial"] != record.id


def test_smaller_micro_batch_is_recorded(sweep: Sweep) -> None:
    record = sweep.trials["needs_much_memory"]
    assert record.adjusted == {"micro_batch_size": 2}
    assert "can't allocate memory" in (record.attempts[0].error or "")


@pytest.mark.parametrize("kind", DAMAGED)
def test_damaged_checkpoint_is_quarantined(sweep: Sweep, kind: str) -> None:
    assert any("from step 2" in log for log in sweep.logs(kind, 1))
    assert "step_00000003.damaged" in sweep.tune("show", "faulty", sweep.trials[kind].id)


def test_sweep_leaves_no_process_behind(sweep: Sweep, joined: Cluster) -> None:
    paths = sweep.tune.paths("faulty")
    case = Case(paths, None, interval=2, left=lambda: joined.left(sweep.before))
    assert violations(case) == []
