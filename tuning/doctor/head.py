"""The phases on the head: cache the model, find the data, launch the workers, average."""

from __future__ import annotations

import glob
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.storage.atomic import free_bytes, write_atomic
from results.storage.probe import check_storage
from search_spaces.errors import UserError
from search_spaces.redaction import redact
from tuning.doctor.launch import Rehearsal, run_workers
from tuning.doctor.settings import RehearsalTask, Settings

if TYPE_CHECKING:
    from tuning.controller.resources.placement import Placement

START_TIMEOUT_S = 600.0
"""Longest time for all workers to start: many processes on few cores import for minutes."""
_SAMPLE_ROWS = 200
RECORD = "rehearsal.json"
"""Beside the average: what `--json` prints."""


def rehearse(
    settings: Settings,
    placement: Placement,
    storage: Path,
    tracking_uri: str | None,
    tell: Callable[[str], None],
) -> Rehearsal:
    """Run all phases on the head, and the workers.

    Args:
        storage: where sweeps are kept.
        tracking_uri: of MLflow; None: it is not used.
        tell: called with a line about the progress.

    Raises:
        UserError: there is no such model, or no file.
    """
    found = Rehearsal(settings.workers)
    with found.phase("storage"):
        check_storage(storage)
        check_storage(settings.folder)
    if found.problems:
        return found
    with found.phase("tracking"):
        from results.tracking.mlflow.client import check_reachable

        if tracking_uri is not None:
            check_reachable(tracking_uri)
    tell(f"caching the model {settings.model_name}")
    with found.timed("model_caching"):
        cache_model(settings)
    with found.timed("parquet_discovery"):
        files = discover(settings)
    found.head["parquet_files"] = len(files)
    with found.phase("disk"):
        _check_disk(settings)
    if "disk" not in found.problems:
        _launch(settings, placement, files, found, tell)
        tell("averaging the checkpoints")
        with found.phase("consolidation"):
            consolidate(settings)
    return found


def _launch(
    settings: Settings,
    placement: Placement,
    files: list[Path],
    found: Rehearsal,
    tell: Callable[[str], None],
) -> None:
    """Run the workers, whose checkpoints replace those of the rehearsal before."""
    from trainables.launch.ray_train import WorkerGroupSpec

    shutil.rmtree(settings.worker_checkpoints, ignore_errors=True)
    settings.worker_checkpoints.mkdir(parents=True)
    task = RehearsalTask(settings, tuple(map(str, files)), placement.gpus_per_worker)
    own = settings.folder / ".ray"  # Ray Train's files
    cpus, gpus = placement.resources.cpus_per_worker, placement.gpus_per_worker
    group = WorkerGroupSpec(settings.workers, cpus, gpus, START_TIMEOUT_S, str(own))
    with found.timed("workers"):
        run_workers(task, group, found, tell)
    shutil.rmtree(own, ignore_errors=True)


def cache_model(settings: Settings) -> None:
    """Write model and tokenizer to `base_models/`, unless they are there.

    Raises:
        UserError: there is no such model, or no network to get it.
    """
    from trainables.data.shared_folder import publish

    try:
        publish(settings.base_model, lambda folder: _make_model(settings, folder))
    except (OSError, ValueError) as e:
        reason = redact(str(e).partition("\n")[0])
        raise UserError(
            f"model {settings.model.model_name_or_path or settings.model_name}: cannot be cached "
            f"({reason}); set MODEL_NAME to a folder with config.json, weights and tokenizer, or "
            "to tiny, which needs no download; a gated model needs HF_TOKEN"
        ) from e


def _make_model(settings: Settings, folder: Path) -> None:
    """Model and tokenizer as `transformers` loads them, pretrained or with random weights."""
    from trainables.causal_lm.model.model import new_model, save_model
    from trainables.data.text.dataset import Dataset
    from trainables.data.tokenizer import train_bpe

    meta, config = folder / "meta.json", settings.model
    encoder = train_bpe((), 257)
    random = config.model_name_or_path is None
    size = config.vocab_size if random else encoder.size
    meta.write_text(json.dumps({"vocab_size": size, "end": encoder.end}))
    if random:
        encoder.tokenizer.save(str(folder / "tokenizer.json"))
    save_model(new_model(config, Dataset(folder)), config, Dataset(folder), folder)
    meta.unlink()


def discover(settings: Settings) -> list[Path]:
    """The Parquet files; without a pattern one with docstrings of the standard library.

    Raises:
        UserError: no file matches.
    """
    from trainables.data.corpora.library import write_docstrings

    if not settings.parquet:
        sample = settings.folder / "docstrings.parquet"
        if not sample.exists():
            sample.parent.mkdir(parents=True, exist_ok=True)
            write_docstrings(sample, _SAMPLE_ROWS)
        return [sample]
    found = {path for pattern in settings.parquet for path in glob.glob(pattern, recursive=True)}
    if not found:
        raise UserError(
            f"no Parquet file matches {', '.join(settings.parquet)}; set PARQUET_PATH to a pattern "
            "such as /data/*.parquet, which goes before DATA_DIR/c4/*.parquet"
        )
    return [Path(path).absolute() for path in sorted(found)]


def _check_disk(settings: Settings) -> None:
    """Refuse to fill the disk with checkpoints."""
    weights = sum(f.stat().st_size for f in settings.base_model.glob("*.safetensors"))
    needed, free = weights * (settings.workers + 1), free_bytes(settings.folder)
    if needed > free:
        raise UserError(
            f"{settings.folder}: the checkpoints of {settings.workers} workers and their average "
            f"need {needed / 1e9:.1f} GB, but {free / 1e9:.1f} GB are free; free some space, or "
            "set CHECKPOINT_DIR to another disk"
        )


def consolidate(settings: Settings) -> None:
    """Average the checkpoints of all workers into `model/`, beside config and tokenizer.

    Raises:
        UserError: there is none, or they do not fit together.
    """
    from results.averaging.stream import average

    sources = sorted(settings.worker_checkpoints.glob("worker_*_checkpoint.safetensors"))
    if not sources:
        raise UserError(f"{settings.worker_checkpoints}: no worker has written a checkpoint")
    target = settings.final_model
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in settings.base_model.iterdir():
        if ".safetensors" not in file.name:
            shutil.copy(file, target)
    average(sources, target / "model.safetensors")


def save_record(settings: Settings, record: dict[str, Any]) -> Path:
    """Write what `--json` prints beside the average."""
    path = settings.final_model / RECORD
    write_atomic(path, json.dumps(record, indent=1).encode())
    return path
