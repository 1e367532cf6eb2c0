"""What of a sweep file another machine does not have: refused before anything is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.spec.cluster import ClusterSpec
from tuning.controller.preflight.relative_paths import with_absolute_fixed
from tuning.controller.resources.placement import Node, compute_placement

_ROOM = 1 << 20
"""Bytes that a ConfigMap may hold."""


def require_cluster(loaded: LoadedSweep) -> tuple[ClusterSpec, int]:
    """The `cluster` section of a file, and its number of machines.

    Raises:
        UserError: there is none, or no trial fits it.
    """
    cluster = loaded.spec.cluster
    if cluster.max_nodes is None:
        raise UserError(
            f"{loaded.path.name}: needs cluster.max_nodes, like "
            "cluster: {max_nodes: 8, cpus: 8, gpus: 2, memory: 32}"
        )
    node = Node(cluster.cpus, cluster.gpus)
    compute_placement(loaded.spec.resources, [node] * cluster.max_nodes)
    return cluster, cluster.max_nodes


def require_image(loaded: LoadedSweep) -> tuple[ClusterSpec, int]:
    """As `require_cluster`, whose machines run an image.

    Raises:
        UserError: also if none is named.
    """
    cluster, nodes = require_cluster(loaded)
    if cluster.image is None:
        raise UserError(f"{loaded.path.name}: needs cluster.image, like example.org/tune:1.0")
    return cluster, nodes


def set_options(changes: Sequence[str]) -> list[str]:
    """Changes of a sweep file as options of `tune`."""
    return [word for change in changes for word in ("--set", change)]


def require_clusters(sweeps: Sequence[LoadedSweep]) -> tuple[ClusterSpec, int]:
    """Machines on which each of several sweeps fits, and their number; see `require_cluster`.

    Raises:
        UserError: it does not, or there is no sweep.
    """
    if not sweeps:
        raise UserError("no train stage: nothing says which machines the job gets")
    clusters, nodes = zip(*map(require_cluster, sweeps), strict=True)
    most = {key: max(getattr(c, key) for c in clusters) for key in ("cpus", "gpus", "memory")}
    return clusters[0].model_copy(update=most), max(nodes)


def files_of(loaded: LoadedSweep) -> dict[str, str]:
    """Name and content of the sweep file, and of the scripts beside it.

    Raises:
        UserError: the file needs others, all named.
    """
    folder = loaded.path.absolute().parent.resolve()
    named = [name for name in (loaded.spec.named, *loaded.spec.user_code.named.values()) if name]
    scripts = {Path(n.rpartition(":")[0]).resolve() for n in named if ".py:" in n}
    problems = [f"{s}: not beside {loaded.path.name}" for s in scripts if s.parent != folder]
    problems += [*_local(loaded)]
    if problems:
        raise UserError(*(f"cannot be rendered: {problem}" for problem in problems))
    found = {p.name: p.read_text(encoding="utf-8") for p in (loaded.path, *sorted(scripts))}
    if sum(map(len, found.values())) > _ROOM:
        raise UserError(f"cannot be rendered: {', '.join(found)} have more than 1 MiB together")
    return found


def _local(loaded: LoadedSweep) -> Iterator[str]:
    """Files of this machine that trials or the driver read."""
    spec, folder = loaded.spec, loaded.path.absolute().parent
    advice = "put it into the image or the volume, and give its whole path there"
    for word, written in zip(spec.command or (), loaded.command, strict=False):
        if word != written or (not os.path.isabs(word) and (folder / word).is_file()):
            yield f"command: {written} is a file of this machine; {advice}"
    fixed = with_absolute_fixed(loaded).fixed
    for key in (key for key, value in fixed.items() if value != spec.fixed.get(key)):
        yield f"fixed.{key}: a path of this machine; {advice}"
    for sweep in spec.search.warm_start:
        if "://" not in sweep:
            yield f"search.warm_start: {sweep} is a folder of this machine; give an address"
    monitoring = spec.monitoring
    for key in ("certificate", "client_ca", "textfile"):
        if getattr(monitoring, key) is not None:
            yield f"monitoring.{key}: a file of this machine; the manifests have their own port"
