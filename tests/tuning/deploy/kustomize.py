"""The part of kustomize that the manifests use: CI has no kubectl, a test compares the two."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

Manifest = dict[str, Any]


def read(path: Path) -> list[Any]:
    """The documents of a file, without shared parts: a patch of one place changes no other."""
    found = YAML(typ="safe").load_all(path.read_text(encoding="utf-8"))
    return [json.loads(json.dumps(document)) for document in found if document]


def build(folder: Path) -> list[Manifest]:
    """The manifests of a folder with a kustomization."""
    (kustomization,) = read(folder / "kustomization.yaml")
    found: list[Manifest] = []
    for name in kustomization.get("resources", []):
        path = folder / name
        found += build(path) if path.is_dir() else read(path)
    found += [_config_map(folder, one) for one in kustomization.get("configMapGenerator", [])]
    for name in kustomization.get("components", []):
        _apply(folder / name, found)
    return found


def _apply(component: Path, found: list[Manifest]) -> None:
    (kustomization,) = read(component / "kustomization.yaml")
    found += build(component)
    for patch in kustomization.get("patches", []):
        target = patch["target"]
        chosen = [
            m
            for m in found
            if m["kind"] == target["kind"]
            and m["metadata"]["name"] == target.get("name", m["metadata"]["name"])
        ]
        assert chosen, target
        for manifest in chosen:
            for change in YAML(typ="safe").load(patch["patch"]):
                _add(manifest, change)


def _add(manifest: Manifest, change: dict[str, Any]) -> None:
    assert change["op"] == "add"
    *path, last = [p.replace("~1", "/") for p in change["path"].split("/")[1:]]
    place: Any = manifest
    for key in path:
        place = place[int(key)] if isinstance(place, list) else place[key]
    value = copy.deepcopy(change["value"])
    if last == "-":
        place.append(value)
    else:
        place[last] = value


def _config_map(folder: Path, generator: dict[str, Any]) -> Manifest:
    data = {name: (folder / name).read_text(encoding="utf-8") for name in generator["files"]}
    metadata = {key: generator[key] for key in ("name", "namespace")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
