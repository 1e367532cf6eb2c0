"""The commands of the manifests, run here: pods are processes, and variables their environment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from results.trial_paths import TrialPaths
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import ROOT
from tests.tuning.deploy.kustomize import read
from tests.tuning.deploy.test_k8s import CPUS, FILE, WINNER
from tuning.submit.manifests import render_k8s

SHORT = ("fixed.max_steps=4", "fixed.eval_every=2", "scheduler={name: none}", "checkpoint.every=2")


def pods(folder: Path, name: str) -> list[dict[str, Any]]:
    """The container of each pod of a rendered job."""
    for file, text in render_k8s(load_sweep(FILE, [CPUS, *SHORT]), (), WINNER).items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    (job,) = read(folder / "final" / f"{name}.yaml")
    groups = job["spec"]["pytorchReplicaSpecs"]
    return [
        group["template"]["spec"]["containers"][0]
        for group in groups.values()
        for _ in range(group["replicas"])
    ]


def start(container: dict[str, Any], rank: int, folder: Path) -> subprocess.Popen[str]:
    """Start a pod's process, as the operator and the kubelet do."""
    given = {e["name"]: e["value"] for e in container["env"] if not e["name"].startswith("NCCL")}
    given |= {"RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "OUTPUT_DIR": str(folder / "out")}
    given |= {"MASTER_PORT": os.environ["TEST_PORT"]}
    words = [*container["command"], *container["args"]]
    expanded = [re.sub(r"\$\((\w+)\)", lambda m: given[m[1]], word) for word in words]
    (folder / "sweep").mkdir(exist_ok=True)
    (folder / "sweep" / FILE.name).write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    program = str(Path(sys.executable).with_name(expanded[0]))
    env = os.environ | given | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen([program, *expanded[1:]], env=env, cwd=folder, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"),
    [("pytorchjob", 2), pytest.param("pytorchjob-single", 1, marks=pytest.mark.cluster)],
)
def test_the_winners_job_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, count: int
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TEST_PORT", str(free.getsockname()[1]))
    containers = pods(tmp_path, name)
    assert len(containers) == count
    running = [start(one, rank, tmp_path) for rank, one in enumerate(containers)]
    try:
        assert [process.wait(200) for process in running] == [0] * count
    finally:
        for process in running:
            process.kill()
    assert TrialPaths(tmp_path / "out").checkpoint_steps()[-1] == 4
