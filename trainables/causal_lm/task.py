"""What a language model learns: batches to train on, and the scores of an evaluation."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import nn

from results.export.exportable import Exportable
from results.trial_paths import DATA_KEY
from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm import export
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.evaluation import (
    EVAL_BATCH,
    Samples,
    eval_loss,
    evaluated_rows,
    means,
    of_sets,
    separator,
)
from trainables.causal_lm.lora import add_adapter, copy_adapter, write_adapter
from trainables.causal_lm.model.compilation import compile_blocks, compiles, compiles_documents
from trainables.causal_lm.model.dropout import disable_dropout
from trainables.causal_lm.model.first_model import first_model, unshare
from trainables.causal_lm.model.model import (
    as_first,
    load_merged,
    load_model,
    new_model,
    save_description,
    save_model,
    save_tokenizer,
)
from trainables.causal_lm.model.objective import (
    NextTokenLoss,
    move_model,
    next_token_loss,
    recompute_activations,
    shard_or_move,
    stage_inputs,
    step_flops,
    text_inputs,
    to_device,
)
from trainables.causal_lm.model.stages import make_pipeline
from trainables.causal_lm.parametrization import scales_of
from trainables.checkpointing.saver import DeferredWrite
from trainables.client import Rows
from trainables.data.shared_folder import text_digest
from trainables.data.text.dataset import Dataset, Tokens, prepare
from trainables.parallel.fsdp import device_of
from trainables.parallel.pipeline import Pipeline
from trainables.training import task as training
from trainables.training.data_sampler import shares
from trainables.training.optimizers import make_optimizer
from trainables.worker import Worker


class LanguageTask(training.Task):
    """Training of a causal language model; a subclass has the data, the loss and the metrics."""

    config: CausalLMConfig
    dataset: Dataset
    unit = "tokens"
    reports_norm = True

    @property
    def steps(self) -> int:
        """Optimizer steps."""
        return self.config.max_steps

    @property
    def report_every(self) -> int:
        """Steps from one report to the next."""
        return self.config.eval_every

    @property
    def batches(self) -> int:
        """One."""
        return 1

    @property
    def fingerprint(self) -> str:
        """Key of the prepared data, or a digest of all keys where there are named sets."""
        return text_digest(self.dataset.keys)[:32] if self.dataset.sets else self.dataset.key

    @property
    def grad_clip(self) -> float | None:
        """Infinite without clipping: the norm is a metric."""
        return math.inf if self.config.grad_clip is None else self.config.grad_clip

    def new_model(self) -> nn.Module:
        """Pretrained, or random from `init_seed` alone."""
        return new_model(self.config, self.dataset)

    def load_model(self, weights: Path) -> nn.Module:
        """The model of a folder, with its adapter if it has one."""
        return load_model(self.config, self.dataset, weights)

    def start(self) -> tuple[nn.Module, str]:
        """The model with an adapter, which is no part of the lineage."""
        model, lineage = first_model(self.config, self.dataset)
        if self.config.lora is not None:
            add_adapter(as_first(model, self.config), self.config.lora, self.config.init_seed)
        return model, lineage

    def resume(self, checkpoint: Path) -> nn.Module:
        """The model to train on; its adapter may have another alpha or dropout."""
        lora = self.config.lora
        return load_model(self.config, self.dataset, checkpoint, lora, base_of=first_model)

    def to_device(self, model: nn.Module, device: torch.device) -> nn.Module:
        """See `place`."""
        return move_model(model, device)

    def place(self, model: nn.Module, worker: Worker) -> nn.Module:
        """The loss on this rank's device, or its stages of the model."""
        config, mesh = self.config, worker.mesh
        unshare(model, config, mesh)
        if worker.device.type != "cuda" and config.lora is not None and config.lora.quantize:
            raise UserError("lora.quantize: 4bit is trained on CUDA devices only; remove it")
        if not config.has_dropout:
            disable_dropout(model)
        if config.activation_checkpointing:
            recompute_activations(model)
        if mesh.layout.pp > 1:
            return make_pipeline(model, config, mesh).train()
        compiled = compiles(config, model, worker.device, mesh.layout)
        if compiled and mesh.is_sharded:
            compile_blocks(model)
        shard_or_move(model, config, mesh, worker.device)
        if config.packing == "documents":
            compiled = compiles_documents(config, model) and compiled
        model.train()
        objective = self.objective(model)
        if compiled and not mesh.is_sharded:
            objective.compile(dynamic=False)
        return objective

    def objective(self, model: nn.Module) -> nn.Module:
        """What is trained: a module that gives the mean loss of a batch, a scalar."""
        return NextTokenLoss(model, self.config)

    def local_loss(self, model: nn.Module, inputs: training.Inputs) -> torch.Tensor:
        """Mean loss of a batch by a model on its device."""
        return self.loss(self.objective(model), inputs)

    def evaluated(self, model: nn.Module, placed: nn.Module) -> nn.Module:
        """The stages of a pipeline evaluate together."""
        return placed if isinstance(placed, Pipeline) else model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The configured optimizer."""
        return optimizer_of(model, self.config)

    def stage_inputs(self, inputs: training.Inputs) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Token ids, targets and positions."""
        return stage_inputs(*inputs)

    def flops(self, model: nn.Module) -> float | None:
        """FLOPs of a training step per token."""
        return step_flops(model, self.config)

    def train_metrics(self, worker: Worker) -> dict[str, float]:
        """Rows of the data that were skipped, if any were."""
        every = [self.dataset, *self.dataset.sets.values()]
        skipped = sum(len(one.meta.get("skipped") or ()) for one in every)
        return {"skipped_data": float(skipped)} if skipped else {}

    def copy_model(self, model: nn.Module, folder: Path, worker: Worker) -> DeferredWrite:
        """Of a model with an adapter, only the adapter is saved."""
        if (lora := self.config.lora) is None:
            return super().copy_model(model, folder, worker)
        weights = copy_adapter(model)  # on all ranks: they may have a part each

        def write() -> None:
            write_adapter(folder, lora, str(self.config.model_name_or_path), weights)
            save_tokenizer(self.config, self.dataset, folder)
            self._save_key(folder)

        return (lambda: None) if worker.rank else write

    def save(
        self, model: nn.Module, folder: Path, weights: dict[str, torch.Tensor] | None = None
    ) -> None:
        """Write the model, its tokenizer, and the key of the data."""
        save_model(model, self.config, self.dataset, folder, weights)
        self._save_key(folder)

    def save_description(self, model: nn.Module, folder: Path) -> None:
        """Write what a checkpoint has beside a sharded model."""
        save_description(model, self.config, self.dataset, folder)
        self._save_key(folder)

    def _save_key(self, folder: Path) -> None:
        (folder / DATA_KEY).write_text(json.dumps({"key": self.dataset.keys}))

    def exportable(self, weights: Path) -> Exportable:
        """Token ids [sequences, tokens] to logits [sequences, tokens, vocabulary]."""
        return export.exportable(self.config, self.dataset, weights)

    def export_hf(self, weights: Path, target: Path) -> None:
        """Write a folder that plain `transformers` loads."""
        merged = load_merged(self.config, self.dataset, weights)
        save_model(merged, self.config, self.dataset, target)


