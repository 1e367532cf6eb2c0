"""Training of a causal language model: read `train` from top to bottom."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.losses import copy_losses, load_losses
from trainables.causal_lm.model.compilation import compile_blocks, compiles, compiles_documents
from trainables.causal_lm.model.model import (
    load_model,
    new_model,
    save_description,
    save_model,
    save_tokenizer,
)
from trainables.causal_lm.model.objective import (
    recompute_activations,
    spread_or_place,
    stage_inputs,
    step_flops,
)
from trainables.causal_lm.model.stages import make_pipeline
from trainables.causal_lm.optimizer import lr_schedule, optimizer_of
from trainables.causal_lm.task import DATA_KEY, Task, open_task
from trainables.checkpointing.saver import DeferredWrite, in_parallel
from trainables.checkpointing.training_state import copy_weights
from trainables.client import Rows
from trainables.common.data_sampler import Sampler
from trainables.common.dropout import disable_dropout
from trainables.common.lora import add_adapter, copy_adapter, write_adapter
from trainables.common.precision import LossScaler, compute_dtype
from trainables.common.sharded_model import copy_model
from trainables.common.throughput import memory_peak, peak_flops, start_memory_peak
from trainables.common.training import (
    backward,
    communication_metrics,
    copy_progress,
    data_parallel,
    load_progress,
    read_lineage,
    weights_digest,
)
from trainables.job import Answer
from trainables.parallel.pipeline import Pipeline
from trainables.worker import Worker


def train(config: CausalLMConfig, worker: Worker) -> None:
    """Train one trial on this rank."""
    train_task(open_task(config, worker.cache), worker)


def train_task(task: Task, worker: Worker) -> None:
    """Train one trial on this rank, with its data prepared."""
    task = _agreed(task, worker)
    worker.log_dataset(task.dataset.key)
    run = _start(task, worker)
    config = task.config
    for step in range(run.step + 1, config.max_steps + 1):
        run.advance(step)
        worker.heartbeat()
        final = step == config.max_steps
        if step % config.eval_every and not final:
            worker.leave_if_told(step, run.save)
            continue
        metrics = run.metrics()
        answer = worker.report(step=step, metrics=metrics, checkpoint=run.save, final=final)
        if answer is not Answer.CONTINUE:
            break


@dataclass
class Run:
    """The training state of a trial on this rank.

    Attributes:
        task: the data.
        worker: this rank.
        model: whole, as it is before ranks share it.
        lineage: digest of its initial weights.
        step: that have been trained.
        losses: of the updates since the last report.
    """

    task: Task
    worker: Worker
    model: nn.Module
    lineage: str
    step: int = 0
    ddp: nn.Module = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    scheduler: torch.optim.lr_scheduler.LambdaLR = field(init=False)
    dtype: torch.dtype = field(init=False)
    scaler: LossScaler = field(init=False)
    sampler: Sampler = field(init=False)
    losses: list[torch.Tensor] = field(default_factory=list)
    _norm: torch.Tensor = field(init=False)
    _tokens: int = field(default=0, init=False)
    _skipped: dict[str, float] = field(init=False)
    _flops: float | None = field(init=False)
    _since: float = field(default_factory=time.perf_counter, init=False)

    def __post_init__(self) -> None:
        config, worker = self.config, self.worker
        self.sampler = Sampler(
            self.task.size, config.batch_size, worker.seed, worker.mesh.dp_rank, worker.mesh.dp_size
        )
        if not config.has_dropout:
            disable_dropout(self.model)
        if config.activation_checkpointing:
            recompute_activations(self.model)
        self._flops = step_flops(self.model, config) if worker.device.type == "cuda" else None
        if worker.mesh.layout.pp > 1:
            self.ddp = make_pipeline(self.model, config, worker.mesh)
            self.ddp.train()
        else:
            self.ddp = self._placed()
        self.optimizer = optimizer_of(self.model, config)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lr_schedule(config))
        self.dtype = compute_dtype(config.dtype, worker.device)
        self.scaler = LossScaler(self.dtype, worker.device)
        skipped = self.task.dataset.meta.get("skipped")
        self._skipped = {"skipped_data": float(len(skipped))} if skipped else {}
        start_memory_peak(worker.device)

    def _placed(self) -> nn.Module:
        """The loss on this rank's device, where all ranks compute all layers."""
        config, worker, mesh = self.config, self.worker, self.worker.mesh
        compiled = compiles(config, self.model, worker.device, mesh.layout)
        if compiled and mesh.is_sharded:
            compile_blocks(self.model)
        spread_or_place(self.model, config, mesh, worker.device)
        if config.packing == "documents":
            compiled = compiles_documents(config, self.model) and compiled
        self.model.train()
        loss = self.task.loss(self.model)
        if compiled and not mesh.is_sharded:
            loss.compile(dynamic=False)
        return data_parallel(loss, worker, config.communication)

    @property
    def config(self) -> CausalLMConfig:
        """Hyperparameters of the trial."""
        return self.task.config

    def advance(self, step: int) -> None:
        """Optimizer steps (most tasks: one) on the mean loss over the targets of all ranks."""
        batch, rows = self.sampler.batch_rows(step - 1), self.sampler.rows(step - 1)
        for part in self.task.updates(step, rows, self.model, self.worker):
            self._update(part, self.task.num_targets(batch))
        self.scheduler.step()
        self._tokens += self.task.num_tokens(batch)
        self.step = step

    def _update(self, rows: Rows, targets: int) -> None:
        task = self.task

        def mean_loss(rows: Rows) -> torch.Tensor:
            with self.worker.times.of("data"):
                tensors = task.batch(rows, self.worker.device)
            mean: torch.Tensor = self.ddp(*tensors)
            return mean

        def weight(rows: Rows) -> float:
            return self.worker.mesh.dp_size * task.num_targets(rows) / targets

        most, scale = self.config.micro_batch_size, self.scaler.scale
        if isinstance(self.ddp, Pipeline):
            with self.worker.times.of("data"):
                inputs: Any = task.batch(rows, self.worker.device)
                tokens, others = stage_inputs(*inputs)
            loss = self.ddp.backward(tokens, self.worker.mesh.dp_size / targets, **others)
        else:
            loss = backward(self.ddp, rows, most, mean_loss, weight, scale)
        limit = math.inf if self.config.grad_clip is None else self.config.grad_clip
        mesh = self.worker.mesh
        self._norm = self.scaler.step(self.optimizer, self.model.parameters(), limit, mesh)
        self.optimizer.zero_grad()
        self.losses.append(loss)

    def metrics(self) -> dict[str, float]:
        """Metrics of a report; those of evaluation are over the tokens of all ranks."""
        train_loss = float(torch.stack(self.losses).cpu().double().mean())  # waits for the device
        seconds = time.perf_counter() - self._since
        rate, answers = self._tokens / seconds, self.worker.job.paths.answers(self.step)
        with self.worker.times.of("evaluation"):
            scores = self.task.evaluate(self._evaluated, Split.SELECTION, self.worker, answers)
        self.losses.clear()
        self._tokens = 0
        self._since = time.perf_counter()
        return {
            **scores,
            **self.task.train_metrics(self.worker),
            **self._skipped,
            "train_loss": train_loss,
            "learning_rate": float(self.scheduler.get_last_lr()[0]),
            "grad_norm": float(self._norm),
            "tokens_per_second": rate,
            "samples_seen": float(self.step * self.config.batch_size),
            **({"skipped_steps": self.scaler.skipped} if self.scaler.is_enabled else {}),
            **self._of_device(rate),
            **communication_metrics(self.ddp, self.worker),
        }

    @property
    def _evaluated(self) -> nn.Module:
        return self.ddp if isinstance(self.ddp, Pipeline) else self.model

    def _of_device(self, tokens_per_second: float) -> dict[str, float]:
        """Metrics of a GPU; MFU is of this rank's device, if its peak is known."""
        device = self.worker.device
        if device.type != "cuda":
            return {}
        found, peak = {"peak_memory_gib": memory_peak(device)}, peak_flops(device)
        if peak is not None and self._flops is not None and self.dtype != torch.float32:
            share = tokens_per_second / self.worker.world_size
            found["mfu"] = share * self._flops / peak
        return found

    def save(self, folder: Path) -> DeferredWrite:
        """Copy this rank's part of a checkpoint; returns the function that writes it."""
        progress = copy_progress(
            folder,
            self.worker,
            self.optimizer,
            self.scheduler,
            self.lineage,
            self.ddp,
            self.scaler,
        )
        if self.losses:
            progress = in_parallel(progress, copy_losses(folder, self.worker, self.losses))
        lora, base = self.config.lora, str(self.config.model_name_or_path)
        if self.worker.mesh.is_sharded and lora is None:
            part = copy_model(self.model, folder, self.worker)
            first = [lambda: self._describe(folder)] * (self.worker.rank == 0)
            return in_parallel(part, progress, *first)
        if lora is not None:  # on all ranks: they may have a part each
            weights = copy_adapter(self.model)
        if self.worker.rank:
            return progress
        if lora is None:
            weights = copy_weights(self.model)

        def write_model() -> None:
            if lora is None:
                save_model(self.model, self.config, self.task.dataset, folder, weights)
            else:
                write_adapter(folder, lora, base, weights)
                save_tokenizer(self.config, self.task.dataset, folder)
            (folder / DATA_KEY).write_text(json.dumps({"key": self.task.dataset.key}))

        return in_parallel(write_model, progress)

    def _describe(self, folder: Path) -> None:
        """Write what a checkpoint has beside a sharded model."""
        dataset = self.task.dataset
        save_description(self.model, self.config, dataset, folder)
        (folder / DATA_KEY).write_text(json.dumps({"key": dataset.key}))


def _start(task: Task, worker: Worker) -> Run:
    config, dataset, found = task.config, task.dataset, worker.resume()
    if found is None:
        model = new_model(config, dataset)
        lineage = weights_digest(model)
        if config.lora is not None:
            add_adapter(model, config.lora, config.init_seed)
        return Run(task, worker, model, lineage)
    model = load_model(config, dataset, found.folder, config.lora)
    losses = load_losses(found.folder, worker)
    run = Run(task, worker, model, read_lineage(found.folder), found.step, losses=losses)
    load_progress(
        found.folder, worker, found.step, run.optimizer, run.scheduler, run.ddp, run.scaler
    )
    return run


def _agreed(task: Task, worker: Worker) -> Task:
    mine = float(int(task.dataset.key[:12], 16))
    if worker.mean({"key": mine})["key"] != mine:
        raise ValueError(
            "the workers read different text (another Python version on one of the machines?);"
            " give the text with data.source: files, on storage that all of them share"
        )
    return task
