"""Learning to answer: the loss of the answers' tokens, and answers to questions of a split."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from results.storage.atomic import write_atomic
from trainables.base import Split
from trainables.causal_lm.evaluation import (
    EVAL_BATCH,
    Samples,
    means,
    of_sets,
    perplexities,
    spread,
)
from trainables.causal_lm.model.compilation import may_compile
from trainables.causal_lm.model.model import open_tokenizer
from trainables.causal_lm.model.objective import (
    masked_attention,
    next_token_loss,
    to_device,
)
from trainables.causal_lm.task import LanguageTask
from trainables.causal_lm.trained_model import trained_once
from trainables.client import Rows
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.generation.generate import generate
from trainables.generation.text_ends import text_ends
from trainables.parallel.fsdp import device_of, gathered
from trainables.parallel.mesh import ALONE
from trainables.sft.config import SFTConfig
from trainables.sft.start import StartConfig
from trainables.training.data_sampler import shares, shares_in_step
from trainables.training.precision import autocast
from trainables.worker import Worker

C = TypeVar("C", bound=StartConfig)


def with_start(config: C, cache: Path, worker: Worker | None = None) -> C:
    """A configuration with the folder of the model that it starts from, which is made if needed."""
    if config.start is None:
        return config
    with worker.times.of("data") if worker else nullcontext():
        start = trained_once(config.start, cache, *place_of(worker))
    return config.model_copy(update={config.start_key: None, "model_name_or_path": str(start)})


def place_of(worker: Worker | None) -> tuple[torch.device, Callable[[], None]]:
    """Device of a computation before the training, and what it calls every now and then."""
    if worker is not None:
        return worker.device, worker.heartbeat
    return torch.device("cuda" if torch.cuda.is_available() else "cpu"), lambda: None


@dataclass
class SFTTask(LanguageTask):
    """Predict the tokens of answers."""

    config: SFTConfig
    dataset: Conversations

    @classmethod
    def open(
        cls, config: SFTConfig, cache: Path, key: str | None = None, worker: Worker | None = None
    ) -> SFTTask:
        """The task, from a start that is made if it must be, with `max_steps` of its `epochs`."""
        config = with_start(config, cache, worker)
        dataset = prepare(config, config.data, cache, key)
        if config.epochs is not None:
            size = int(dataset.meta["sequences"][Split.TRAIN.value])
            steps = max(1, math.ceil(config.epochs * size / config.batch_size))
            config = config.model_copy(update={"max_steps": steps})
        return cls(config, dataset)

    def __post_init__(self) -> None:
        self._rows, self._counted, self._lengths = self.dataset.arrays(Split.TRAIN)
        self._positions = self.dataset.positions(Split.TRAIN)
        self._targets = self._counted.sum(axis=1)

    @property
    def size(self) -> int:
        """Sequences of the train split."""
        return len(self._rows)

    def batch(self, rows: Rows, device: torch.device) -> tuple[torch.Tensor | None, ...]:
        """Token ids, which targets count, and positions of packed sequences."""
        if self._positions is not None:
            arrays = self._rows[rows], self._counted[rows], self._positions[rows]
            return tuple(to_device(array, device) for array in arrays)
        compiled = may_compile(self.config, device)
        return self.dataset.inputs(Split.TRAIN, rows, device, compiled=compiled)

    def num_targets(self, rows: Rows) -> int:
        """Tokens of answers."""
        return int(self._targets[rows].sum())

    def num_items(self, rows: Rows) -> int:
        """Tokens of questions and answers."""
        return int(self._lengths[rows].sum())

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Mean loss of the answers' tokens (nats), perplexity, and exact matches; and the losses
        of the named sets."""

        def total(sums: dict[str, float]) -> dict[str, float]:
            return sums if worker is None else worker.sum(sums)

        def scores(dataset: Conversations) -> Samples:
            each = self._losses(model, dataset, split, worker)
            sums = {"loss": sum(loss for loss, _ in each), "tokens": sum(n for _, n in each)}
            sums = total(sums)
            loss = sums["loss"] / sums["tokens"]
            return {"eval_loss": [loss], "perplexity": [math.exp(min(loss, 700))]}

        training = model.training
        model.eval()
        found = means(of_sets(scores, self.dataset, self.config.data.weights))
        matches = self._matches(model, split, worker, answers)
        model.train(training)
        sums = total({"matches": sum(matches), "asked": len(matches)})
        if sums["asked"]:
            found["exact_match"] = sums["matches"] / sums["asked"]
        return found

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each conversation; a long answer counts more."""

        def scores(dataset: Conversations) -> Samples:
            each = self._losses(model, dataset, split)
            scale = len(each) / sum(tokens for _, tokens in each)
            losses = torch.tensor([loss * scale for loss, _ in each], dtype=torch.double)
            return {"eval_loss": losses.tolist(), "perplexity": perplexities(losses).tolist()}

        found = of_sets(scores, self.dataset, self.config.data.weights)
        if self.config.eval_answers:
            found["exact_match"] = self._matches(model, split)
        return found

    def _losses(
        self, model: nn.Module, dataset: Conversations, split: Split, worker: Worker | None = None
    ) -> list[tuple[float, int]]:
        """Loss and number of the answers' tokens of each evaluated conversation of this rank."""
        data, config, device = dataset, self.config, device_of(model)
        chosen = spread(len(data.lengths(split)), config.eval_sequences)
        found: list[list[tuple[float, int]]] = []
        parts, count = shares_in_step(len(chosen), EVAL_BATCH, worker)
        for part in parts:
            tokens, counted = data.inputs(split, chosen[part], device)
            with torch.no_grad():
                losses = next_token_loss(model, config, "none", tokens, counted)
            sums = losses.double().reshape(len(tokens), -1).sum(dim=1).tolist()
            found.append(list(zip(sums, counted.sum(dim=1).tolist(), strict=True)))
        return [each for of_part in found[:count] for each in of_part]

    def _matches(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> list[float]:
        """Whether each answer of this rank is the expected one; rank 0 writes its first ones."""
        if not self.config.eval_answers:
            return []
        questions = self._questions[split]
        found: list[float] = []
        mesh = worker.mesh if worker else ALONE
        with gathered(model, mesh):
            for part in shares(len(questions), EVAL_BATCH, mesh.dp_rank, mesh.dp_size):
                lines = self._answered(model, questions[part])
                found += [float(line["match"]) for line in lines]
                if answers is not None and part.start == 0 and mesh.is_metric_rank:
                    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
                    write_atomic(answers, text.encode())
        return found

    def _answered(self, model: nn.Module, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        prompts, ends = [q["prompt"] for q in questions], text_ends(model, self._tokenizer)
        with autocast(self.config.dtype, device_of(model)), masked_attention(model):
            written = generate(model, prompts, ends, self.config.max_new_tokens)
        found = []
        for question, tokens in zip(questions, written, strict=True):
            answer = self._tokenizer.decode(tokens, skip_special_tokens=True).strip()
            expected = question["answer"].strip()
            line = {"question": question["question"], "answer": answer, "expected": expected}
            found.append({**line, "match": answer == expected})
        return found

    @cached_property
    def _questions(self) -> dict[Split, list[dict[str, Any]]]:
        found = {}
        for split in (Split.SELECTION, Split.TEST):
            every = self.dataset.questions(split)
            found[split] = [every[i] for i in spread(len(every), self.config.eval_answers)]
        return found

    @cached_property
    def _tokenizer(self) -> Any:
        return open_tokenizer(self.config, self.dataset)
