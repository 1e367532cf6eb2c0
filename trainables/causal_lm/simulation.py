"""A training step of one rank of any layout, without data, devices or other ranks."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from results.export.quiet import quiet_transformers
from results.records.reports import Report
from search_spaces.errors import UserError
from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.lora import add_adapter
from trainables.causal_lm.model.model import architecture
from trainables.causal_lm.model.objective import Inputs
from trainables.causal_lm.model.packing import packing_by_masks, set_packing
from trainables.causal_lm.task import LanguageTask
from trainables.client import Rows
from trainables.data.text.dataset import Dataset
from trainables.data.tokenizer import load_pretrained
from trainables.job import Answer, TrialJob
from trainables.parallel.fake_rank import FakeDataParallel, fake_group, fake_tensors
from trainables.parallel.footprint import Footprint
from trainables.parallel.meter import Meter
from trainables.training import run as loop
from trainables.worker import Worker


def simulate(config: CausalLMConfig, layout: Layout, rank: int = 0, before: int = 1) -> Footprint:
    """What one rank needs for a step, by the code that trains, on tensors without content.

    Sequences have `sequence_length` tokens, of which all count. The device computes as a CPU does,
    without the kernels that a GPU has for cross-entropy and attention.

    Args:
        config: of a trial; a model in a folder or on a hub gives its shape.
        layout: of the ranks.
        rank: of this layout.
        before: steps before the one that is measured.

    Raises:
        UserError: the model does not fit the layout.
    """
    sent = config.communication
    if (sent.method, sent.compress) != ("builtin", "none"):
        raise UserError("communication cannot be simulated; leave method and compress out")
    start = config.start or config
    may_have_experts = start.experts is not None or start.model_name_or_path is not None
    if layout.ep == 1 and not (layout.tp > 1 and may_have_experts):
        return _simulate(config, layout, rank, before)
    # With torch 2.13, a process that has simulated exchanges of tokens may abort when memory is
    # freed. So each has a process, which ends without that.
    processes = ProcessPoolExecutor(1, get_context("spawn"), atexit.register, (os._exit, 0))
    with processes:
        return processes.submit(_simulate, config, layout, rank, before).result()


def _simulate(config: CausalLMConfig, layout: Layout, rank: int, before: int) -> Footprint:
    ranks = layout.num_ranks
    spec = LayoutSpec.of(layout)
    with TemporaryDirectory() as folder, fake_group(rank, ranks):
        job = TrialJob("t", folder, "causal_lm", {}, 0, 1, folder, 1, workers=ranks, layout=spec)
        worker = Worker(job, _Silent(), torch.device("cpu"), rank, ranks)
        alone = ranks == 1 or worker.mesh.is_sharded

        def parallel(model: nn.Module, *_: Any, **__: Any) -> nn.Module:
            return model if alone else FakeDataParallel(model)

        with fake_tensors(worker.mesh), patch.object(loop, "data_parallel", parallel):
            model = new_random_model(config)
            run = loop.TrainingRun(_NoData(config), worker, model, "")
            found = measure(run, before)
        worker.mesh.close()
        return found


def measure(run: loop.TrainingRun, before: int = 1) -> Footprint:
    """What a step needs on this rank, after so many that make the state of optimizer and torch."""
    meter = Meter(run.model, run.worker.mesh)
    with meter.counting():
        for _ in range(before):
            run.advance(run.step + 1)
    with meter.of_step(run.optimizer):
        run.advance(run.step + 1)
    return meter.footprint(run.optimizer)


@dataclass
class _NoData(LanguageTask):
    """A batch of tokens 0."""

    config: CausalLMConfig
    dataset: Dataset = field(default_factory=lambda: cast(Dataset, _Described()))

    @property
    def size(self) -> int:
        return self.config.batch_size

    def batch(self, rows: Rows, device: torch.device) -> Inputs:
        length = self.config.sequence_length
        tokens = torch.zeros(len(rows), length + 1, dtype=torch.int64, device=device)
        if self.config.packing == "plain":
            return tokens, None, None
        return tokens, None, torch.arange(length, device=device).repeat(len(rows), 1)

    def evaluate(self, *given: Any, **named: Any) -> dict[str, float]:
        raise NotImplementedError

    def num_targets(self, rows: Rows) -> int:
        return len(rows) * self.config.sequence_length

    num_items = num_targets


class _Described:
    meta: Mapping[str, Any] = {}


class _Silent:
    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def new_random_model(config: CausalLMConfig) -> nn.Module:
    """The model of a trial, with random weights; no file of weights is read."""
    start = config.start or config
    tokens = len(load_pretrained(start.tokenizer)) if start.tokenizer else start.vocab_size
    with quiet_transformers():
        shape = architecture(start, {"vocab_size": tokens, "end": 0})
        auto: Any = AutoModelForCausalLM
        model: nn.Module = auto.from_config(shape, dtype=torch.float32)
    set_packing(model, packing_by_masks(model))  # it has nothing to compare
    if config.lora is not None:
        add_adapter(model, config.lora, config.init_seed)
    return model
