"""`tune submit --to k8s` by the real kubectl, against a server that keeps objects."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from results.paths import SweepPaths
from tests.cli.conftest import ROOT, Tune
from tests.cli.elsewhere.kube_api import KubeApi, kube_api
from tuning.submit.jobs import own_note
from tuning.submit.kubernetes import state_of


def why_not() -> str | None:
    """Why this machine's kubectl cannot apply the manifests; None if it can."""
    if shutil.which("kubectl") is None:
        return "no kubectl"
    asked = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True)
    minor = json.loads(asked.stdout)["clientVersion"]["minor"]
    return None if int(minor.rstrip("+")) >= 21 else f"kubectl 1.{minor} knows no components"


pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=str(why_not())),
    pytest.mark.slow,
]
SWEEP = """
name: llm
trainable: digits
metric: loss
space: {learning_rate: {uniform: [0.1, 0.2]}}
scheduler: {name: none}
budget: {trials: 2}
tracking: {name: none}
cluster: {max_nodes: 2, cpus: 4, image: "example.org/tune:1.0", namespace: people}
"""
KINDS = {
    *(("v1", kind) for kind in ("Namespace", "Pod", "Service", "ServiceAccount", "ConfigMap")),
    *(("v1", kind) for kind in ("ResourceQuota", "PersistentVolumeClaim")),
    *(("apps/v1", kind) for kind in ("Deployment", "StatefulSet")),
    *(("networking.k8s.io/v1", "NetworkPolicy"), ("policy/v1", "PodDisruptionBudget")),
    *(("scheduling.k8s.io/v1", "PriorityClass"), ("ray.io/v1", "RayJob")),
    *(("kueue.x-k8s.io/v1beta2", f"{kind}Queue") for kind in ("Local", "Cluster")),
    *(("kueue.x-k8s.io/v1beta2", k) for k in ("ResourceFlavor", "WorkloadPriorityClass")),
}
JOB = "/apis/ray.io/v1/namespaces/people/rayjobs/llm"
PODS = "/api/v1/namespaces/people/pods"


@pytest.fixture
def file(tune: Tune) -> Path:
    return tune.write("llm.yaml", SWEEP)


