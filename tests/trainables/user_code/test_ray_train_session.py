"""Loops for Ray Train run in this process, and get the answers that Ray Train gives."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from tests.trainables.local import RecordingChannel, run_trial
from tests.trainables.user_code.kept import keep
from trainables.job import Answer
from trainables.runtime.leftovers import Leftovers

LOOP = """
import os, tempfile
from pathlib import Path
import torch
import ray.train
import ray.train.torch
from ray.train import Checkpoint, get_checkpoint, report
from helper import calls

calls.append(1)
assert len(calls) == 1, "modules of an earlier trial"


def loop(config):
    os.environ["LEFT"] = "1"
    model = ray.train.torch.prepare_model(torch.nn.Sequential(torch.nn.Linear(3, 1)))
    assert ray.train.torch.get_device() == torch.device("cpu")
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    start, found = 0, get_checkpoint()
    if found:
        with found.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        start = state["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        loss = (model(torch.randn(8, 3)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"epoch": epoch, "random": torch.get_rng_state()}
            torch.save(state, Path(folder, "state.pt"))
            try:
                report({"loss": loss.item(), "epoch": epoch}, checkpoint=Checkpoint(folder))
            except Exception:
                pass
    Path("closed").touch()
"""


BY_EPOCH: dict[str, Any] = {
    "time_attr": "epoch",
    "retention": Retention(metric="loss", clock="epoch"),
}


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "helper.py").write_text("calls = []\n")
    (tmp_path / "loops.py").write_text(LOOP)
    return f"{tmp_path / 'loops.py'}:loop"


def run(script: str, folder: Path, answers: Any = None, **options: Any) -> RecordingChannel:
    channel = RecordingChannel(answers or {})
    options = {**BY_EPOCH, **options}
    config = {"lr": 0.1, "epochs": options.pop("epochs", 5)}
    return run_trial(folder, script, config, channel=channel, **options)


def test_second_trial_of_a_process_equals_the_first(script: str, tmp_path: Path) -> None:
    first, second = (run(script, tmp_path / name) for name in ("a", "b"))
    assert list(first.curve) == [1, 2, 3, 4, 5]
    assert first.curve == second.curve
    assert "LEFT" not in os.environ
    assert Path.cwd() != tmp_path / "a" / "work"


def test_resumed_loop_equals_an_uninterrupted_one(script: str, tmp_path: Path) -> None:
    whole = run(script, tmp_path / "a").curve
    begun = run(script, tmp_path / "b", {3: Answer.STOP}).curve
    assert not (tmp_path / "b" / "work" / "closed").exists(), "it ends at its report"
    resumed = run(script, tmp_path / "b", attempt=2).curve
    assert (list(begun), list(resumed)) == ([1, 2, 3], [4, 5])
    assert begun | resumed == whole


def test_loop_may_save_its_model_after_the_last_step(script: str, tmp_path: Path) -> None:
    channel = RecordingChannel()
    seen = []
    channel.report = lambda report: (
        seen.append(  # type: ignore[method-assign]
            (report.step, (tmp_path / "a" / "work" / "closed").exists())
        )
        or Answer.CONTINUE
    )
    config = {"lr": 0.1, "epochs": 3}
    run_trial(tmp_path / "a", script, config, channel=channel, max_t=3, **BY_EPOCH)
    assert seen == [(1, False), (2, False), (3, True)]
    beyond = run(script, tmp_path / "b", max_t=3)
    assert list(beyond.curve) == [1, 2, 3]
    assert not (tmp_path / "b" / "work" / "closed").exists()


def test_trial_of_an_earlier_version_goes_on(script: str, tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(ASKS)
    paths = TrialPaths(tmp_path / "a")
    keep(paths, 1, 4)
    channel = run_trial(paths.root, script, {}, attempt=2)
    assert [r.metrics["loss"] for r in channel.reports] == [4.0]
    assert newest_intact(paths).step == 5  # type: ignore[union-attr]


ASKS = """
from pathlib import Path
import ray.train, ray.train.collective
from ray.train import Checkpoint


def loop():
    context = ray.train.get_context()
    ranks = [context.get_world_rank(), context.get_local_rank(), context.get_node_rank()]
    assert ranks == [0, 0, 0]
    assert context.get_world_size() == context.get_local_world_size() == 1
    assert context.get_experiment_name() in context.get_storage().experiment_fs_path
    assert ray.train.get_preemption_info() is None
    ray.train.collective.barrier()
    assert ray.train.collective.broadcast_from_rank_zero("x") == "x"
    with ray.train.get_checkpoint().as_directory() as folder:
        epoch = int(Path(folder, "epoch").read_text())
    saved = Path("saved").absolute()
    saved.mkdir()
    (saved / "epoch").write_text("5")
    options = {"checkpoint_upload_mode": ray.train.CheckpointUploadMode.ASYNC}
    options["delete_local_checkpoint_after_upload"] = True
    ray.train.report({"loss": epoch, "name": "text"}, Checkpoint(str(saved)), **options)
    assert not saved.exists()
    with ray.train.get_checkpoint().as_directory() as folder:
        assert Path(folder, "epoch").read_text() == "5"
    kept = ray.train.get_all_reported_checkpoints()
    assert [each.metrics.get("loss") for each in kept] == [None, 4.0]
"""
REFUSED = {
    "ray.train.get_dataset_shard('train')": (UserError, "builds the trainer"),
    "ray.train.report({}, ray.train.Checkpoint('/tmp'), validation=True)": (ValueError, "valid"),
    "ray.train.get_context().get_trial_id()": (DeprecationWarning, "get_trial_id"),
    "ray.train.report({'loss': 'low'})": (TypeError, "'low'"),
    "ray.train.no_such_call()": (AttributeError, "no_such_call"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_cannot_be_answered_is_refused(call: str, tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(f"import ray.train\ndef loop(config):\n    {call}\n")
    error, word = REFUSED[call]
    options: dict[str, Any] = {"retention": Retention(metric="loss")}
    with pytest.raises(error, match=word):
        run_trial(tmp_path / "a", f"{tmp_path / 'asks.py'}:loop", {}, **options)


def test_threads_and_processes_that_stay_are_found() -> None:
    before, ended = Leftovers(), threading.Event()
    assert before.find() is None
    threading.Thread(target=ended.wait, name="server").start()
    try:
        assert "server" in (before.find() or "")
    finally:
        ended.set()
    assert before.find() is None
    pid = os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
    assert str(pid) in (before.find() or "")
    assert os.waitpid(pid, 0)[0] == pid, "it was killed"
