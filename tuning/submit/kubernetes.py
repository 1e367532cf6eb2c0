"""Kubernetes: the manifests of `tune render k8s`, applied by the user's own kubectl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from results.storage.folder import write_folder
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from tuning.submit.engine import ENDS, Engine, Job, JobState, answer, ask, error_line, match_id
from tuning.submit.manifests import cluster_name, render_k8s

_NEEDS = "install it, 1.21 or newer, and name the cluster in ~/.kube/config"
_QUEUE = "kueue.x-k8s.io/queue-name"
_STOP_S = 180.0
"""Seconds for a driver that is told to stop: the manifests give it 120 to save checkpoints."""
_WAITS = ("", "new", "initializing", "waiting", "retrying")


class Kubernetes(Engine):
    """KubeRay's jobs in one cluster.

    Args:
        place: a context of kubectl; None: the current one.
    """

    shares_folder = False

    def __init__(self, place: str | None = None) -> None:
        self.place = place or answer("kubectl", "config", "current-context", needs=_NEEDS)

    def check(self, sweeps: Sequence[LoadedSweep], options: Sequence[str]) -> list[str]:
        """Options are overlays; the manifests can be rendered; no other job has the name."""
        loaded = _only(sweeps)
        if "monitoring" in options:
            raise UserError(
                "--with monitoring: it outlives a job; apply it once, by: "
                f"tune render k8s {loaded.path} DIR --with monitoring"
            )
        render_k8s(loaded, options)
        name = job_name(loaded)
        if (found := self._get(name)) is not None and not state_of(found).over:
            raise UserError(f"k8s: RayJob {name} is {state_of(found).words}: it has this name")
        return ["secrets that the cluster needs: k8s/README.md in the sweep's folder"]

    def submit(self, job: Job) -> str:
        """Write the manifests into the sweep's folder, and apply them."""
        loaded, folder = _only(job.sweeps), job.paths.manifests
        name = job_name(loaded)
        write_folder(folder, render_k8s(loaded, job.options))
        if self._get(name) is not None:  # it has ended, and would not run again
            self._ask("delete", *_named(name))
        self._ask("apply", "-k", str(folder))
        return name

    def state(self, job_id: str) -> JobState:
        """KubeRay's words for it, and Kueue's."""
        found = self._get(job_id)
        return JobState.ended("deleted") if found is None else state_of(found)

    def cancel(self, job_id: str) -> str:
        """Let Ray stop the driver, which pauses the sweep; then delete the job and its cluster."""
        status = (self._get(job_id) or {}).get("status", {})
        head = self._head(job_id, status.get("rayClusterName"))
        if head is not None and status.get("jobStatus") == "RUNNING":
            inside = ("exec", *head, "-c", "ray-head", "--", "ray", "job", "stop", status["jobId"])
            self._ask(*inside, limit_s=_STOP_S)
        self._ask("delete", *_named(job_id), "--wait=false")
        return ENDS

    def _get(self, job_id: str) -> dict[str, Any] | None:
        """The RayJob; None: there is none."""
        done = ask(*self._kubectl, "get", *_named(job_id), "-o", "json", needs=_NEEDS)
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(done.stdout)
            return found
        if "(NotFound)" in done.stderr:
            return None
        raise UserError(f"kubectl: {error_line(done.stderr)}")

    def _head(self, job_id: str, cluster: str | None) -> tuple[str, str, str] | None:
        """Arguments that name the pod of a cluster's head."""
        namespace = job_id.partition("/")[0]
        labels = f"ray.io/cluster={cluster},ray.io/node-type=head"
        asked = ("get", "pods", "-n", namespace, "-l", labels, "-o", "name")
        pod = self._ask(*asked) if cluster else ""
        return (pod.splitlines()[0], "-n", namespace) if pod else None

    def _ask(self, *command: str, **limit: float) -> str:
        return answer(*self._kubectl, *command, needs=_NEEDS, **limit)

    @property
    def _kubectl(self) -> tuple[str, str]:
        return "kubectl", f"--context={self.place}"


def _only(sweeps: Sequence[LoadedSweep]) -> LoadedSweep:
    if len(sweeps) > 1:
        raise UserError("k8s: takes no pipeline; submit the files of its sweeps")
    return sweeps[0]


def job_name(loaded: LoadedSweep) -> str:
    """Namespace and name of a sweep's RayJob, which is the id of its job."""
    return f"{loaded.spec.cluster.namespace}/{cluster_name(loaded.spec.name)}"


def state_of(found: Mapping[str, Any]) -> JobState:
    """The state of a RayJob, by what KubeRay 1.7 writes into its status."""
    status = found.get("status") or {}
    word = str(status.get("jobDeploymentStatus", "")).lower()
    if word == "complete":
        return JobState.ended("complete")
    if word in ("failed", "validationfailed"):
        said = (status.get("reason"), status.get("message"))
        return JobState.ended(" ".join(f"failed: {': '.join(filter(None, said))}".split())[:200])
    if found["spec"].get("suspend") or word.startswith("suspend"):
        queue = found["metadata"].get("labels", {}).get(_QUEUE)
        return JobState(f"suspended (Kueue, queue {queue})" if queue else "suspended")
    if word in _WAITS:
        return JobState(f"pending ({word})" if word else "pending")
    return JobState(word)


def _named(job_id: str) -> tuple[str, str, str, str]:
    """Arguments that name a RayJob, from an id in a file."""
    parts = match_id("k8s", r"([a-z0-9][a-z0-9-]*)/([a-z0-9][a-z0-9-]*)", job_id)
    return "rayjob.ray.io", parts[2], "-n", parts[1]
