"""How far a model is from the first one, by questions with answers to other questions.

The KL term of KTO (Ethayarajh et al. 2024, arXiv:2402.01306), as `trl` estimates it: in a batch,
each question gets the answer of the sample before it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH
from trainables.causal_lm.model.model import as_first, new_model
from trainables.causal_lm.model.objective import move_model
from trainables.client import Rows
from trainables.common.data_sampler import to_device
from trainables.data.conversations.dataset import Conversations
from trainables.dpo.config import DPOConfig
from trainables.dpo.loss import answer_log_probs


class Divergence:
    """Of a model from the first one, which is loaded when it is needed."""

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
        if self._first is None:
            self._first = move_model(as_first(new_model(config, self._dataset), config), device)
            self._first.eval()
        for start in range(0, len(questions), EVAL_BATCH):
            part = slice(start, start + EVAL_BATCH)
            inputs = self._mismatched(split, questions[part], answers[part], device)
            mine, first = (answer_log_probs(m, *inputs, config) for m in (model, self._first))
            sums.append((mine - first).sum())
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
