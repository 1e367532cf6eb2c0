"""A train loop from Ray Train's documentation runs unchanged as a trial."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil

from results.checkpoints.commit import Manifest, verify
from results.paths import SweepPaths, TrialPaths
from results.records.trial import TrialState
from results.records.worker_samples import phase_seconds
from tests.chaos.cluster import Cluster
from tests.object_store import s3_server
from tests.ray.conftest import LONGEST_S, Tune, end, wait_for

LOOP = """
import os
import tempfile
import time

import ray.train
import torch
from ray.train.torch import prepare_model

attempts = []


def train_loop_per_worker(config):
    attempts.append(1)
    print("attempt", len(attempts), "of process", os.getpid())
    # As libraries do that look for their last checkpoint in a relative folder.
    mine = str(config["lr"])
    if os.path.exists("last.txt") and open("last.txt").read() != mine:
        raise RuntimeError("this is the working directory of another trial")
    with open(f"{os.getpid()}.txt", "w") as f:
        f.write(mine)
    os.replace(f"{os.getpid()}.txt", "last.txt")  # the other rank reads it meanwhile
    torch.manual_seed(config["seed"])
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    start = 1
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "state.pt"))
        model.load_state_dict(state["model"])
        start = state["epoch"] + 1
    print("starting at epoch", start)
    for epoch in range(start, config["epochs"] + 1):
        x = torch.ones(8, 4)
        loss = ((model(x) - 1.0) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        while epoch == 4 and not os.path.exists(config["gate"]):
            time.sleep(0.05)
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if ray.train.get_context().get_world_rank() == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch},
                           os.path.join(folder, "state.pt"))
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": loss.item(), "epoch": epoch}, checkpoint=saved)
"""

SWEEP = """
name: loop
trainable: my_loop.py:train_loop_per_worker
metric: loss
space: {lr: {grid_search: [0.05, 0.0, 0.04]}}
fixed: {epochs: 6, gate: GATE, seed: 0}
scheduler: {name: asha, time_attr: epoch, grace_period: 1, max_t: 6}
resources: {workers: 2, concurrency: 1}
"""
"""The second trial learns nothing, so the scheduler stops it."""


def verified(trial: TrialPaths, attempt: int = 1) -> list[Manifest]:
    """Manifests of the intact checkpoints of an attempt."""
    folders = trial.ray_train_attempt(attempt).glob("checkpoint_*/")
    manifests = {folder: trial.ray_train_manifest(folder) for folder in folders}
    return [verify(folder, manifest=m) for folder, m in manifests.items() if m.exists()]


def test_ray_train_loop_is_resumed_and_stopped_early(tune: Tune, joined: Cluster) -> None:
    gate = tune.cwd / "gate"
    (tune.cwd / "my_loop.py").write_text(LOOP)
    (tune.cwd / "loop.yaml").write_text(SWEEP.replace("GATE", str(gate)))
    run = tune.start("run", "loop.yaml")
    paths = tune.paths("loop")
    wait_for(lambda: len(tune.curve("loop", "t0000")) >= 3 if paths.trial_ids() else False, run)
    end(run)
    before = tune.curve("loop", "t0000")

    killed = resume_without_a_spare(tune, joined, gate)
    first, second, third = tune.trials("loop")
    assert (first.state, len(first.attempts)) == (TrialState.COMPLETED, 2)
    assert [p.step for p in tune.curve("loop", "t0000")] == [1, 2, 3, 4, 5, 6]
    log = paths.trial("t0000").log(2, 0).read_text()
    resumed_at = int(re.search(r"starting at epoch (\d+)", log).group(1))
    assert before[-1].step <= resumed_at <= before[-1].step + 2
    best = tune.best("loop")
    assert best["step"] == 6
    assert (Path(best["checkpoint"]) / "state.pt").exists()
    names = tune.mlflow("select name from runs order by name")
    assert names == [("loop",), ("t0000",), ("t0001",), ("t0002",)]

    assert (second.state, second.end_step) == (TrialState.STOPPED, 3)
    assert third.attempts[0].error is None
    assert verified(paths.trial("t0001"))
    measured = phase_seconds(paths.trial("t0002"), third)
    assert measured.keys() == {0, 1}
    assert all(seconds["compute"] and seconds["report"] for seconds in measured.values())
    check_processes(paths, killed)
    assert not joined.left()


def resume_without_a_spare(tune: Tune, joined: Cluster, gate: Path) -> int:
    """Resume the sweep, and kill a worker that waits for the second trial; returns its process."""
    first = tune.paths("loop").trial("t0000")
    run = tune.start("resume", "loop")
    wait_for(lambda: len(attempts(first, 2)) == 2, run)  # they wait for the gate
    running = set(attempts(first, 2))
    wait_for(lambda: len(workers_of(joined) - running) == 2, run)
    killed = (workers_of(joined) - running).pop()
    os.kill(killed, signal.SIGKILL)
    gate.touch()
    out, err = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 0, f"{out}\n{err}"
    return killed


def check_processes(paths: SweepPaths, killed: int) -> None:
    """Each attempt had processes of its own, and no module of another one."""
    used = [attempts(paths.trial(f"t000{n}"), a) for n, a in ((0, 1), (0, 2), (1, 1), (2, 1))]
    assert [{*each.values()} for each in used] == [{1}] * 4
    assert len({*used[0], *used[1], *used[2], *used[3]} - {killed}) == 8


def attempts(trial: TrialPaths, attempt: int) -> dict[int, int]:
    """Processes of an attempt's ranks, and how often each has called the loop."""
    logs = (trial.log(attempt, rank) for rank in (0, 1))
    text = "".join(log.read_text() for log in logs if log.exists())
    found = re.findall(r"attempt (\d+) of process (\d+)", text)
    return {int(process): int(count) for count, process in found}


