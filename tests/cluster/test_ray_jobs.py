"""`tune submit --to ray` on a cluster of `tune up --jobs`, in an environment with Ray's jobs."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.chaos.cluster import ENV
from tests.cli.conftest import ROOT
from tests.cluster.submitted import SWEEP, TUNE, Submitted
from tests.cluster.sweep import LONGEST_S

pytestmark = pytest.mark.timeout(900)
Env = dict[str, str]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Env]:
    """An environment with the packages of the extra `jobs`, and the cluster."""
    prefix = tmp_path_factory.mktemp("jobs")
    install = ["install", "-q", "--prefix", str(prefix), "-c", "constraints.txt", "ray[default]"]
    subprocess.run([sys.executable, "-m", "pip", *install], cwd=ROOT, check=True)
    [packages] = prefix.glob("lib/python*/site-packages")
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:  # pytest's is too long
        path = os.pathsep.join([ENV["PYTHONPATH"], str(packages)])
        env = {k: v for k, v in ENV.items() if not k.startswith("RAY_AUTH")}
        env |= {"PYTHONPATH": path, "RAY_TMPDIR": folder}
        assert "takes jobs" in tune(env, "up", "--jobs")
        try:
            yield env
        finally:
            assert "ended" in tune(env, "down")


def tune(env: Mapping[str, str], *args: str, code: int = 0) -> str:
    done = subprocess.run([*TUNE, *args], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{args}: {done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def address(env: Mapping[str, str]) -> str:
    return tune(env, "up", "--jobs").partition(" ")[0]


def test_cancelled_sweep_continues_where_it_was(jobs: Env, tmp_path: Path) -> None:
    sweep = Submitted(jobs, "ray", tmp_path, "cancelled", 60)
    sweep.wait_until(lambda: sweep.step >= 3)
    assert "driven by process" in sweep.submit(code=2)
    assert f"runs {sweep.id}; first: tune cancel" in tune(jobs, "down", code=2)
    assert "was running, and ends; checkpoints are kept" in sweep.tune("cancel", "cancelled")
    sweep.wait_until(lambda: " ended (stopped) " in sweep.states)
    assert sweep.step < sweep.steps
    assert sweep.paths.trial("t0000").checkpoint_steps()[-1] == sweep.step
    assert "continues sweep" in sweep.submit()
    sweep.check(attempts=2)
    assert " ended (succeeded) " in sweep.states


def test_pipeline_is_a_job(jobs: Env, tmp_path: Path) -> None:
    sweep = {
        **{"trainable": "tests.cluster.paced:Paced", "metric": "loss", "fixed": {"seconds": 0}},
        **{"space": {"steps": {"grid_search": [2]}}, "scheduler": {"name": "none"}},
        **{"resources": {"workers": 1}, "tracking": {"name": "none"}},
    }
    stages = [{"name": name, "kind": "train", "sweep": sweep} for name in ("one", "two")]
    file = tmp_path / "both.yaml"
    file.write_text(json.dumps({"name": "both", "stages": stages}))
    there = ["--storage", str(tmp_path / "sweeps")]
    said = tune(jobs, "submit", str(file), "--to", "ray", *there)
    assert "begins pipeline both" in said
    deadline = time.monotonic() + LONGEST_S
    while " ended (succeeded) " not in (states := tune(jobs, "queue", *there)):
        assert time.monotonic() < deadline, states
        time.sleep(0.5)
    assert " 2 of its stages done " in states
    assert "has ended (succeeded)" in tune(jobs, "cancel", "both", *there)


def test_job_that_fails_says_how(jobs: Env, tmp_path: Path) -> None:
    sweep = Submitted(jobs, "ray", tmp_path, "fails", 2, "--set", "metric=absent")
    sweep.wait_until(lambda: " ended (exit code 1) " in sweep.states)


def test_job_that_waits_may_wait(jobs: Env, tmp_path: Path) -> None:
    sweep = Submitted(jobs, "ray", tmp_path, "waits", 2, "--with", "entrypoint_num_cpus=1000")
    assert " pending " in sweep.states
    [head] = (env for env in dashboards() if env.get("RAY_TMPDIR") == jobs["RAY_TMPDIR"])
    assert float(head["RAY_JOB_START_TIMEOUT_SECONDS"]) > 24 * 3600
    assert "ends once Ray has started it" in sweep.tune("cancel", "waits")


def dashboards() -> Iterator[dict[str, str]]:
    """The environments of the dashboards of Ray on this machine."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it ends meanwhile
            if "dashboard.py" in " ".join(process.cmdline()):
                yield process.environ()


@pytest.mark.parametrize(
    ("token", "reason"),
    [("", "asks for a token"), (secrets.token_hex(32), "does not take this token")],
)
def test_client_without_the_token_is_refused(
    jobs: Env, tmp_path: Path, token: str, reason: str
) -> None:
    file, storage = tmp_path / "sweep.yaml", tmp_path / "sweeps"
    file.write_text(SWEEP.format(name="refused", steps=1))
    other = jobs | {"RAY_TMPDIR": str(tmp_path), "RAY_AUTH_TOKEN": token}  # another user's
    there = ["--address", address(jobs), "--storage", str(storage)]
    said = tune(other, "submit", str(file), "--to", "ray", *there, code=2)
    assert said == f"ray: {address(jobs)} {reason}; set RAY_AUTH_TOKEN to that of the cluster\n"
    assert not (storage / "refused").exists()
