"""How far a model is from the first one, by questions with answers to other questions.

The KL term of KTO (Ethayarajh et al. 2024, arXiv:2402.01306), as `trl` estimates it: in a batch,
each question gets the answer of the sample before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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


@dataclass
class Divergence:
    """Of a model from the first one.

    Attributes:
        config: of the trial.
        dataset: with the answers.
    """

    config: DPOConfig
    dataset: Conversations
    _model: nn.Module | None = field(default=None, init=False)
    _arrays: dict[Split, tuple[Any, Any, Rows]] = field(default_factory=dict, init=False)

    @torch.no_grad()
    def total(self, model: nn.Module, split: Split, questions: Rows, answers: Rows) -> torch.Tensor:
        """The sum over the questions of the log-probabilities' differences, a scalar.

        Args:
            model: on its device.
            split: of the samples.
            questions: the samples whose questions are asked, int64 [questions].
            answers: the samples whose answers are given, of the same shape.
        """
        device, sums = next(model.parameters()).device, []
        first = self._first(device)
        for start in range(0, len(questions), EVAL_BATCH):
            part = slice(start, start + EVAL_BATCH)
            inputs = self._mismatched(split, questions[part], answers[part], device)
            mine, before = (answer_log_probs(m, *inputs, self.config) for m in (model, first))
            sums.append((mine - before).sum())
        return torch.stack(sums).sum()

    def _first(self, device: torch.device) -> nn.Module:
        if self._model is None:
            self._model = as_first(new_model(self.config, self.dataset), self.config)
            move_model(self._model, device).eval()
        return self._model

    def _mismatched(
        self, split: Split, questions: Rows, answers: Rows, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids of the questions with those answers, and which targets count."""
        if split not in self._arrays:  # each step would open the files again
            data = self.dataset
            self._arrays[split] = data.sequences(split), data.counted(split), data.lengths(split)
        tokens, counted, lengths = self._arrays[split]
        starts, begins = (counted[rows].argmax(axis=1) + 1 for rows in (questions, answers))
        sizes = np.minimum(starts + lengths[answers] - begins, tokens.shape[1])
        ids = np.full((len(sizes), int(sizes.max())), self.dataset.end, dtype=np.int64)
        flags = np.zeros((len(sizes), ids.shape[1] - 1), dtype=np.bool_)
        for row, (start, begin, size) in enumerate(zip(starts, begins, sizes, strict=True)):
            end = begin + size - start
            ids[row, :start] = tokens[questions[row], :start]
            ids[row, start:size] = tokens[answers[row], begin:end]
            flags[row, start - 1 : size - 1] = counted[answers[row], begin - 1 : end - 1]
        return to_device(ids, device), to_device(flags, device)
