"""What a classifier learns: labels or numbers of texts, or which of two answers is preferred."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn import functional as F
from transformers.pytorch_utils import Conv1D

from results.export.exportable import Exportable
from results.trial_paths import ADAPTER_CONFIG
from search_spaces.errors import UserError, suggest
from trainables.base import Split
from trainables.causal_lm.evaluation import EVAL_BATCH, spread
from trainables.causal_lm.export import Logits
from trainables.causal_lm.lora import LoRAConfig
from trainables.causal_lm.model.compilation import TrainedLoss, may_compile
from trainables.causal_lm.model.dropout import disable_dropout
from trainables.causal_lm.model.model import architecture, load_merged, open_tokenizer
from trainables.causal_lm.task import LanguageTask
from trainables.checkpointing.saver import DeferredWrite
from trainables.classifier.config import ClassifierConfig
from trainables.classifier.dataset import LabelledTexts, prepare
from trainables.classifier.metrics import metric_shares, metrics_of
from trainables.classifier.rows import read_labelled
from trainables.classifier.scorer import RewardModel, padded, scores_of
from trainables.client import Rows
from trainables.data.bad_rows import BadRows
from trainables.data.conversations import dataset as conversations
from trainables.data.conversations.dataset import Conversations
from trainables.data.conversations.rows import Columns, read_rows
from trainables.data.tokenizer import pad_token
from trainables.parallel.fsdp import device_of, free_gathered
from trainables.sft.task import with_start
from trainables.training.data_sampler import shares_in_step, to_device
from trainables.training.task import Inputs
from trainables.worker import Worker

WIDTHS = 8
"""Compiled batches of texts are padded to one of so many widths."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class ClassifierLoss(TrainedLoss[ClassifierConfig]):
    """Mean loss of a batch: what data parallelism wraps."""

    def forward(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        types: torch.Tensor | None,
        targets: torch.Tensor | None,
        weights: torch.Tensor | None,
    ) -> torch.Tensor:
        """A scalar.

        Args:
            ids, mask, types: as of `scores_of`; of pairs the preferred and the rejected answers in
                turn.
            targets: numbers of labels, int64 [texts], or numbers, float32 [texts].
            weights: of the texts, float32 [texts]; None: all the same.
        """
        settings = self.settings
        scores = scores_of(self.model, settings.dtype, ids, mask, types)
        if targets is None:
            chosen, rejected = scores[::2, 0], scores[1::2, 0]
            losses = -F.logsigmoid(chosen - rejected)
            if settings.center_rewards_coefficient:
                losses = losses + settings.center_rewards_coefficient * (chosen + rejected) ** 2
        elif settings.task == "regression":
            losses = (scores[:, 0] - targets) ** 2
        else:
            losses = F.cross_entropy(scores, targets, reduction="none")
        return losses.mean() if weights is None else (losses * weights).sum() / weights.sum()