def workers_of(cluster: Cluster) -> set[int]:
    """Processes of Ray Train's workers."""
    below = psutil.Process(cluster.holder.pid).children(recursive=True)
    found = set()
    for process in below:
        with suppress(psutil.Error):
            if "RayTrainWorker" in " ".join(process.cmdline()):
                found.add(process.pid)
    return found


UNCOUNTED = """
import os
import tempfile

import ray.train


def loop(config):
    start, checkpoint = 1, ray.train.get_checkpoint() if config["restores"] else None
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = int(open(os.path.join(folder, "epoch")).read()) + 1
    for epoch in range(start, 7):
        if epoch == 4 and not os.path.exists("failed"):
            open("failed", "w").close()
            raise ConnectionError("once")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "epoch"), "w") as f:
                f.write(str(epoch))
            saved = ray.train.Checkpoint.from_directory(folder) if epoch % 2 == 0 else None
            ray.train.report(
                {"loss": 1.0 / epoch},
                checkpoint=saved,  # of a folder that is deleted: it is copied all the same
                checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD,
            )
"""


def test_steps_of_a_resumed_loop_are_counted_from_its_checkpoint(tune: Tune) -> None:
    (tune.cwd / "uncounted.py").write_text(UNCOUNTED)
    (tune.cwd / "uncounted.yaml").write_text(
        "name: uncounted\ntrainable: uncounted.py:loop\nmetric: loss\n"
        "space: {restores: {grid_search: [true, false]}}\nscheduler: {name: none}\n"
        "resources: {concurrency: 2}\ntracking: {name: none}\n"
    )
    output = tune("run", "uncounted.yaml")
    assert "warning: attempt t0001.2 had a checkpoint, and the loop did not ask for it" in output
    paths = tune.paths("uncounted")
    for record, attempts in zip(
        tune.trials("uncounted"), ([1, 1, 2, 2, 2, 2], [2] * 6), strict=True
    ):
        curve = tune.curve("uncounted", record.id)
        assert [r.step for r in curve] == [1, 2, 3, 4, 5, 6]
        assert [r.metrics["loss"] for r in curve] == [1.0 / step for step in range(1, 7)]
        assert [r.attempt for r in curve] == attempts
        warned = "did not ask for it" in paths.trial(record.id).log(2, 0).read_text()
        assert warned is not record.params["restores"]


CLOSING = """
import os
import pathlib
import tempfile
import time

import numpy as np
import ray.train


def loop(config):
    start, checkpoint = 0, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = int(pathlib.Path(folder, "epoch").read_text()) + 1
    print("starting at", start)
    for epoch in range(start, 4):
        if epoch == 3 and not os.path.exists("hung"):
            open("hung", "w").close()
            time.sleep(1000)
        ray.train.report(
            {"epoch": epoch, "eval": {"loss": np.float32(1 / (epoch + 1))}}, save(config, epoch)
        )
    time.sleep(1)
    ray.train.report({}, save(config, "last"))


def save(config, epoch):
    import pyarrow.fs

    keys = {"access_key": "tests", "secret_key": "tests", "scheme": "http"}
    remote = pyarrow.fs.S3FileSystem(endpoint_override=config["store"], **keys)
    folder = f"bucket/{os.path.basename(os.path.dirname(os.getcwd()))}/{epoch}"
    remote.create_dir(folder)
    with remote.open_output_stream(f"{folder}/epoch") as f:
        f.write(str(epoch).encode())
    return ray.train.Checkpoint(folder, remote)
"""


