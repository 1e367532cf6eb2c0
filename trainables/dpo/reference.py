"""Log-probabilities of the answers by the first model, computed once for all trials of a sweep.

    <cache>/reference-<key>/{train,selection,test}.npy   float32 [2 * pairs], nats
    <cache>/reference-<key>/meta.json                    the settings that the key is a digest of

The key is a digest of the model's weights, the data and the precision.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH
from trainables.causal_lm.model.model import as_first, new_model
from trainables.causal_lm.model.objective import move_model
from trainables.common.data_sampler import shares
from trainables.data.conversations.dataset import Conversations
from trainables.data.shared_folder import publish
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import answer_log_probs
from trainables.training.checkpoint import weights_digest
from trainables.training.precision import compute_dtype

VERSION = 1
"""Of the arrays; raise it with any change of code that changes them."""


def reference_log_probs(
    config: DPOConfig,
    dataset: Conversations,
    cache: Path,
    device: torch.device,
    alive: Callable[[], None],
) -> dict[Split, npt.NDArray[np.float32]]:
    """Of each answer of each split; computed unless they are there, while other processes wait.

    Args:
        config: of a trial.
        dataset: the pairs.
        cache: folder of prepared data.
        device: of the computation.
        alive: called every now and then.
    """
    model = new_model(config, dataset)
    settings = {
        "version": VERSION,
        "model": weights_digest(model),
        "data": dataset.key,
        "dtype": str(compute_dtype(config.dtype, device)),
        **({"quantize": config.lora.quantize} if config.lora and config.lora.quantize else {}),
    }
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:32]
    folder = cache / f"reference-{key}"

    @torch.no_grad()
    def build(new: Path) -> None:
        frozen = move_model(as_first(model, config), device).eval()
        for split in Split:
            found = []
            for part in shares(len(dataset.lengths(split)), EVAL_BATCH, 0, 1):
                alive()
                inputs = dataset.inputs(split, np.arange(part.start, part.stop), device)
                found.append(answer_log_probs(frozen, *inputs, config).cpu())
            np.save(new / f"{split}.npy", torch.cat(found).numpy())
        (new / "meta.json").write_text(json.dumps(settings, indent=1))

    publish(folder, build, alive)
    return {split: np.load(folder / f"{split}.npy") for split in Split}
