"""The training loop of all trainables that have a `Task`: read `train` from top to bottom."""

from __future__ import annotations

import time
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from results.checkpoints.shards import has_tensors
from trainables.base import Split
from trainables.checkpointing.saver import DeferredWrite, in_parallel
from trainables.client import Rows
from trainables.job import Answer
from trainables.parallel.pipeline import Pipeline
from trainables.parallel.sharded_state import load_weights, unique_state
from trainables.training.checkpoint import (
    copy_losses,
    copy_model,
    copy_progress,
    load_losses,
    load_progress,
    read_lineage,
)
from trainables.training.data_sampler import Sampler
from trainables.training.gradients import (
    backward,
    communication_metrics,
    data_parallel,
    mean_buffers,
)
from trainables.training.optimizers import LR_SCALE
from trainables.training.precision import LossScaler, compute_dtype
from trainables.training.task import Inputs, Task
from trainables.training.throughput import memory_peak, peak_flops, start_memory_peak
from trainables.worker import Worker

TRAINED = "trained"
"""Begin of the names of files with the weights that the optimizer changes, where
`model.safetensors` has their moving average."""


def train(task: Task, worker: Worker) -> None:
    """Train one trial on this rank."""
    check_same_data(task, worker)
    worker.log_dataset(task.fingerprint)
    run = start(task, worker)
    for step in range(run.step + 1, task.steps + 1):
        run.advance(step)
        final = step == task.steps
        if step % task.report_every and not final:
            worker.leave_if_told(step, run.save)
            continue
        metrics = run.metrics()
        answer = worker.report(step=step, metrics=metrics, checkpoint=run.save, final=final)
        if answer is not Answer.CONTINUE:
            break


def start(task: Task, worker: Worker) -> TrainingRun:
    """A trial at step 0, or as its newest checkpoint has it."""
    found = worker.resume()
    if found is None:
        return TrainingRun(task, worker, *task.start())
    folder = found.folder
    model, averaged = task.resume(folder), None
    if task.ema_decay is not None:
        averaged = deepcopy(model)
    if has_tensors(folder, TRAINED):
        load_weights(task.network(model), folder, TRAINED)
    losses = load_losses(folder, worker)
    run = TrainingRun(task, worker, model, read_lineage(folder), found.step, averaged, losses)
    load_progress(folder, worker, found.step, run.optimizer, run.scheduler, run.placed, run.scaler)
    return run