def test_loop_that_counts_from_zero_saves_elsewhere_hangs_and_saves_again_at_its_end(
    tune: Tune,
) -> None:
    (tune.cwd / "closing.py").write_text(CLOSING)
    with s3_server() as url:
        (tune.cwd / "closing.yaml").write_text(
            "name: closing\ntrainable: closing.py:loop\nmetric: eval/loss\n"
            f"space: {{x: {{uniform: [0, 1]}}}}\nfixed: {{store: '{url.partition('//')[2]}'}}\n"
            "scheduler: {name: asha, time_attr: epoch, max_t: 4}\nbudget: {trials: 1}\n"
            "checkpoint: {keep: 1, keep_best: 1}\nfailure: {hang_timeout: 8}\n"
            "tracking: {name: none}\n"
        )
        tune("run", "closing.yaml")
    (record,) = tune.trials("closing")
    assert (record.state, record.end_step) == (TrialState.COMPLETED, 4)
    assert record.attempts[0].error.startswith("hung: ")
    curve = tune.curve("closing", "t0000")
    assert [(r.step, r.metrics["epoch"], r.attempt) for r in curve] == [
        (1, 1.0, 1),
        (2, 2.0, 1),
        (3, 3.0, 1),
        (4, 4.0, 2),
    ]
    assert [r.metrics["eval/loss"] for r in curve] == [np.float32(1 / n) for n in (1, 2, 3, 4)]
    trial = tune.paths("closing").trial("t0000")
    assert "starting at 3" in trial.log(2, 0).read_text()
    kept = {p.parent.name: p.read_text() for p in trial.ray_train_attempt(2).glob("*/epoch")}
    assert set(kept.values()) == {"3", "last"}  # the best one and the newest one
    assert len(list(trial.ray_train_attempt(2).glob("*.manifest.json"))) == 2
    assert (trial.newest_checkpoint() / "epoch").read_text() == "last"


DRIVER = """
import os
import tempfile

import ray.data
import ray.train
import torch
from helper import square
from ray.train.torch import TorchConfig, TorchTrainer


def loop(config):
    start, checkpoint = 1, ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = int(open(os.path.join(folder, "epoch")).read()) + 1
    shard = ray.train.get_dataset_shard("train")
    for epoch in range(start, config["epochs"] + 1):
        if epoch == 3 and not os.path.exists("failed"):
            open("failed", "w").close()
            raise ConnectionError("once")
        total = sum(float(b["id"].sum()) for b in shard.iter_torch_batches(batch_size=4))
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "epoch"), "w") as f:
                f.write(str(epoch))
            saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"loss": square(config["lr"]) / epoch, "total": total}, saved)


def main(config):
    trainer = TorchTrainer(
        loop,
        train_loop_config={**config, "epochs": 4},
        torch_config=TorchConfig(timeout_s=100),
        scaling_config=ray.train.ScalingConfig(num_workers=64, use_gpu=True),
        run_config=ray.train.RunConfig(storage_path="/nowhere", name="shared"),
        datasets={"train": ray.data.range(8)},
    )
    print("best", trainer.fit().metrics)


if __name__ == "__main__":
    main({"lr": 0.1})
"""


def test_function_that_builds_a_trainer_with_datasets(tune: Tune) -> None:
    (tune.cwd / "helper.py").write_text("def square(x):\n    return x * x\n")
    (tune.cwd / "driver.py").write_text(DRIVER)
    (tune.cwd / "driver.yaml").write_text(
        "name: driver\ntrainable: driver.py:main\nmetric: loss\n"
        "space: {lr: {uniform: [1, 2]}}\nscheduler: {name: none}\nbudget: {trials: 1}\n"
        "resources: {concurrency: 1}\ntracking: {name: none}\n"
    )
    tune("run", "driver.yaml")
    (record,) = tune.trials("driver")
    assert (record.state, len(record.attempts)) == (TrialState.COMPLETED, 2)
    curve = tune.curve("driver", "t0000")
    assert [(r.step, r.attempt, r.metrics["total"]) for r in curve] == [
        (1, 1, 28.0),
        (2, 1, 28.0),
        (3, 2, 28.0),
        (4, 2, 28.0),
    ]
    assert [r.metrics["loss"] for r in curve] == [record.params["lr"] ** 2 / s for s in range(1, 5)]
    trial = tune.paths("driver").trial("t0000")
    assert "best {" in (trial.attempt(2) / "driver.log").read_text()
    assert verified(trial, 2)
