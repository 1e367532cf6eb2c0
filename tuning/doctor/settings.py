"""What a rehearsal uses: the environment goes before the sweep file, that before defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from search_spaces.errors import UserError
from search_spaces.spec.resources import MAX_WORKERS, ResourcesSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.causal_lm.config import CausalLMConfig
from trainables.config import explain
from trainables.registry import resolve
from tuning.controller.resources.placement import Node, worker_slots

Measured = dict[str, Any]
"""What a worker measured, by name."""
TINY = "tiny"
"""The name of the built-in model, a Llama of 0.1 M parameters that reads bytes."""
BYTES_VOCABULARY = 257


class RehearsalEnvironment(BaseModel):
    """The environment variables of a rehearsal; empty ones count as missing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    DATA_DIR: str | None = None
    PARQUET_PATH: str | None = None
    MODEL_NAME: str | None = None
    NUM_WORKERS: int | None = Field(None, ge=1, le=MAX_WORKERS)
    CHECKPOINT_DIR: str | None = None
    LEARNING_RATE: float = Field(2e-5, gt=0, allow_inf_nan=False)
    MAX_SEQ_LENGTH: int = Field(512, ge=2)
    CONTAINER_NAME: str | None = None

    @property
    def parquet(self) -> list[str]:
        """Patterns of Parquet files."""
        if self.PARQUET_PATH:
            return [self.PARQUET_PATH]
        return [f"{self.DATA_DIR}/c4/*.parquet"] if self.DATA_DIR else []


@dataclass(frozen=True)
class Settings:
    """A checked rehearsal.

    Attributes:
        resources: of one trial, whose workers are started.
        parquet: patterns of files; empty: a file is made of docstrings.
        model_name, model: the folder below `base_models/`, and how the model is made.
        folder: holds `base_models/`, `worker_checkpoints/` and `model/`; all machines share it.
        seconds: length of the phase that stands in for training.
        container: is recorded, no more.
    """

    resources: ResourcesSpec
    parquet: tuple[str, ...]
    model_name: str
    model: CausalLMConfig
    folder: Path
    learning_rate: float
    max_seq_length: int
    seconds: float
    container: str | None

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self.resources.max_workers

    @property
    def base_model(self) -> Path:
        """The model that the head caches once."""
        return self.folder / "base_models" / self.model_name

    @property
    def worker_checkpoints(self) -> Path:
        """Folder of a checkpoint per worker."""
        return self.folder / "worker_checkpoints" / self.model_name

    @property
    def final_model(self) -> Path:
        """The average of the workers' models."""
        return self.folder / "model" / self.model_name


@dataclass(frozen=True)
class RehearsalTask:
    """What all workers get from the head: of a module that imports no torch.

    Attributes:
        files: the Parquet files that the head found.
    """

    settings: Settings
    files: tuple[str, ...]
    gpus_per_worker: float


def read_environment(environ: Mapping[str, str]) -> RehearsalEnvironment:
    """The settings in environment variables.

    Raises:
        UserError: all values that are wrong, a line each.
    """
    given = {name: environ[name] for name in RehearsalEnvironment.model_fields if environ.get(name)}
    try:
        return RehearsalEnvironment.model_validate(given)
    except ValidationError as e:
        found = (explain(error, RehearsalEnvironment) for error in e.errors(include_url=False))
        raise UserError(*(f"{'.'.join(path)}: {problem}" for path, problem in found)) from e


def make_settings(
    environment: RehearsalEnvironment,
    spec: SweepSpec | None,
    sampled: Sequence[Mapping[str, Any]],
    storage: Path,
    workers: int | None,
    seconds: float,
) -> Settings:
    """Settings from the option `workers`, the environment, and a sweep's file if there is one.

    Args:
        sampled: configurations of the sweep, nested.

    Raises:
        UserError: `MODEL_NAME` cannot be the name of a folder.
    """
    resources = spec.resources if spec else ResourcesSpec(workers=2, concurrency=1)
    count = workers or environment.NUM_WORKERS or resources.min_workers
    name, model = _model(environment, spec, sampled)
    data = sampled[0].get("data") if sampled else None
    paths = data.get("paths", []) if isinstance(data, Mapping) else []
    own = [p for p in ([paths] if isinstance(paths, str) else paths) if p.endswith(".parquet")]
    folder = environment.CHECKPOINT_DIR
    return Settings(
        resources=resources.model_copy(update={"workers": count}),
        parquet=tuple(environment.parquet or own),
        model_name=name,
        model=model,
        folder=Path(folder).expanduser().absolute() if folder else storage / "doctor",
        learning_rate=environment.LEARNING_RATE,
        max_seq_length=environment.MAX_SEQ_LENGTH,
        seconds=seconds,
        container=environment.CONTAINER_NAME,
    )


def share_cpus(resources: ResourcesSpec, nodes: Sequence[Node]) -> ResourcesSpec:
    """Resources with the largest part of a CPU per worker, at most 1, with which all workers fit.

    If they do not fit with any, the resources are as given.
    """
    for parts in range(1, resources.max_workers + 1):
        each = int(1e4 / parts) / 1e4  # Ray counts ten-thousandths
        tried = resources.model_copy(update={"cpus_per_worker": each})
        if worker_slots(tried, 0, nodes) >= tried.max_workers:
            return tried
    return resources


def _model(
    environment: RehearsalEnvironment, spec: SweepSpec | None, sampled: Sequence[Mapping[str, Any]]
) -> tuple[str, CausalLMConfig]:
    """Name and configuration: of `MODEL_NAME`, of the sweep's largest language model, or tiny."""
    name = environment.MODEL_NAME
    if name is None and spec is not None:
        configs = [resolve(spec.trainable).Config.model_validate(dict(s)) for s in sampled]
        if sizes := [c for c in configs if isinstance(c, CausalLMConfig)]:
            largest = max(sizes, key=lambda c: c.checkpoint_bytes or 0)
            name = largest.model_name_or_path
            if name is None:
                return f"{spec.name}-{_digest(largest.model_dump_json())}", largest
    if name in (None, TINY):
        length = environment.MAX_SEQ_LENGTH
        return TINY, CausalLMConfig(vocab_size=BYTES_VOCABULARY, sequence_length=length)
    config = Path(name) / "config.json"
    if config.is_file():  # a changed model is another one
        key = f"{config.resolve()} {config.stat().st_mtime_ns}"
        folder = f"{config.resolve().parent.name}-{_digest(key)}"
    elif Path(name).is_absolute() or ".." in Path(name).parts:
        raise UserError(f"model {name}: no such folder with config.json; set MODEL_NAME to one")
    else:
        folder = name
    return folder, CausalLMConfig(model_name_or_path=name)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
