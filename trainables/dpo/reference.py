"""Log-probabilities of the answers by the first model, computed once for all trials of a sweep.

    <cache>/reference-<key>/{train,selection,test}.npy   float32 [2 * pairs], nats
    <cache>/reference-<key>/meta.json                    the settings that the key is a digest of

The key is a digest of the model's weights, the data and the precision. How far a model is from the
first one is the KL term of KTO (Ethayarajh et al. 2024, arXiv:2402.01306), as `trl` estimates it:
in a batch, each question gets the answer of the sample before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH
from trainables.causal_lm.lora import without_adapter
from trainables.causal_lm.model.model import as_first, new_model
from trainables.causal_lm.model.objective import move_model
from trainables.client import Rows
from trainables.data.conversations.dataset import Conversations
from trainables.data.shared_folder import publish_settings
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import answer_log_probs
from trainables.training.data_sampler import shares, to_device
from trainables.training.precision import compute_dtype

VERSION = 1
"""Of the arrays; raise it with any change of code that changes them."""


def reference_log_probs(
    config: DPOConfig,
    dataset: Conversations,
    cache: Path,
    device: torch.device,
    alive: Callable[[], None],
    base_of: Callable[[DPOConfig, Conversations], tuple[nn.Module, str]],
) -> dict[Split, npt.NDArray[np.float32]]:
    """Of each answer of each split; computed unless they are there, while other processes wait.

    Args:
        config: of a trial.
        dataset: the pairs.
        cache: folder of prepared data.
        device: of the computation.
        alive: called every now and then.
        base_of: gives the first model, and the digest of its weights.
    """
    model, digest = base_of(config, dataset)
    settings = {
        "version": VERSION,
        "model": digest,
        "data": dataset.key,
        "dtype": str(compute_dtype(config.dtype, device)),
        **({"quantize": config.lora.quantize} if config.lora and config.lora.quantize else {}),
    }

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

    folder = publish_settings(cache, settings, build, prefix="reference-", alive=alive)
    return {split: np.load(folder / f"{split}.npy") for split in Split}


class Divergence:
    """Of a model from the first one: itself without its adapter, or loaded when it is needed."""

    def __init__(self, config: DPOConfig, dataset: Conversations) -> None:
        self._config, self._dataset = config, dataset
        self._first: nn.Module | None = None

    @torch.no_grad()
    def total(self, model: nn.Module, split: Split, questions: Rows, answers: Rows) -> torch.Tensor:
        """The sum of the log-probabilities' differences, a scalar.

        Args:
            model: on its device.
            split: of the sequences.
            questions: the sequences whose questions are asked, int64 [questions].
            answers: those whose answers are given, of the same shape.
        """
        device, config, sums = next(model.parameters()).device, self._config, []
        separable = config.lora is not None and config.lora.is_separable
        if self._first is None and not separable:
            self._first = move_model(as_first(new_model(config, self._dataset), config), device)
            self._first.eval()
        for start in range(0, len(questions), EVAL_BATCH):
            part = slice(start, start + EVAL_BATCH)
            inputs = self._mismatched(split, questions[part], answers[part], device)
            mine, other = answer_log_probs(model, *inputs, config), self._first or model
            with without_adapter(other):
                sums.append((mine - answer_log_probs(other, *inputs, config)).sum())
        return torch.stack(sums).sum()

    def _mismatched(
        self, split: Split, questions: Rows, answers: Rows, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids of the questions with those answers, and which targets count."""
        tokens, counted, lengths = self._dataset.arrays(split)
        starts, begins = (counted[rows].argmax(axis=1) + 1 for rows in (questions, answers))
        sizes = np.minimum(starts + lengths[answers] - begins, tokens.shape[1])
        ids = np.full((len(sizes), int(sizes.max())), self._dataset.end, dtype=np.int64)
        flags = np.zeros((len(sizes), ids.shape[1] - 1), dtype=np.bool_)
        for row, (start, begin, size) in enumerate(zip(starts, begins, sizes, strict=True)):
            end = begin + size - start
            ids[row, :start] = tokens[questions[row], :start]
            ids[row, start:size] = tokens[answers[row], begin:end]
            flags[row, start - 1 : size - 1] = counted[answers[row], begin - 1 : end - 1]
        return to_device(ids, device), to_device(flags, device)
