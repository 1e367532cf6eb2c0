"""Training code in the manner of its projects' public documentation runs as sweeps, unchanged.

Each script is planned, and trained by three trials under ASHA. The first one is killed; the second
one has a bad setting and is stopped; the third one has the setting of the first.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from results.records.trial import TrialState
from tests.chaos.cluster import ENV, Cluster, cluster
from tests.ray.conftest import LONGEST_S, Tune, end
from tests.user_code.conftest import PROGRAMS
from tests.waiting import wait_for

pytestmark = [pytest.mark.scripts, pytest.mark.timeout(2 * LONGEST_S)]


@dataclass(frozen=True)
class Script:
    """A script and the sweep over it.

    Attributes:
        file: of the script.
        runs: the lines of the sweep file that name it.
        good, bad: values of `param`; ASHA stops the bad one.
        steps: of a whole trial.
        kills: `worker`: the last rank, or the program; `driver`: the sweep is resumed after it.
        build: a command that makes the program.
        needs: a library of the group `user-code`; without it the script is skipped.
    """

    file: str
    runs: str
    param: str = "lr"
    good: float = 0.01
    bad: float = 0.0
    metric: str = "loss"
    time_attr: str = "epoch"
    steps: int = 6
    workers: int = 1
    kills: str = "worker"
    build: Sequence[str] = ()
    needs: str = ""

    @property
    def sweep(self) -> str:
        # A point is tried once, so the first trial's differs in its last digits. It is not better.
        values = (self.good * (1 - 1e-12), self.bad, self.good)
        low, high = min(values), max(values)
        points = ", ".join(f"{{{self.param}: {v!r}}}" for v in values)
        return f"""
name: script
{self.runs}
metric: {self.metric}
space: {{{self.param}: {{uniform: [{low}, {high}]}}}}
points: [{points}]
scheduler:
  name: asha
  time_attr: {self.time_attr}
  grace_period: {self.steps // 3}
  max_t: {self.steps}
  reduction_factor: 2
budget: {{trials: 3}}
resources: {{workers: {self.workers}, cpus_per_worker: {1 / self.workers}, concurrency: 1}}
"""


def loop(file: str, function: str = "train_func", **more: object) -> Script:
    return Script(file, f"trainable: {file}:{function}", workers=2, **more)


SCRIPTS = {
    "ray_train": loop("ray_train_quickstart.py", kills="driver"),
    "lightning": loop("lightning_digits.py", metric="train_loss"),
    "hf_trainer": loop("hf_trainer.py", param="learning_rate", good=0.003, metric="eval_loss"),
    "accelerate": loop("accelerate_loop.py"),
    "fsdp2": loop("fsdp2_dcp.py", param="learning_rate"),
    "embeddings": loop("sentence_embeddings.py", good=0.003),
    "ray_data": loop("ray_data.py", "main", good=0.1),
    "xgboost": loop(
        "xgboost_trainer.py",
        "main",
        param="eta",
        good=0.3,
        metric="valid-logloss",
        time_attr="round",
        kills="driver",
    ),
    "lightgbm": loop(
        "lightgbm_trainer.py",
        "main",
        good=0.3,
        bad=1e-6,
        metric="valid-binary_logloss",
        time_attr="round",
        needs="lightgbm",
    ),
    "jax": loop("jax_trainer.py", "main", good=0.5, needs="jax"),
    "tensorflow": loop("tensorflow_trainer.py", "main", good=0.1, needs="tf_keras"),
    "deepspeed": loop("deepspeed_zero.py", needs="deepspeed"),
    "tune_function": Script(
        "tune_function.py",
        "trainable: tune_function.py:train_digits\nfixed: {momentum: 0.5}",
        time_attr="training_iteration",
        steps=8,
        kills="driver",
    ),
    "tune_class": Script(
        "tune_class.py",
        "trainable: tune_class.py:TrainDigits",
        time_attr="training_iteration",
        steps=8,
    ),
    "optuna": Script(
        "optuna_digits.py",
        "trainable: optuna_digits.py:objective",
        param="alpha",
        good=1e-4,
        bad=1e3,
        steps=8,
    ),
    "argparse": Script(
        "argparse_main.py",
        'command: [python, argparse_main.py, "{args}"]\nfixed: {epochs: 60}',
        param="learning_rate",
        steps=60,
        kills="driver",
    ),
    "torchrun": Script(
        "ddp.py",
        'command: [torchrun, --nproc-per-node, "{workers}", ddp.py, --lr, "{lr}", --epochs, "30"]',
        steps=30,
        workers=2,
    ),
    "shell": Script("train.sh", 'command: [./train.sh, "6", "0.2"]', param="rate", good=0.3),
    "c": Script(
        "train.c",
        'command: [./train, "{rate}"]',
        param="rate",
        good=0.1,
        steps=8,
        build=("cc", "-o", "train", "train.c"),
    ),
}


@pytest.fixture(scope="module")
def machine() -> Iterator[Cluster]:
    """One cluster for all scripts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENV, "TF_USE_LEGACY_KERAS", "1")  # Ray Train needs Keras 2
        with cluster() as made:
            yield made


