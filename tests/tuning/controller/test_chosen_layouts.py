"""`resources.layout: auto`: each attempt has a layout of its own, which its record says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from results.records.failures import Remedy
from results.records.trial import TrialState, read_trial
from search_spaces.errors import UserError
from search_spaces.layout import Layout
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.spec.sweep import SweepSpec
from tests.tuning.fake_pool import Sweep
from tests.tuning.simulate import make_spec, next_job, open_run
from trainables.job import Answer
from tuning.controller.preflight.checks import preflight
from tuning.controller.resources.placement import Node
from tuning.controller.trial_jobs import make_rerun_job

SMALL, LARGE = 32, 256
FIXED = {"num_layers": 2, "num_heads": 4, "sequence_length": 32, "batch_size": 8}
OOM = "rank 0: OutOfMemoryError: CUDA out of memory"
MEMORY = 0.03
"""GiB in which the large model fits on two ranks that share it, and the small one on each."""


def spec_of(width: int, workers: object = 2, **more: Any) -> SweepSpec:
    return make_spec(
        trainable="causal_lm",
        metric="eval_loss",
        space={"hidden_size": {"grid_search": [width] if isinstance(width, int) else width}},
        fixed=FIXED,
        search={"name": "grid"},
        scheduler={"name": "none"},
        budget={"trials": 4},
        resources={"workers": workers, "layout": "auto", "memory_per_worker": MEMORY, **more},
    )


def chosen(root: Path, width: int, **more: Any) -> Layout:
    job = next_job(open_run(root, spec_of(width, **more)))
    return job.layout_on(job.workers)


def test_each_trial_has_the_first_layout_that_fits(tmp_path: Path) -> None:
    assert chosen(tmp_path / "small", SMALL) == Layout(dp_replicate=2)
    assert chosen(tmp_path / "large", LARGE) == Layout(dp_shard=2)
    assert chosen(tmp_path / "much", LARGE, memory_per_worker=1) == Layout(dp_replicate=2)


def test_record_says_the_layout_and_a_rerun_has_it(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", spec_of(LARGE))
    job = next_job(run)
    record = read_trial(run.paths.trial(job.trial_id))
    assert record.attempts[0].layout == job.layout
    assert (
        '"layout": {\n    "dp_shard": 2\n   }' in run.paths.trial(job.trial_id).record.read_text()
    )
    again = make_rerun_job(run.spec, record, run.paths.reproduction(record.id).root, "cache", 1)
    assert (again.layout, again.workers) == (job.layout, 2)


def test_resume_keeps_the_layout(tmp_path: Path) -> None:
    job = next_job(open_run(tmp_path / "s", spec_of(LARGE)))
    again = next_job(open_run(tmp_path / "s", spec_of(LARGE, memory_per_worker=1)))
    assert (again.key, again.layout) == (f"{job.trial_id}.2", job.layout), "it still fits"


def test_trial_that_fits_no_layout_fails_without_an_attempt(tmp_path: Path) -> None:
    run = open_run(tmp_path / "s", spec_of(LARGE, memory_per_worker=0.001))
    assert run.next_trial() is None
    (record, *_) = run.records.values()
    assert (record.state, record.attempts) == (TrialState.FAILED, ())
    assert record.reason.startswith("infeasible: no layout of 2 workers fits the 1.02 MiB of a ")


def test_out_of_memory_shrinks_first_and_takes_a_larger_layout_then(tmp_path: Path) -> None:
    spec = spec_of(SMALL, workers=4)
    run, found = open_run(tmp_path / "s", spec), list[tuple[str, object]]()
    job = next_job(run)
    while run.records[job.trial_id].state is not TrialState.FAILED:
        found.append((job.layout_on(4).as_written(), job.config.get("micro_batch_size")))
        remedy = run.on_failed(job.trial_id, OOM)
        if remedy is Remedy.LARGER_LAYOUT:
            reason = "out of memory; takes a larger layout"
            assert run.records[job.trial_id].reason == reason
        if remedy is not Remedy.INFEASIBLE:
            run = open_run(tmp_path / "s", spec)  # also over a resume
            job = next_job(run)
    assert found[:3] == [
        ("{dp_replicate: 4}", None),
        ("{dp_replicate: 4}", 1),
        ("{dp_shard: 4}", 1),
    ]
    layouts = [layout for layout, _ in found]
    assert len(set(layouts[1:])) == len(layouts[1:]), "none is tried again"
    attempts = run.records[job.trial_id].attempts
    assert [a.remedy for a in attempts][:3] == ["shrink", "larger_layout", "larger_layout"]
    assert attempts[-1].remedy is Remedy.INFEASIBLE


@pytest.mark.parametrize(
    ("layout", "changes"),
    [({"dp_replicate": 2}, {"micro_batch_size": 1}), ({"pp": 2}, {})],
    ids=["smallest", "stages"],
)
def test_written_layout_stays_after_out_of_memory(
    tmp_path: Path, layout: dict[str, int], changes: dict[str, int]
) -> None:
    spec = make_spec(
        trainable="causal_lm",
        metric="eval_loss",
        space={"hidden_size": {"grid_search": [SMALL]}},
        fixed={**FIXED, **changes},
        search={"name": "grid"},
        resources={"workers": 2, "layout": layout},
    )
    run = open_run(tmp_path / "s", spec)
    assert run.on_failed(next_job(run).trial_id, OOM) is Remedy.INFEASIBLE


def elastic(tmp_path: Path, widths: list[int], slots: int, **more: Any) -> Sweep:
    spec = spec_of(widths, {"min": 1, "max": 2, "grow_after": 30.0}, **more)  # type: ignore[arg-type]
    sweep = Sweep(tmp_path / "sweep", **spec.model_dump(exclude_unset=True))
    sweep.cluster.nodes = [Node(1, 0)] * slots
    sweep.cluster.seconds += 10
    return sweep


def test_number_of_workers_follows_the_layout(tmp_path: Path) -> None:
    sweep = elastic(tmp_path, [SMALL, LARGE, SMALL + 16, LARGE + 8], 4, concurrency=4)
    small, large = sweep.begin(), sweep.begin()
    assert (small.workers, small.layout_on(1)) == (1, Layout())
    assert (large.workers, large.layout_on(2)) == (2, Layout(dp_shard=2))
    third = sweep.begin()
    assert third.workers == 1
    assert sweep.workers.find_allocation() is None


def test_no_other_trial_overtakes_one_that_needs_more_workers(tmp_path: Path) -> None:
    sweep = elastic(tmp_path, [SMALL, LARGE, SMALL + 16], 2, concurrency=2)
    small = sweep.begin()
    assert sweep.run.next_trial(sweep.workers.find_allocation) is None
    assert [r.config["hidden_size"] for r in sweep.run.records.values()] == [SMALL, LARGE]
    assert list(sweep.run.queue.waiting) == ["t0001"]
    assert sweep.run.next_trial(sweep.workers.find_allocation) is None
    assert len(sweep.run.records) == 2, "nothing is proposed meanwhile"
    sweep.run.on_failed(small.trial_id, "rank 0: RuntimeError: boom")
    sweep.workers.release(small, unusable=False)
    sweep.run.queue.waiting.remove(small.trial_id)
    large = sweep.begin()
    assert (large.trial_id, large.workers) == ("t0001", 2)


def test_lost_machine_leaves_the_largest_layout_that_fits(tmp_path: Path) -> None:
    sweep = elastic(tmp_path, [SMALL], 2)
    job = sweep.begin()
    assert job.layout_on(2) == Layout(dp_replicate=2)
    sweep.run.on_failed(job.trial_id, "NodeDiedError: lost")
    sweep.workers.release(job, unusable=True)
    sweep.cluster.nodes = [Node(1, 0)]
    sweep.cluster.seconds += 10
    again = sweep.begin()
    assert (again.trial_id, again.workers, again.layout_on(1)) == (job.trial_id, 1, Layout())


def test_trial_that_needs_more_workers_than_there_are_is_named(tmp_path: Path) -> None:
    sweep = elastic(tmp_path, [LARGE], 1)
    job = sweep.begin()
    sweep.pool.up = 0
    sweep.workers.on_start_failed(job, "timed out")
    assert sweep.run.gave_up
    assert sweep.run.problem == (
        "no trial can start: t0000 with layout {dp_shard: 2} needs 2 CPUs (2 x 1 CPU), and 1 of 2 "
        "workers fit 1 CPU on 1 machine; timed out"
    )


def test_trial_does_not_move_where_no_larger_layout_works(tmp_path: Path) -> None:
    sweep = elastic(tmp_path, [SMALL], 2)
    job = sweep.begin()
    assert sweep.workers.answer(job) is Answer.CONTINUE


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("resources.memory_per_worker=0.001", "of a worker; nearest: {pp: 2}, which"),
        ("resources.memory_per_worker=null", "auto needs the memory of a worker, and this machine"),
        ("resources.workers=1", "has no effect with one worker"),
        (
            "fixed.tokenizer=a/hub",
            "auto does not know the memory of this causal_lm; write the axes",
        ),
        ("resources.layout=aut", "no layout 'aut' (did you mean 'auto'?)"),
    ],
)
def test_plan_refuses_what_cannot_be_chosen(tmp_path: Path, change: str, problem: str) -> None:
    changes = ["resources.layout=auto", "resources.gpus_per_worker=0"]
    changes += ["resources.workers=2", "resources.memory_per_worker=4"]
    llm = Path(__file__).parents[3] / "search_spaces" / "llm.yaml"
    preflight(load_sweep(llm, changes))
    with pytest.raises(UserError) as e:
        preflight(load_sweep(llm, [*changes, change]))
    assert any(problem in line for line in e.value.problems), e.value.problems


def test_plan_says_that_there_is_nothing_to_choose() -> None:
    digits = Path(__file__).parents[3] / "search_spaces" / "digits.yaml"
    changes = ("layout=auto", "workers=2", "memory_per_worker=4")
    with pytest.raises(UserError) as e:
        preflight(load_sweep(digits, [f"resources.{change}" for change in changes]))
    assert "this digits; it follows dp_replicate only; leave it out" in "".join(e.value.problems)
