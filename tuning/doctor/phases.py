"""What each worker does in a rehearsal, in this order; a function returns what it measured.

Times are in seconds, sizes in MB (10^6 bytes). Where a function returns no time of its own, its
caller takes the time of the whole call.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from results.checkpoints.streaming_hash import pop_hash_sidecar
from results.export.quiet import quiet_transformers
from trainables.checkpointing.tensor_file import write_tensors
from trainables.runtime.provenance import library_versions
from tuning.doctor.network import all_reduce, barrier, clock, links
from tuning.doctor.settings import Measured, RehearsalTask, Settings

_SAMPLE_BYTES, _SAMPLED_FILES, _FOOTERS, _MAX_NAMED = 65_536, 16, 1_000, 3
_MB = 1e6
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass
class State:
    """A worker, and what its phases leave for the next ones."""

    task: RehearsalTask
    rank: int
    world_size: int
    device: torch.device
    text: str = ""
    model: PreTrainedModel = field(init=False)  # its import takes seconds: not of the load
    tokenizer: Any = field(init=False)

    @property
    def settings(self) -> Settings:
        """Of the rehearsal."""
        return self.task.settings


def describe(state: State) -> Measured:
    """Versions, and memory after the imports; a container may have a limit of its own."""
    limits = [float(psutil.virtual_memory().total)]
    with suppress(OSError, ValueError):
        limits.append(float(_CONTAINER_LIMIT.read_text()))
    return {
        "versions": dict(library_versions()),
        "import_memory_mb": psutil.Process().memory_info().rss / _MB,
        "machine_memory_mb": min(limits) / _MB,
    }


def parquet_load(state: State) -> Measured:
    """Read a random file, and choose a random row."""
    path = random.choice(state.task.files)
    table = pq.read_table(path)
    if not table.num_rows:
        raise ValueError(f"{path} has no rows")
    number = random.randrange(table.num_rows)
    row: dict[str, Any] = table.slice(number, 1).to_pylist()[0]
    texts = [value for value in (row.get("text"), *row.values()) if isinstance(value, str)]
    state.text = texts[0] if texts else str(row)
    return {
        "parquet_file": path,
        "parquet_row": number,
        "parquet_rows": table.num_rows,
        "parquet_size_mb": os.path.getsize(path) / _MB,
    }


def data_check(state: State) -> Measured:
    """Digests of data and model, missing files, and a share of the files that cannot be read."""
    files, missing = state.task.files, [f for f in state.task.files if not os.path.exists(f)]
    unreadable = {}
    for path in sorted({*files[state.rank :: state.world_size][:_FOOTERS]} - {*missing}):
        try:
            pq.read_metadata(path)
        except (OSError, ValueError) as e:
            unreadable[path] = str(e).splitlines()[0]
    weights = map(str, sorted(state.settings.base_model.glob("*")))
    spread = files[:: max(1, len(files) // _SAMPLED_FILES)]
    return {
        "digests": {
            "data": digest(files, spread),
            "model": digest(list(weights), sorted(state.settings.base_model.glob("*.safetensors"))),
        },
        "missing": missing[:_MAX_NAMED],
        "missing_files": len(missing),
        "unreadable": unreadable,
    }


def digest(files: Any, sampled: Any) -> str:
    """SHA-256 of names and sizes, and of the first and last 64 KiB of some files."""
    found = hashlib.sha256()
    for path in files:
        size = os.path.getsize(path) if os.path.exists(path) else -1
        found.update(f"{os.path.basename(path)} {size}\n".encode())
    for path in sampled:
        with suppress(FileNotFoundError), open(path, "rb") as f:
            found.update(f.read(_SAMPLE_BYTES))
            f.seek(max(0, os.path.getsize(path) - _SAMPLE_BYTES))
            found.update(f.read(_SAMPLE_BYTES))
    return found.hexdigest()


def model_load(state: State) -> Measured:
    """Load the model from the cache, never from a hub."""
    auto: Any = AutoModelForCausalLM
    with quiet_transformers():
        model = auto.from_pretrained(
            state.settings.base_model,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    state.model = model.to(state.device)
    numbers = sum(p.numel() * p.element_size() for p in model.parameters())
    return {"model_size_mb": numbers / _MB}


def tokenizer_load(state: State) -> Measured:
    """Load the tokenizer from the cache; it pads with the token that ends a text."""
    state.tokenizer = AutoTokenizer.from_pretrained(
        state.settings.base_model, local_files_only=True, trust_remote_code=False
    )
    state.tokenizer.pad_token = state.tokenizer.pad_token or state.tokenizer.eos_token
    return {}


def training_simulation(state: State) -> Measured:
    """One real step of AdamW on the row; then wait for the rest of the given time."""
    begun, length = time.perf_counter(), state.settings.max_seq_length
    tokens = state.tokenizer(state.text).input_ids[:length]
    while len(tokens) < 2:  # a token has no loss without the one before it
        tokens.append(state.tokenizer.eos_token_id or 0)
    ids = torch.tensor([tokens], device=state.device)
    optimizer = torch.optim.AdamW(state.model.parameters(), lr=state.settings.learning_rate)
    loss = state.model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    memory = psutil.Process().memory_info().rss / _MB
    time.sleep(max(0.0, state.settings.seconds - (time.perf_counter() - begun)))
    return {"loss": float(loss.detach()), "memory_mb": memory}


def checkpoint_save(state: State) -> Measured:
    """Write this worker's weights, durably; tied weights once."""
    path = checkpoint_file(state)
    write_tensors(path, _weights(state.model))
    pop_hash_sidecar(path)
    return {"checkpoint_size_mb": path.stat().st_size / _MB}


def checkpoint_read(state: State) -> Measured:
    """Read them back, and compare every byte."""
    found, weights = load_file(checkpoint_file(state)), _weights(state.model)
    same = found.keys() == weights.keys() and all(
        torch.equal(_bits(found[name]), _bits(tensor)) for name, tensor in weights.items()
    )
    return {"checkpoint_same": same}


def checkpoint_file(state: State) -> Path:
    """The checkpoint of a worker."""
    return state.settings.worker_checkpoints / f"worker_{state.rank:03d}_checkpoint.safetensors"


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    once = {tensor.data_ptr(): name for name, tensor in reversed(model.state_dict().items())}
    return {name: model.state_dict()[name] for name in once.values()}


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


COLLECTIVE: dict[str, Callable[[State], Measured]] = {
    f.__name__: f for f in (clock, links, all_reduce, barrier)
}
"""Phases that all ranks enter: after a failure of one, the others cannot go on."""
PHASES: tuple[Callable[[State], Measured], ...] = (
    *(describe, clock, links, all_reduce, parquet_load, data_check, model_load, tokenizer_load),
    *(training_simulation, barrier, checkpoint_save, checkpoint_read),
)
NEEDS: dict[str, str] = {
    "training_simulation": "model_load tokenizer_load parquet_load",
    "checkpoint_save": "model_load",
    "checkpoint_read": "checkpoint_save",
}
"""Phases without which another one is left out."""
