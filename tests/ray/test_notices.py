"""A cloud takes a machine away: all ranks of its trial save in time, and go on elsewhere."""

from __future__ import annotations

from pathlib import Path

from results.records.failures import Cause
from tests.metadata_server import metadata_server
from tests.ray.conftest import LONGEST_S, Tune, wait_for
from tests.ray.machines import machines

SWEEP = """
name: noticed
trainable: tests.ray.stepping:Endless
metric: loss
space: {{x: {{grid_search: [0]}}}}
fixed: {{end: {end}}}
scheduler: {{name: none}}
resources: {{workers: 2}}
checkpoint: {{every: 1000}}
failure: {{preemption_notices: aws}}
tracking: {{name: none}}
"""


def test_no_step_is_lost_after_a_notice(tmp_path: Path) -> None:
    end = tmp_path / "end"
    (tmp_path / "noticed.yaml").write_text(SWEEP.format(end=end))
    with metadata_server() as cloud, machines() as cluster:
        cluster.add(AWS_EC2_METADATA_SERVICE_ENDPOINT=cloud.url)
        tune = Tune(tmp_path, cluster.address)
        sweep = tune.start("run", "noticed.yaml")
        curve = tune.paths("noticed").trial("t0000").reports
        wait_for(lambda: curve.exists() and len(tune.curve("noticed", "t0000")) >= 3, sweep)
        cluster.add()
        cloud.is_over = True
        wait_for(lambda: tune.curve("noticed", "t0000")[-1].attempt > 1, sweep)
        end.touch()
        out, err = sweep.communicate(timeout=LONGEST_S)
        assert sweep.returncode == 0, f"{out}\n{err}"

    [trial] = tune.trials("noticed")
    first, *others = trial.attempts
    assert first.cause is Cause.PREEMPTION
    assert "machine is taken away" in str(first.error)
    assert not any(attempt.error for attempt in others)
    steps = [report.step for report in tune.curve("noticed", "t0000")]
    assert steps == list(range(1, len(steps) + 1)), "none is lost, none is done twice"
