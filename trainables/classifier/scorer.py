"""Scores of texts by a model of `transformers`, also of answers by a reward model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from results.export.quiet import quiet_transformers
from search_spaces.errors import UserError
from trainables.causal_lm.evaluation import EVAL_BATCH
from trainables.classifier.config import ClassifierConfig
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.chat import Chat, encode
from trainables.data.conversations.rows import Conversation
from trainables.data.tokenizer import encoder_of, load_pretrained, pad_token
from trainables.parallel.fsdp import device_of
from trainables.training.precision import DtypeName, autocast
from trainables.training.pretrained import pretrained_model


def padded(
    texts: Sequence[npt.NDArray[Any]], padding: int, multiple: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Arrays as rows of equal length, int64 [texts, length], and a mask without the padding."""
    width = -(-max(len(text) for text in texts) // multiple) * multiple
    rows = np.full((len(texts), width), padding, dtype=np.int64)
    mask = np.zeros(rows.shape, dtype=np.int64)
    for i, text in enumerate(texts):
        rows[i, : len(text)], mask[i, : len(text)] = text, 1
    return torch.from_numpy(rows), torch.from_numpy(mask)


def scores_of(
    model: nn.Module,
    dtype: DtypeName,
    ids: torch.Tensor,
    mask: torch.Tensor,
    types: torch.Tensor | None = None,
) -> torch.Tensor:
    """Outputs of a model for each text, float32 [texts, outputs]; arguments as of `padded`."""
    hf: Any = model
    others: dict[str, Any] = {} if types is None else {"token_type_ids": types}
    if hasattr(hf.config, "use_cache"):
        others["use_cache"] = False
    with autocast(dtype, ids.device):
        logits: torch.Tensor = hf(input_ids=ids, attention_mask=mask, **others).logits
    return logits.float()


@dataclass(frozen=True)
class RewardModel:
    """Scores the last answers of conversations, in the form in which its tokenizer has them."""

    model: nn.Module
    tokenizer: Any
    dtype: DtypeName

    @torch.no_grad()
    def scores(self, talks: Iterable[Conversation]) -> list[float]:
        """The score of each conversation.

        Raises:
            UserError: one cannot be rendered, or is too long for the model.
        """
        hf: Any = self.model
        name, device, rows = self.tokenizer.name_or_path, device_of(self.model), []
        chat, encoder = Chat(self.tokenizer), encoder_of(self.tokenizer, name)
        most = getattr(hf.config, "max_position_embeddings", 1 << 30) + 1
        for talk in talks:
            rendered = chat.render(talk.messages, talk.tools)
            if isinstance(rendered, str):
                raise UserError(f"{talk.place}: {rendered} (reward model {name})")
            (found,) = encode([(talk, rendered)], encoder, most)
            if isinstance(found, BadRow):
                raise UserError(f"{found.problem} (reward model {name})")
            rows.append(found[1].ids)
        scores: list[float] = []
        for start in range(0, len(rows), EVAL_BATCH):
            ids, mask = padded(rows[start : start + EVAL_BATCH], pad_token(self.tokenizer))
            outputs = scores_of(self.model, self.dtype, ids.to(device), mask.to(device))
            scores += outputs[:, 0].tolist()
        return scores


def open_reward_model(folder: str, dtype: DtypeName, device: torch.device) -> RewardModel:
    """The reward model of a folder or hub id.

    Raises:
        UserError: it has another number of outputs than one.
    """
    with quiet_transformers():
        model: Any = pretrained_model(folder, ClassifierConfig.model_class)
        tokenizer = load_pretrained(folder)
    if model.config.num_labels != 1:
        raise UserError(f"{folder}: a reward model has num_labels 1, got {model.config.num_labels}")
    model.config.get_text_config().pad_token_id = pad_token(tokenizer)  # as trl does
    return RewardModel(model.to(device).eval(), tokenizer, dtype)