def optimizer_of(model: nn.Module, config: CausalLMConfig) -> torch.optim.Optimizer:
    """The configured optimizer of a model's trained parameters."""
    return make_optimizer(
        model,
        config.optimizer,
        config.learning_rate,
        config.weight_decay,
        config.beta2,
        config.adamw_learning_rate,
        scales_of(model, config),
    )


@dataclass
class TextTask(LanguageTask):
    """Predict every next token of texts."""

    config: CausalLMConfig
    dataset: Dataset
    rows: Tokens

    @classmethod
    def open(
        cls,
        config: CausalLMConfig,
        cache: Path,
        key: str | None = None,
        worker: Worker | None = None,
    ) -> Self:
        """The task, with its text prepared."""
        dataset = prepare(config, cache, key)
        return cls(config, dataset, dataset.sequences(Split.TRAIN))

    @property
    def size(self) -> int:
        """Sequences of the train split."""
        return len(self.rows)

    def batch(self, rows: Rows, device: torch.device) -> training.Inputs:
        """Token ids, int64 [rows, sequence_length + 1], and with `packing: documents` positions."""
        return text_inputs(to_device(self.rows[rows], device), separator(self.dataset, self.config))

    def num_targets(self, rows: Rows) -> int:
        """All tokens but the first of each sequence."""
        return len(rows) * self.config.sequence_length

    num_items = num_targets

    def groups(self, by: str) -> Rows:
        """The source file in which each sequence begins."""
        if by != "source":
            raise UserError("causal_lm: its text has sources and no labels; set by: source")
        return self.dataset.sources()

    def evaluate(
        self,
        model: nn.Module,
        split: Split,
        worker: Worker | None = None,
        answers: Path | None = None,
    ) -> dict[str, float]:
        """Mean loss of tokens (nats), perplexity, bits per byte, and losses of named sets."""

        def scores(dataset: Dataset) -> Samples:
            rows = evaluated_rows(dataset, split, self.config)
            found = rows.scores(eval_loss(model, rows, self.config, worker))
            return {name: [value] for name, value in found.items()}

        return means(of_sets(scores, self.dataset, self.config.data.weights))

    def examples(self, model: nn.Module, split: Split) -> dict[str, list[float]]:
        """The metrics of `evaluate` of each sequence."""
        device = device_of(model)

        def scores(dataset: Dataset) -> Samples:
            rows = evaluated_rows(dataset, split, self.config)
            with torch.no_grad():
                losses = [
                    next_token_loss(model, self.config, "none", *rows.inputs(part, device))
                    for part in shares(len(rows.tokens), EVAL_BATCH, 0, 1)
                ]
            each = torch.cat(losses).cpu().double().reshape(len(rows.tokens), -1).mean(dim=1)
            return rows.example_scores(each)

        return of_sets(scores, self.dataset, self.config.data.weights)
