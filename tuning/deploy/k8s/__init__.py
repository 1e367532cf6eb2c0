"""Manifests for Kubernetes: a kustomize base, its overlays, and jobs that train a winner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from tuning.deploy import DeployTemplate

FINAL = "final/"
"""Folder of the manifests that train a winner."""
OVERLAYS = ("backup", "encrypted", "monitoring", "queue", "scrape", "spot", "tls")
_GPU = "  # gpu"


def templates() -> Iterator[tuple[str, str]]:
    """Path and content of each template."""
    yield from sorted(_walk(files(__name__), ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".yaml", ".yml", ".md")):
            yield prefix + entry.name, entry.read_text(encoding="utf-8")


def fill(text: str, values: Mapping[str, object], gpus: bool) -> str:
    """Fill the `@{placeholders}` of a template.

    A line with the placeholder of a list is repeated for each element, written as JSON. Lines that
    end in `# gpu` are left out where machines have none.

    Raises:
        KeyError: a placeholder has no value.
    """
    lines = (line for line in text.splitlines() if gpus or not line.endswith(_GPU))
    return "".join(f"{made}\n" for line in lines for made in _filled(line, values))


def _filled(line: str, values: Mapping[str, object]) -> Iterator[str]:
    name = line.strip().removeprefix("- @{").removesuffix("}")
    items = values.get(name)
    if not isinstance(items, list):
        yield DeployTemplate(line.removesuffix(_GPU)).substitute(values)
        return
    for item in items:
        yield line.replace(f"@{{{name}}}", json.dumps(item))


def ray_cluster(job: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster of a RayJob, without the job: it stays, for sweeps that are submitted to it."""
    return {
        "apiVersion": job["apiVersion"],
        "kind": "RayCluster",
        "metadata": job["metadata"],
        "spec": job["spec"]["rayClusterSpec"],
    }
