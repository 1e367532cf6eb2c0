"""Trials and workers that share one device."""

from __future__ import annotations

from pathlib import Path

from results.records.failures import Remedy
from results.records.trial import TrialRecord, TrialState
from tests.gpu.probe import CROWD, DIGITS, sets
from tests.ray.conftest import Tune


def write(tune: Tune, name: str, text: str) -> Path:
    file = tune.cwd / f"{name}.yaml"
    file.write_text(f"name: {name}\nscheduler: {{name: none}}\ntracking: {{name: none}}\n{text}")
    return file


def sweep_of(tune: Tune, name: str, kinds: list[str], **fixed: object) -> list[TrialRecord]:
    """Run a sweep of four trials at once, each with a quarter of the device."""
    given = ", ".join(f"{k}: {v}" for k, v in {"steps": 3, "marks": tune.cwd, **fixed}.items())
    file = write(
        tune,
        name,
        "trainable: tests.gpu.probe:Probe\nmetric: loss\nmode: max\n"
        f"space: {{kind: {{grid_search: [{', '.join(kinds)}]}}}}\nfixed: {{{given}}}\n"
        "resources: {workers: 1, gpus_per_worker: 0.25}\n",
    )
    assert "4 workers on one, 25% of its memory for each" in tune("plan", file)
    tune("run", file)
    return tune.trials(name)


def test_four_trials_have_their_whole_shares_at_once(tune: Tune) -> None:
    records = sweep_of(tune, "whole", [f"takes_its_share_{i}" for i in range(CROWD)])
    assert {r.state for r in records} == {TrialState.COMPLETED}, [r.reason for r in records]


def test_trial_that_takes_more_than_its_share_fails_alone(tune: Tune) -> None:
    kinds = [*(f"takes_its_share_{i}" for i in range(CROWD - 1)), "takes_more"]
    records = sweep_of(tune, "more", kinds, crowd=CROWD - 1)
    failed = [r for r in records if r.state is TrialState.FAILED]
    assert [r.params["kind"] for r in failed] == ["takes_more"], [r.reason for r in records]
    assert "OutOfMemoryError: CUDA out of memory" in failed[0].reason
    assert " Process " not in failed[0].reason
    assert failed[0].attempts[-1].remedy is Remedy.INFEASIBLE


def test_lane_of_workers_that_share_a_device_survives_a_failed_trial(tune: Tune) -> None:
    """NCCL refuses two ranks on one device; the ranks use gloo, in a new group after a failure."""
    file = write(
        tune,
        "two",
        "trainable: tests.gpu.probe:Probe\nmetric: loss\nmode: max\n"
        "space: {kind: {grid_search: [well, raises, after]}}\nfixed: {steps: 3}\n"
        "failure: {max_retries: 0}\n"
        "resources: {workers: 2, gpus_per_worker: 0.25, concurrency: 1}\n",
    )
    tune("run", file)
    well, raises, after = tune.trials("two")
    assert raises.state is TrialState.FAILED
    assert "ValueError: on every rank" in raises.reason
    first, last = (tune.curve("two", r.id)[0].metrics for r in (well, after))
    assert after.state is TrialState.COMPLETED
    assert first["pid"] == last["pid"]
    assert (last["on_gpu"], last["nccl"]) == (1.0, 0.0)


def test_workers_of_one_trial_share_a_device(tune: Tune) -> None:
    changes = ("budget.trials=2", "resources={workers: 2, gpus_per_worker: 0.25}", "fixed.epochs=3")
    tune("run", DIGITS, *sets(*changes))
    for record in tune.trials("digits"):
        assert record.state in (TrialState.COMPLETED, TrialState.STOPPED)
        first = tune.curve("digits", record.id)[0].metrics
        assert 0 < first["accuracy"] <= 1


def test_out_of_memory_halves_the_micro_batch_until_it_fits(tune: Tune) -> None:
    """A twentieth of the device is too little for a batch of 4096 sequences at once."""
    file = write(
        tune,
        "shrinks",
        "trainable: causal_lm\nmetric: eval_loss\nmode: min\n"
        "space: {learning_rate: {choice: [0.01]}}\nbudget: {trials: 1}\n"
        "fixed: {batch_size: 4096, max_steps: 2, eval_every: 1}\n"
        "resources: {workers: 1, gpus_per_worker: 0.05}\n",
    )
    tune("run", file)
    (record,) = tune.trials("shrinks")
    assert record.state is TrialState.COMPLETED
    assert {a.remedy for a in record.attempts[:-1]} == {Remedy.SHRINK}
    assert record.adjusted["micro_batch_size"] in (2048, 1024, 512, 256)
    assert "OutOfMemoryError" in tune("show", "shrinks", record.id)


LOOP = """
import ray.train
import torch


def train(config):
    device = torch.device("cuda")
    total = torch.cuda.get_device_properties(device).total_memory
    try:
        torch.empty(int(0.27 * total), dtype=torch.uint8, device=device)
        fits = 1
    except torch.OutOfMemoryError:
        fits = 0
    ray.train.report({"fits": fits, "x": config["x"]})
"""


def test_loop_for_ray_train_has_its_share_too(tune: Tune) -> None:
    (tune.cwd / "loop.py").write_text(LOOP)
    file = write(
        tune,
        "loop",
        "trainable: loop.py:train\nmetric: fits\nmode: max\n"
        "space: {x: {choice: [1]}}\nbudget: {trials: 1}\n"
        "resources: {workers: 1, gpus_per_worker: 0.25}\n",
    )
    tune("run", file)
    assert tune.best("loop")["value"] == 0


def test_worker_without_a_gpu_trains_on_the_cpu(tune: Tune) -> None:
    """Ray leaves all devices visible to a process that has none."""
    file = write(
        tune,
        "on_cpu",
        "trainable: tests.gpu.probe:Probe\nmetric: loss\nmode: max\n"
        "space: {kind: {grid_search: [well]}}\nfixed: {steps: 2}\n"
        "resources: {workers: 1, gpus_per_worker: 0}\n",
    )
    tune("run", file)
    (record,) = tune.trials("on_cpu")
    first = tune.curve("on_cpu", record.id)[0].metrics
    assert (first["on_gpu"], first["sees_gpus"]) == (0.0, 0.0)


def test_device_that_auto_leaves_unused_is_named(tune: Tune) -> None:
    import torch

    gpus = torch.cuda.device_count()
    said = tune("plan", DIGITS, *sets(f"resources.workers={gpus + 1}"))
    assert f"unused, because a trial has {gpus + 1} workers and the cluster {gpus} GPU" in said


def test_more_gpus_than_the_machine_has_are_refused_in_one_line(tune: Tune) -> None:
    import torch

    wanted = f"resources.gpus_per_worker={torch.cuda.device_count() + 1}"
    said = tune("run", DIGITS, "--set", wanted, code=2)
    (line,) = [text for text in said.splitlines() if "resources: a trial needs" in text]
    assert "but the cluster has" in line
    assert not (tune.cwd / "sweeps" / "digits").exists()