@pytest.fixture
def api(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    monkeypatch.setenv("KUBECONFIG", str(tune.cwd / "config"))
    monkeypatch.setenv("HOME", str(tune.cwd))  # kubectl remembers there what a server has
    with kube_api(KINDS, tune.cwd / "config") as made:
        yield made


def submit(tune: Tune, file: Path, *options: str) -> str:
    return tune("submit", file, "--to", "k8s", *options).out


def test_job_is_followed_from_the_queue_to_its_end(tune: Tune, file: Path, api: KubeApi) -> None:
    assert "k8s job people/llm begins sweep llm" in submit(tune, file, "--with", "queue")
    job, note = api.objects[JOB], own_note(SweepPaths(tune.cwd / "sweeps" / "llm"))
    assert "--or-resume" in job["spec"]["entrypoint"]
    assert (note.id, note.place) == ("people/llm", "test")
    assert " suspended (Kueue, queue sweeps) " in tune("queue").out
    job["spec"]["suspend"] = False  # Kueue admits it
    assert " pending " in tune("queue").out
    job["status"] = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
    assert " running " in tune("queue").out
    again = tune.refused("submit", file, "--to", "k8s")
    assert again == "k8s: RayJob people/llm is running: it has this name\n"
    job["status"] = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    assert " ended (complete) " in tune("queue").out
    assert " in its cluster " in tune("queue").out


def test_job_that_has_ended_is_replaced(tune: Tune, file: Path, api: KubeApi) -> None:
    submit(tune, file)
    api.objects[JOB]["status"] = {"jobDeploymentStatus": "Failed", "reason": "AppFailed"}
    assert " ended (failed: AppFailed) " in tune("queue").out
    assert "k8s job people/llm continues sweep llm" in submit(tune, file)
    assert f"DELETE {JOB}" in {asked.partition("?")[0] for asked in api.asked}
    assert "status" not in api.objects[JOB]


def test_job_of_another_user_is_not_asked_for(
    tune: Tune, file: Path, api: KubeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(tune, file)
    monkeypatch.setenv("TUNE_KEY", "the key of another user")
    api.asked.clear()
    said = "another user submitted it, and only that one may ask"
    assert said in tune.refused("cancel", "llm")
    assert said in tune("queue").err
    assert not api.asked


def test_job_that_waits_is_deleted(tune: Tune, file: Path, api: KubeApi) -> None:
    submit(tune, file)
    assert "was pending, and ends; checkpoints are kept" in tune("cancel", "llm").out
    assert JOB not in api.objects
    assert " ended (deleted) " in tune("queue").out
    assert "has ended (deleted)" in tune("cancel", "llm").out


def test_job_that_runs_is_stopped_before_it_is_deleted(
    tune: Tune, file: Path, api: KubeApi
) -> None:
    """This server runs nothing in a pod: the job must stay."""
    submit(tune, file)
    running = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "jobId": "llm-x"}
    api.objects[JOB]["status"] = running | {"rayClusterName": "llm-1"}
    labels = {"ray.io/cluster": "llm-1", "ray.io/node-type": "head"}
    head: dict[str, Any] = {"kind": "Pod", "apiVersion": "v1"}
    head |= {"metadata": {"name": "head-1", "labels": labels}}
    api.objects[f"{PODS}/head-1"] = head | {"spec": {"containers": [{"name": "ray-head"}]}}
    api.refusals["/pods/head-1/exec"] = (403, "Forbidden")
    said = tune.refused("cancel", "llm")
    assert said.startswith("kubectl: ")
    assert said.count("\n") == 1
    [stop] = (asked for asked in api.asked if "/exec?" in asked and asked.startswith("POST"))
    assert "command=ray&command=job&command=stop&command=llm-x" in stop
    assert "container=ray-head" in stop
    assert JOB in api.objects


@pytest.mark.parametrize("refusal", [(403, "Forbidden"), (409, "Conflict")])
def test_refusal_of_the_server_is_one_line(
    tune: Tune, file: Path, api: KubeApi, refusal: tuple[int, str]
) -> None:
    api.refusals["POST "] = refusal
    said = tune.refused("submit", file, "--to", "k8s")
    assert said.startswith("kubectl: ")
    assert refusal[1] in said
    assert said.count("\n") == 1
    assert not (tune.cwd / "sweeps" / "llm").exists()


def test_cluster_must_be_known(
    tune: Tune, file: Path, monkeypatch: pytest.MonkeyPatch, api: KubeApi
) -> None:
    other = tune.refused("submit", file, "--to", "k8s", "--address", "elsewhere")
    assert "kubectl: " in other
    assert '"elsewhere"' in other
    monkeypatch.setenv("KUBECONFIG", str(tune.cwd / "none"))
    said = tune.refused("submit", file, "--to", "k8s")
    assert said == "kubectl: error: current-context is not set\n"
    monkeypatch.setenv("PATH", str(tune.cwd))
    said = tune.refused("submit", file, "--to", "k8s")
    assert said.startswith("kubectl: no such program on this machine; install it")
    assert not api.asked


def test_overlay_that_outlives_the_job_is_refused(tune: Tune, file: Path, api: KubeApi) -> None:
    said = tune.refused("submit", file, "--to", "k8s", "--with", "monitoring")
    assert "apply it once, by: tune render k8s" in said
    assert "no such overlay" in tune.refused("submit", file, "--to", "k8s", "--with", "spott")


def test_pipeline_is_refused(tune: Tune, api: KubeApi) -> None:
    pipeline = ROOT / "search_spaces" / "pipelines" / "stories.yaml"
    said = tune.refused("submit", pipeline, "--to", "k8s")
    assert said == "k8s: takes no pipeline; submit the files of its sweeps\n"


@pytest.mark.parametrize(
    ("word", "shown"),
    [("Initializing", "pending (initializing)"), ("Suspended", "suspended"), ("", "pending")],
)
def test_words_of_kuberay(word: str, shown: str) -> None:
    found = {"metadata": {}, "spec": {}, "status": {"jobDeploymentStatus": word}}
    assert state_of(found).words == shown