@dataclass
class ClassifierTask(LanguageTask):
    """Give texts the right labels or numbers, or preferred answers higher scores."""

    config: ClassifierConfig
    dataset: LabelledTexts | Conversations

    @classmethod
    def open(
        cls,
        config: ClassifierConfig,
        cache: Path,
        key: str | None = None,
        worker: Worker | None = None,
    ) -> ClassifierTask:
        """The task, from a start that is made if it must be."""
        config = with_start(config, cache, worker)
        if config.task == "reward":
            return cls(config, conversations.prepare(config, config.data, cache, key))
        return cls(config, prepare(config, cache, key))

    def __post_init__(self) -> None:
        if self.config.lora is not None:
            lora = self._with_head(self.config.lora)
            self.config = self.config.model_copy(update={"lora": lora})
        self._pad = pad_token(open_tokenizer(self.config, self.dataset))
        each = 1 if isinstance(self.dataset, LabelledTexts) else 2  # answers of a pair
        lengths = {split: self.dataset.lengths(split).reshape(-1, each) for split in Split}
        self._lengths = lengths
        self._targets: dict[Split, torch.Tensor] = {}
        if isinstance(self.dataset, LabelledTexts):
            self._targets = {s: torch.tensor(self.dataset.targets(s)) for s in Split}
        self._labels: list[str] = self.dataset.meta.get("labels") or []
        self._weights = self._class_weights()

    @property
    def size(self) -> int:
        """Texts or pairs of the train split."""
        return self._count(Split.TRAIN)

    def _with_head(self, lora: LoRAConfig) -> LoRAConfig:
        """An adapter of the layers before the last ones, which are trained themselves."""
        auto: Any = getattr(transformers, self.config.model_class)
        with torch.device("meta"):
            model: Any = auto.from_config(architecture(self.config, self.dataset.meta))
        prefix = model.base_model_prefix
        heads = [n for n, m in model.named_children() if n != prefix and [*m.parameters()]]
        linear = (n for n, m in model.named_modules() if isinstance(m, nn.Linear | Conv1D))
        targets = lora.targets or [name for name in linear if name.startswith(f"{prefix}.")]
        saved = lora.modules_to_save or heads
        return lora.model_copy(update={"targets": targets, "modules_to_save": saved})

    def copy_model(self, model: nn.Module, folder: Path, worker: Worker) -> DeferredWrite:
        """An adapter is one of a classifier for `peft`, too."""
        write = super().copy_model(model, folder, worker)

        def write_all() -> None:
            write()
            if (file := folder / ADAPTER_CONFIG).is_file():
                told = json.loads(file.read_text())
                file.write_text(json.dumps({**told, "task_type": "SEQ_CLS"}, indent=1))

        return write_all

    def _count(self, split: Split) -> int:
        return len(self._lengths[split])

    def _class_weights(self) -> torch.Tensor | None:
        """The weight of each text of the train split; None: all the same."""
        told, names = self.config.class_weights, self._labels
        if told is None:
            return None
        targets = self._targets[Split.TRAIN]
        if told == "balanced":
            return (len(targets) / (len(names) * torch.bincount(targets))).float()[targets]
        given = {str(name): weight for name, weight in told.items()}
        if unknown := [name for name in given if name not in names]:
            raise UserError(f"class_weights: no label '{unknown[0]}'{suggest(unknown[0], names)}")
        return torch.tensor([given.get(name, 1.0) for name in names])[targets]

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        """The inputs of `ClassifierLoss`."""
        others = (self._targets.get(Split.TRAIN), self._weights)
        picked = (None if each is None else to_device(each[rows], device) for each in others)
        return *self._texts(Split.TRAIN, rows, device), *picked

    def _texts(self, split: Split, rows: Rows, device: torch.device) -> Inputs:
        """Token ids, mask and types of texts, or of both answers of pairs; as of `scores_of`."""
        compiled, data = may_compile(self.config, device), self.dataset
        if isinstance(data, Conversations):
            both = (2 * rows[:, None] + np.arange(2)).reshape(-1)
            tokens, _ = data.inputs(split, both, device, compiled=compiled)
            sizes = to_device(self._lengths[split][rows].reshape(-1, 1), device)
            mask = torch.arange(tokens.shape[1], device=device) < sizes
            return tokens.masked_fill(~mask, self._pad), mask.long(), None
        multiple = -(-self.config.sequence_length // WIDTHS) if compiled else 1
        ids, mask = padded(data.texts(split, rows) or [], self._pad, multiple)
        of_types = data.texts(split, rows, ".types")
        types = None if of_types is None else to_device(padded(of_types, 0, multiple)[0], device)
        return to_device(ids, device), to_device(mask, device), types

    def objective(self, model: nn.Module) -> nn.Module:
        """The mean loss of texts or pairs; a reward model is trained without dropout, as in trl."""
        if self.config.task == "reward":
            disable_dropout(model)
        return ClassifierLoss(model, self.config)

    def num_targets(self, rows: Rows) -> float:
        """Texts or pairs, as much as they weigh."""
        return len(rows) if self._weights is None else float(self._weights[rows].sum())

    def num_items(self, rows: Rows) -> int:
        """Tokens."""
        return int(self._lengths[Split.TRAIN][rows].sum())

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """The metrics of the texts or pairs of all ranks."""
        scores, targets = self._scored(model, split, worker)
        every = torch.ones(len(scores), dtype=torch.float64)
        found = metrics_of(self.config.task, scores, targets, every)
        return {name: float(value) for name, value in found.items()}

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The share of each text or pair in the metrics of `evaluate`."""
        return metric_shares(self.config.task, *self._scored(model, split))

    def _scored(
        self, model: nn.Module, split: Split, worker: Worker | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs [evaluated, outputs], and targets of what is evaluated, float64 on the CPU."""
        chosen = spread(self._count(split), self.config.eval_sequences)
        training, device = model.training, device_of(model)
        model.eval()
        width = len(self._labels) or (1 if self._targets else 2)  # scores of both answers
        scores = torch.zeros(len(chosen), width, dtype=torch.float64)
        parts, counted = shares_in_step(len(chosen), EVAL_BATCH, worker)
        for number, part in enumerate(parts):
            texts = self._texts(split, chosen[part], device)
            with torch.no_grad():
                found = scores_of(model, self.config.dtype, *texts)
            if number < counted:
                scores[part] = found.cpu().double().reshape(-1, width)
        model.train(training)
        free_gathered(model)
        targets = self._targets[split][chosen] if self._targets else scores
        return scores if worker is None else worker.add_up(scores), targets

    def exportable(self, weights: Path) -> Exportable:
        """Token ids [texts, tokens] to outputs [texts, labels], verified on the selection split.

        It predicts rows of files like those that it learned from, of answers those preferred.
        """
        model: Any = load_merged(self.config, self.dataset, weights).eval()
        longest = np.argsort(-self._lengths[Split.SELECTION].min(axis=1), kind="stable")
        ids, mask, types = self._texts(Split.SELECTION, np.resize(longest, 4), torch.device("cpu"))
        ids = ids[:4, : int(mask[:4].sum(dim=1).min())]  # transformers masks no padding by itself
        examples = (ids[:2], ids[:1, : max(2, ids.shape[1] // 2)], ids[1:4, :2])
        names = {0: "batch", 1: "sequence"}
        return Exportable(
            Logits(model, self._pad),
            "input_ids",
            "logits",
            examples,
            names,
            classes=bool(self._labels),
            more_inputs="" if types is None else "token_type_ids",
            predict=lambda file: self._predictions(model, file),
        )

    def _predictions(self, model: Any, file: Path) -> Iterator[dict[str, Any]]:
        config, tokenizer = self.config, open_tokenizer(self.config, self.dataset)
        bad = BadRows("fail")
        if config.task == "reward":
            judge = RewardModel(model, tokenizer, config.dtype)
            data = config.data.recognised([file])[0]
            columns = Columns(data.question, data.chosen)
            for talk in bad.leave_out(read_rows([file], columns)):
                yield {"score": judge.scores([talk])[0]}
            return
        for row in bad.leave_out(read_labelled([file], config.data, numbers=False, known=False)):
            given = tokenizer(*row.texts, truncation=True, max_length=config.sequence_length)
            texts = (torch.tensor([given.get(name)]) for name in INPUTS if given.get(name))
            with torch.no_grad():
                (found,) = scores_of(model, config.dtype, *texts)
            if not self._labels:
                yield {"value": float(found[0])}
                continue
            of_each = dict(zip(self._labels, found.softmax(0).tolist(), strict=True))
            yield {"label": self._labels[int(found.argmax())], "probabilities": of_each}