def working_on(folder: Path) -> list[int]:
    """Ids of the processes that work or print in a folder, the one that started last at the end."""
    return sorted(
        (
            int(process.name)
            for process in Path("/proc").glob("[0-9]*")
            if works_in(process, folder)
        ),
        key=lambda pid: (psutil.Process(pid).create_time(), pid),
    )


def shared_memory() -> set[Path]:
    """Segments of shared memory that no process has; folders there are of other programs."""
    mapped = set[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            mapped |= {line.split()[4] for line in (process / "maps").read_text().splitlines()}
    found = (file for file in Path("/dev/shm").iterdir() if file.is_file())
    return {file for file in found if str(file.stat().st_ino) not in mapped}


def works_in(process: Path, folder: Path) -> bool:
    with suppress(OSError):  # it has ended, or is another user's
        return any((process / name).readlink().is_relative_to(folder) for name in ("cwd", "fd/1"))
    return False


def kill_in_the_middle(tune: Tune, run: subprocess.Popen[str], script: Script) -> None:
    """Wait until the first trial has some steps, and kill one of its processes or the driver."""
    with run:  # closes its pipes
        try:
            _kill_in_the_middle(tune, run, script)
        finally:
            run.kill()  # has no effect after its end


def _kill_in_the_middle(tune: Tune, run: subprocess.Popen[str], script: Script) -> None:
    paths = tune.paths("script")
    after = script.steps // 3
    wait_for(lambda: paths.trial("t0000").reports.exists() and lines(tune) >= after, run)
    if script.kills == "driver":
        end(run)
        return
    found = working_on(paths.trial("t0000").root)
    own = [
        pid for pid in found if Path(script.file).stem in " ".join(psutil.Process(pid).cmdline())
    ]
    os.kill((own or found)[-1], signal.SIGKILL)
    out, err = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 0, f"{out}\n{err}"


def lines(tune: Tune) -> int:
    return len(tune.paths("script").trial("t0000").reports.read_text().splitlines())


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_is_planned_killed_resumed_stopped_and_tracked(
    name: str, tmp_path: Path, machine: Cluster
) -> None:
    script, tune = SCRIPTS[name], Tune(tmp_path, machine.address)
    if script.needs and find_spec(script.needs) is None:
        pytest.skip(f"{script.needs} is not installed")
    shutil.copy(PROGRAMS / script.file, tmp_path)
    (tmp_path / "script.yaml").write_text(script.sweep)
    if script.build:
        subprocess.run(script.build, cwd=tmp_path, check=True)
    plan = Tune(tmp_path, "")("plan", "script.yaml")
    assert "warning" not in plan

    before, shared = machine.here(), shared_memory()
    kill_in_the_middle(tune, tune.start("run", "script.yaml"), script)
    if script.kills == "driver":
        tune("resume", "script")
    first, second, third = tune.trials("script")
    assert [(r.state, r.end_step) for r in (first, third)] == [
        (TrialState.COMPLETED, script.steps)
    ] * 2, [attempt.error for record in (first, third) for attempt in record.attempts]
    assert (len(first.attempts), len(third.attempts)) == (2, 1)
    assert (second.state, second.end_step) == (TrialState.STOPPED, script.steps // 3)

    curves = {r.id: points(tune, r.id, script.metric) for r in (first, second, third)}
    assert list(curves["t0000"]) == list(range(1, script.steps + 1))
    assert curves["t0000"] == pytest.approx(curves["t0002"], rel=1e-5)
    assert tracked(tune, script.metric) == pytest.approx(
        {(trial, step): v for trial, curve in curves.items() for step, v in curve.items()}
    )
    assert machine.left(before) == []
    assert working_on(tune.paths("script").root) == []
    assert shared_memory() <= shared


def points(tune: Tune, trial: str, metric: str) -> dict[int, float]:
    return {p.step: p.metrics[metric] for p in tune.curve("script", trial)}


def tracked(tune: Tune, metric: str) -> dict[tuple[str, int], float]:
    """What MLflow shows of the trials."""
    rows = tune.mlflow(
        "select name, step, value from metrics join runs using (run_uuid) "
        f"where key = '{metric}' and name like 't0%'"
    )
    return {(name, step): value for name, step, value in rows}
