"""The teacher's most probable tokens, computed once for all trials of a sweep.

    <cache>/teacher-outputs-<key>/ids.npy         [sequences, sequence_length, top_k] tokens
    <cache>/teacher-outputs-<key>/log_probs.npy   float16 of the same shape, nats, temperature 1
    <cache>/teacher-outputs-<key>/meta.json       the settings that the key is a digest of

They are of the train split, and hold no temperature, so that a sweep may search it. The key is a
digest of the teacher's files, the data and the settings.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from results.export.quiet import quiet_transformers
from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH, separator
from trainables.causal_lm.model.objective import (
    move_model,
    next_token_logits,
    text_inputs,
    to_device,
)
from trainables.client import Rows
from trainables.data.shared_folder import content_digest, publish_settings
from trainables.data.text.dataset import Dataset
from trainables.distill.config import DistillConfig
from trainables.training.data_sampler import shares
from trainables.training.precision import compute_dtype
from trainables.training.pretrained import pretrained_model
from trainables.worker import Worker

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the arrays; raise it with any change of code that changes them."""


@dataclass(frozen=True)
class Outputs:
    """Arrays of a teacher's outputs, mapped into memory."""

    ids: np.ndarray[Any, Any]
    log_probs: np.ndarray[Any, Any]

    @classmethod
    def open(cls, folder: Path) -> Outputs:
        """The arrays in a folder."""
        ids, log_probs = (np.load(folder / f"{n}.npy", mmap_mode="r") for n in _ARRAYS)
        return cls(ids, log_probs)

    def batch(self, rows: Rows, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens, int64 [rows, length, top_k], and their log-probabilities, float32."""
        log_probs = torch.from_numpy(self.log_probs[rows].astype(np.float32))
        if device.type == "cuda":
            log_probs = log_probs.pin_memory()
        return to_device(self.ids[rows], device), log_probs.to(device, non_blocking=True)


_ARRAYS = ("ids", "log_probs")


def compute_outputs(
    config: DistillConfig, dataset: Dataset, teacher: Path, worker: Worker
) -> Outputs:
    """The outputs of a teacher on the train split, computed unless they are there.

    Other trials and ranks wait; none of them runs the teacher.

    Args:
        config: of the trial.
        dataset: the text.
        teacher: folder of the model.
        worker: this rank.
    """
    top_k = min(config.top_k, int(dataset.meta["vocab_size"]))
    settings = {
        "version": VERSION,
        "teacher": {f.name: content_digest(f, worker.cache) for f in _files(teacher)},
        "data": dataset.key,
        "packing": config.packing,
        "top_k": top_k,
        "dtype": str(compute_dtype(config.dtype, worker.device)),
    }

    def build(new: Path) -> None:
        with torch.random.fork_rng(devices=[]):  # a trial that finds them draws no numbers
            mass = _write(new, config, dataset, teacher, worker, top_k)
        (new / "meta.json").write_text(json.dumps({**settings, "mass": mass}, indent=1))

    prefix, alive = "teacher-outputs-", worker.heartbeat
    return Outputs.open(publish_settings(worker.cache, settings, build, prefix=prefix, alive=alive))


def _files(teacher: Path) -> list[Path]:
    weights = [*teacher.glob("*.safetensors"), *teacher.glob("pytorch_model*.bin")]
    return [teacher / "config.json", *sorted(weights)]


def _write(
    folder: Path,
    config: DistillConfig,
    dataset: Dataset,
    teacher: Path,
    worker: Worker,
    top_k: int,
) -> float:
    """Write the arrays; returns the mean probability of all kept tokens of a position."""
    rows, vocabulary = dataset.sequences(Split.TRAIN), int(dataset.meta["vocab_size"])
    shape = (len(rows), config.sequence_length, top_k)
    ids, log_probs = (
        np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype=dtype, shape=shape)
        for name, dtype in zip(_ARRAYS, (rows.dtype, np.float16), strict=True)
    )
    size = (ids.nbytes + log_probs.nbytes) / 2**20
    log.info("the teacher's top %d of %d sequences take %.1f MiB", top_k, len(rows), size)
    with quiet_transformers():
        model = move_model(pretrained_model(str(teacher)), worker.device).eval()
    mass = 0.0
    for part in shares(len(rows), EVAL_BATCH, 0, 1):
        worker.heartbeat()
        tokens, _, positions = text_inputs(
            to_device(rows[part], worker.device), separator(dataset, config)
        )
        with torch.no_grad():
            logits = next_token_logits(model, tokens[:, :-1], config, positions)
            top = logits[:, :vocabulary].log_softmax(dim=1).topk(top_k, dim=1)
        ids[part] = top.indices.cpu().numpy().reshape(ids[part].shape)
        log_probs[part] = top.values.cpu().numpy().reshape(ids[part].shape)
        mass += float(top.values.double().exp().sum())
    ids.flush()
    log_probs.flush()
    log.info("they hold %.1f %% of its probability", 100 * mass / (shape[0] * shape[1]))
    return mass / (shape[0] * shape[1])
