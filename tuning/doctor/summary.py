"""Statistics of a rehearsal over its workers, and its record as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from search_spaces.errors import quantity
from tuning.doctor.findings import link_speeds

if TYPE_CHECKING:
    from tuning.doctor.findings import RehearsalFinding
    from tuning.doctor.launch import Rehearsal
    from tuning.doctor.settings import Measured, Settings

HEAD = (
    *("model_caching_time", "parquet_discovery_time", "launch_time", "workers_time"),
    "consolidation_time",
)
WORKERS = (
    *("import_time", "links_time", "all_reduce_time", "all_reduce_mb_per_s"),
    *("parquet_load_time", "data_check_time", "model_load_time", "tokenizer_load_time"),
    *("training_simulation_time", "wait_time", "barrier_time"),
    *("checkpoint_save_time", "checkpoint_read_time", "overall_time", "cpu_time"),
    *("parquet_size_mb", "model_size_mb", "checkpoint_size_mb", "memory_mb"),
    *("parquet_rows", "loss"),
)
"""The lines of the table, in the order of the work: seconds, then MB, then rows and the loss."""


def statistics_of(workers: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """Min, mean and max of the measurements over all workers that have them; the total of rows."""
    found = {}
    for name in WORKERS:
        if values := [float(worker[name]) for worker in workers if name in worker]:
            total = sum(values)
            found[name] = {"min": min(values), "mean": total / len(values), "max": max(values)}
            if name == "parquet_rows":
                found[name]["total"] = total
    return found


def link_summary(workers: Sequence[Measured]) -> str | None:
    """Number of pairs, and the range of their speeds; None without pairs."""
    speeds = link_speeds(workers).values()
    if not speeds:
        return None
    trips = [trip for w in workers for trip, _ in w.get("links", {}).values()]
    many = f"{quantity(len(speeds), 'pair')} of workers"
    trip = f"round trip {min(trips):.3g} to {max(trips):.3g} ms"
    return f"{many}, {min(speeds):.3g} to {max(speeds):.3g} MB/s, {trip}"


def record(
    settings: Settings, rehearsal: Rehearsal, found: Sequence[RehearsalFinding], hub_token: bool
) -> dict[str, Any]:
    """Everything for JSON; of the token only whether there is one."""
    return {
        "settings": {
            "workers": settings.workers,
            "cpus_per_worker": settings.resources.cpus_per_worker,
            "parquet": list(settings.parquet),
            "model": settings.model.model_name_or_path or settings.model_name,
            "checkpoint_dir": str(settings.folder),
            "learning_rate": settings.learning_rate,
            "max_seq_length": settings.max_seq_length,
            "seconds": settings.seconds,
            "container_name": settings.container,
            "hf_token": hub_token,
        },
        "folders": {
            "base_model": str(settings.base_model),
            "worker_checkpoints": str(settings.worker_checkpoints),
            "model": str(settings.final_model),
        },
        "head": rehearsal.head,
        "statistics": statistics_of(rehearsal.workers),
        "workers": rehearsal.workers,
        "findings": [asdict(finding) for finding in found],
        "fine": not any(finding.breaks for finding in found),
    }
