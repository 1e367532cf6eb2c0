"""From a sweep file to manifests for Kubernetes."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.metadata import version
from typing import Any

from ruamel.yaml import YAML

from search_spaces.errors import UserError, suggest
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.spec.cluster import ClusterSpec
from search_spaces.spec.env_vars import original, references
from search_spaces.spec.sweep import ENV_FIELDS, SweepSpec
from tuning.deploy.k8s import FINAL, OVERLAYS, fill, ray_cluster, templates
from tuning.submit.final import final_values
from tuning.submit.portable import files_of, require_image, set_options

_OWN = {("storage",), ("monitoring", "token")}
"""Fields that the manifests set themselves."""
_START_S = 1800.0
"""Seconds in which a machine of the autoscaler starts, and pulls the image."""
_OTHERS = {"cpus": 12, "memory": 48}
"""Room of the quota for two heads, of which one ends, MLflow, its database, and jobs."""
_POSTGRES = "postgres:17.2-bookworm"
_JOB = f"{FINAL}pytorchjob.yaml"


def render_k8s(
    loaded: LoadedSweep,
    overlays: Sequence[str] = (),
    winner: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Content of each manifest, by its path.

    Args:
        overlays: those that are switched on.
        winner: parameters to train after the sweep, by dotted name; None: nothing.

    Raises:
        UserError: it cannot be rendered, in a line for each reason.
    """
    (cluster, nodes), files = require_image(loaded), files_of(loaded)
    values = _values(loaded, cluster, nodes, list(files)) | {"components": _components(overlays)}
    texts = dict(templates())
    final = {name: texts.pop(name) for name in list(texts) if name.startswith(FINAL)}
    made = {name: fill(text, values, cluster.gpus > 0) for name, text in texts.items()}
    made |= {f"base/{name}": text for name, text in files.items()}
    jobs = _yaml().load_all(made["base/rayjob.yaml"])
    cluster_alone, out = ray_cluster(next(d for d in jobs if d["kind"] == "RayJob")), io.StringIO()
    _yaml().dump(json.loads(json.dumps(cluster_alone)), out)
    made["raycluster.yaml"] = out.getvalue()
    if winner is None:
        return made
    values |= final_values(loaded, cluster, winner)
    made |= {name: fill(text, values, cluster.gpus > 0) for name, text in final.items()}
    made |= {f"{FINAL}{name}": text for name, text in files.items()}
    if not values["final_workers"]:
        del made[_JOB]
    values |= final_values(loaded, cluster, winner, single=True)
    single = fill(final[_JOB], values, cluster.gpus > 0).partition("    Worker:\n")[0]
    return made | {_JOB.replace(".yaml", "-single.yaml"): single}


def cluster_name(name: str) -> str:
    """A sweep's name as Kubernetes takes it, with room for the suffixes of KubeRay.

    Raises:
        UserError: it is too long, or nothing is left of it.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not 0 < len(plain) <= 40 or not plain[0].isalpha():
        raise UserError(
            f"name: {name} cannot be rendered: Kubernetes takes 40 characters at most, the first "
            "a letter"
        )
    return plain


def command_of(loaded: LoadedSweep) -> list[str]:
    """The command of the driver in its pod, with what is different there."""
    spec = loaded.spec
    changes = [*loaded.overrides, "monitoring.port=9108", "monitoring.host=0.0.0.0"]
    changes.append("monitoring.token=${METRICS_TOKEN}")
    if spec.tracking.name == "mlflow" and spec.tracking.uri is None:
        changes.append("tracking.uri=http://mlflow:5000")
    if spec.failure.start_timeout < _START_S:
        changes.append(f"failure.start_timeout={_START_S:g}")
    command = f"tune run sweep/{loaded.path.name} --or-resume --storage /sweeps"
    return [*command.split(), *set_options(changes)]


def variables(spec: SweepSpec) -> list[str]:
    """Names of the variables that the sweep file reads from the environment."""
    values: list[Any] = [reduce(getattr, path, spec) for path in ENV_FIELDS - _OWN]
    return sorted({name for value in values for name in references(original(value) or "")})


def _values(
    loaded: LoadedSweep, cluster: ClusterSpec, nodes: int, files: list[str]
) -> dict[str, Any]:
    secrets = ["METRICS_TOKEN", *variables(loaded.spec)]
    grown = {"max_nodes": nodes, "cpus": cluster.cpus, "gpus": cluster.gpus}
    return {
        **cluster.model_dump(include={"namespace", "image", "cpus", "gpus"}),
        **cluster.model_dump(include={"min_nodes", "max_nodes"}),
        "name": cluster_name(loaded.spec.name),
        "files": ", ".join(files),
        "command": shlex.join(command_of(loaded)),
        "autoscaling": json.dumps(grown),
        "ray": version("ray"),
        "postgres": _POSTGRES,
        "memory": f"{cluster.memory}Gi",
        "shm": f"{max(1, cluster.memory // 4)}Gi",
        "quota_cpus": nodes * cluster.cpus + _OTHERS["cpus"],
        "quota_memory": f"{nodes * cluster.memory + _OTHERS['memory']}Gi",
        "quota_gpus": nodes * cluster.gpus,
        "secrets": " ".join(f'--from-literal={name}="${name}"' for name in secrets),
    }


def _components(overlays: Sequence[str]) -> str:
    for name in overlays:
        if name not in OVERLAYS:
            raise UserError(f"--with {name}: no such overlay{suggest(name, OVERLAYS)}")
    return ", ".join(f"overlays/{name}" for name in sorted(set(overlays)))


def _yaml() -> YAML:
    yaml = YAML()
    yaml.width = 4096
    return yaml