@dataclass
class TrainingRun:
    """The training state of a trial on this rank.

    Attributes:
        task: what it learns.
        worker: this rank.
        model: that the optimizer changes; whole before ranks share it.
        lineage: digest of its initial weights.
        step: that have been trained.
        averaged: moving average of the weights, with `ema_decay`.
        losses: of the updates since the last report.
        placed: what data parallelism wraps, wrapped; or the pipeline.
        norm: L2 norm of the last gradient before it was clipped.
    """

    task: Task
    worker: Worker
    model: nn.Module
    lineage: str
    step: int = 0
    averaged: nn.Module | None = None
    losses: list[torch.Tensor] = field(default_factory=list)
    norm: torch.Tensor | None = field(default=None, init=False)
    _items: int = field(default=0, init=False)
    _since: float = field(default_factory=time.perf_counter, init=False)

    def __post_init__(self) -> None:
        task, worker, config = self.task, self.worker, self.task.config
        mesh = worker.mesh
        self.sampler = Sampler(
            task.size, config.batch_size, worker.seed, mesh.dp_rank, mesh.dp_size
        )
        if task.ema_decay is not None:
            self.averaged = self.averaged or deepcopy(self.model)
            task.place(self.averaged, worker)
        self._flops = task.flops(self.model) if worker.device.type == "cuda" else None
        placed = task.place(self.model, worker)
        self.placed = data_parallel(
            placed, worker, config.communication, broadcast_buffers=task.broadcast_buffers
        )
        self.optimizer = task.optimizer(self.model)
        factor = task.lr_factor(task.steps * task.batches)
        scheduled = torch.optim.lr_scheduler.LambdaLR
        self.scheduler = None if factor is None else scheduled(self.optimizer, factor)
        self.dtype = compute_dtype(getattr(config, "dtype", "float32"), worker.device)
        self.scaler = LossScaler(self.dtype, worker.device)
        start_memory_peak(worker.device)

    @property
    def result(self) -> nn.Module:
        """The model that is reported on and saved as the trial's result."""
        return self.averaged or self.model

    def advance(self, step: int) -> None:
        """Train for one step of the clock (from 1): a batch, or an epoch of batches."""
        for number in range((step - 1) * self.task.batches, step * self.task.batches):
            self._train_batch(number)
            self.worker.heartbeat()
        self.step = step

    def _train_batch(self, number: int) -> None:
        """Optimizer steps (most tasks: one) on the mean loss over the targets of all ranks."""
        task, batch = self.task, self.sampler.batch_rows(number)
        for rows in task.updates(number, self.sampler.rows(number), self.model, self.worker):
            self.losses.append(self._backward(rows, task.num_targets(batch)))
            self.norm = self.scaler.step(
                self.optimizer, self.model.parameters(), task.grad_clip, self.worker.mesh
            )
            self.optimizer.zero_grad()
        if self.scheduler is not None:
            self.scheduler.step()
        if self.averaged is not None and task.ema_decay is not None:
            decay = min(task.ema_decay, (1 + number) / (10 + number))  # forgets the first weights
            move_average(self.averaged, self.model, decay)
        self._items += task.num_items(batch)

    def _backward(self, rows: Rows, targets: float) -> torch.Tensor:
        """Add the gradients of this rank's rows; returns their part of the loss, detached."""
        task, ranks = self.task, self.worker.mesh.dp_size

        def inputs(rows: Rows) -> Inputs:
            with self.worker.times.of("data"):
                return task.batch(rows, self.worker.device)

        def weight(rows: Rows) -> float:
            return ranks * task.num_targets(rows) / targets

        if isinstance(self.placed, Pipeline):
            samples, others = task.stage_inputs(inputs(rows))
            return self.placed.backward(samples, ranks / targets, **others)
        return backward(
            self.placed,
            rows,
            task.micro_batch_size,
            lambda rows: task.loss(self.placed, inputs(rows)),
            weight,
            self.scaler.scale,
        )

    def metrics(self) -> dict[str, float]:
        """Metrics of a report; those of evaluation are over the samples of all ranks."""
        task, worker = self.task, self.worker
        train_loss = float(torch.stack(self.losses).cpu().double().mean())  # waits for the device
        rate = self._items / (time.perf_counter() - self._since)
        for model in (self.model, self.averaged) if task.mean_buffers else ():
            if model is not None:
                mean_buffers(task.network(model), worker)
        with worker.times.of("evaluation"):
            evaluated, answers = self.result, worker.job.paths.answers(self.step)
            if evaluated is self.model:
                evaluated = task.evaluated(self.model, self.placed)
            scores = task.evaluate(evaluated, Split.SELECTION, worker, answers)
        self.losses.clear()
        self._items, self._since = 0, time.perf_counter()
        return {
            **scores,
            **task.train_metrics(worker),
            "train_loss": train_loss,
            "samples_seen": float(self.step * task.batches * task.config.batch_size),
            **self._of_optimizer(),
            **({} if task.unit is None else {f"{task.unit}_per_second": rate}),
            **self._of_device(rate),
            **communication_metrics(self.placed, worker),
        }

    def _of_optimizer(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if self.scheduler is not None:
            scale = self.optimizer.param_groups[0].get(LR_SCALE, 1.0)
            found["learning_rate"] = float(self.scheduler.get_last_lr()[0]) / scale
        if self.task.reports_norm and self.norm is not None:
            found["grad_norm"] = float(self.norm)
        if self.scaler.is_enabled:
            found["skipped_steps"] = self.scaler.skipped
        return found

    def _of_device(self, rate: float) -> dict[str, float]:
        """Metrics of a GPU; MFU is of this rank's device, if its peak is known."""
        device = self.worker.device
        if device.type != "cuda" or self.task.unit is None:
            return {}
        found, peak = {"peak_memory_gib": memory_peak(device)}, peak_flops(device)
        if peak is not None and self._flops is not None and self.dtype != torch.float32:
            found["mfu"] = rate / self.worker.world_size * self._flops / peak
        return found

    def save(self, folder: Path) -> DeferredWrite:
        """Copy this rank's part of a checkpoint; returns the function that writes it."""
        task, worker = self.task, self.worker
        parts = [
            copy_progress(
                folder,
                worker,
                self.optimizer,
                self.scheduler,
                self.lineage,
                self.placed,
                self.scaler,
            ),
            task.copy_model(self.result, folder, worker),
        ]
        if self.averaged is not None:
            parts.append(copy_model(task.network(self.model), folder, worker, TRAINED))
        if self.losses:  # between two reports
            parts.append(copy_losses(folder, worker, self.losses))
        return in_parallel(*parts)


def move_average(average: nn.Module, model: nn.Module, decay: float) -> None:
    """Move an average of weights and buffers towards a model's: `decay` is the part that stays."""
    with torch.no_grad():
        pairs = zip(unique_state(average).values(), unique_state(model).values(), strict=True)
        for mine, theirs in pairs:
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - decay)
            else:
                mine.copy_(theirs)


def check_same_data(task: Task, worker: Worker) -> None:
    """Refuse ranks with different data."""
    mine = float(int(task.fingerprint[:10], 16))  # sums over 8,192 ranks are exact
    if worker.mean({"key": mine})["key"] != mine:
        raise ValueError(
            "the workers read different data (another Python version on one of the machines?);"
            " give its path on storage that all of them share"
        )
