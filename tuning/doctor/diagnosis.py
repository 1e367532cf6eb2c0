"""One call of the doctor: settings, cluster, rehearsal, findings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from results.paths import Storage
from results.storage.atomic import free_bytes
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.spec.sweep import SweepSpec
from tuning.cluster.connection import ray_cluster
from tuning.cluster.ray_processes import ray_messages_to
from tuning.controller.preflight.checks import preflight
from tuning.controller.preflight.relative_paths import with_absolute_fixed
from tuning.controller.preflight.samples import largest_checkpoint
from tuning.controller.resources.placement import Node, compute_placement, worker_slots
from tuning.controller.tracking.observer import default_tracking_uri, tracking_uri
from tuning.doctor.findings import Plan, RehearsalFinding, find
from tuning.doctor.head import rehearse, save_record
from tuning.doctor.launch import Rehearsal
from tuning.doctor.settings import Settings, make_settings, read_environment, share_cpus
from tuning.doctor.summary import record


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor did and found.

    Attributes:
        nodes: the machines of the cluster.
        record: everything, for JSON; also a file beside the average.
    """

    settings: Settings
    nodes: Sequence[Node]
    rehearsal: Rehearsal
    findings: list[RehearsalFinding]
    record: dict[str, Any]


def diagnose(
    loaded: LoadedSweep | None,
    storage: Storage,
    address: str | None,
    workers: int | None,
    seconds: float,
    tell: Callable[[str], None],
) -> Diagnosis:
    """Rehearse a sweep file, or what the environment says, and judge the measurements.

    Raises:
        UserError: a mistake in the file or the environment, no model, no data, no place.
    """
    environment = read_environment(os.environ)
    spec, sampled = None, list[dict[str, Any]]()
    if loaded is not None:
        spec = with_absolute_fixed(loaded)
        sampled = preflight(loaded, files=address is None)
    configs = [spec.nest(params) for params in sampled] if spec else []
    settings = make_settings(environment, spec, configs, storage.root, workers, seconds)
    begun = time.monotonic()
    with ray_cluster(address) as nodes, ray_messages_to(settings.folder / "ray.log"):
        ray_start = time.monotonic() - begun
        if spec is None:
            settings = replace(settings, resources=share_cpus(settings.resources, nodes))
        placement = compute_placement(settings.resources, nodes)
        plan = _plan(spec, sampled, nodes, storage) if spec else None
        uri: str | None = default_tracking_uri(storage)
        if spec is not None:
            is_tracked = spec.tracking.name != "none"
            uri = tracking_uri(spec, storage.sweep(spec.name)) if is_tracked else None
        rehearsal = rehearse(settings, placement, storage.root, uri, tell)
    rehearsal.head["ray_start_time"] = ray_start
    found = find(rehearsal, plan)
    made = record(settings, rehearsal, found, bool(os.environ.get("HF_TOKEN")))
    if rehearsal.workers:
        save_record(settings, made)
    return Diagnosis(settings, nodes, rehearsal, found, made)


def _plan(
    spec: SweepSpec, sampled: list[dict[str, Any]], nodes: Sequence[Node], storage: Storage
) -> Plan:
    """What the sweep needs on this cluster."""
    placement = compute_placement(spec.resources, nodes)
    gpus, at_once = placement.gpus_per_worker, sum(placement.workers_per_trial)
    fit = max(worker_slots(spec.resources, gpus, [node]) for node in nodes)
    return Plan(
        checkpoint_bytes=largest_checkpoint(spec, sampled),
        kept=spec.checkpoint.keep * (spec.budget.trials or placement.concurrency),
        free_bytes=free_bytes(storage.root),
        workers_per_machine=min(fit, at_once),
    )
