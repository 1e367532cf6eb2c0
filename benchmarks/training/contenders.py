"""The three ways to train the same model: one run of one of them, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.training.case import Case, Result
from results.records.reports import Report
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.data import Dataset, Tokens, prepare
from trainables.causal_lm.loop import lr_schedule, optimizer_of
from trainables.causal_lm.model import new_model
from trainables.causal_lm.objective import compiles, step_flops
from trainables.common.precision import compute_dtype
from trainables.common.throughput import memory_peak, peak_flops, start_memory_peak
from trainables.job import Answer, TrialJob
from trainables.launch.run_trial import run_trial


class Stopped(Exception):
    """Ends a trial after its last window, without the checkpoint that its end would bring."""


class Windows:
    """Times windows of optimizer steps; as a channel, those of a trial."""

    def __init__(self, case: Case, config: CausalLMConfig, device: torch.device) -> None:
        self._case, self._device = case, device
        self._tokens = case.every * config.batch_size * config.sequence_length
        self._began, self._cpu = time.perf_counter(), time.process_time()
        self._profiler: Any = None
        self.result = Result("")

    def step(self, number: int, loss: float | None = None) -> bool:
        """Note the end of an optimizer step (from 1); whether it was the last one."""
        if number % self._case.every:
            return False
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._began
        self._add(self._tokens / seconds, loss)
        self._began = time.perf_counter()
        return len(self.result.tokens_per_second) == self._case.windows

    def report(self, report: Report) -> Answer:
        """Take a report of a trial."""
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            self.result.profile = _top_kernels(self._profiler)
            raise Stopped
        self._add(report.metrics["tokens_per_second"], report.metrics["train_loss"])
        if len(self.result.tokens_per_second) == self._case.windows:
            if _ranks()[1] > 1:
                return Answer.STOP  # the other ranks learn of it
            if not self._case.profile:
                raise Stopped
            self._profiler = torch.profiler.profile().__enter__()
        return Answer.CONTINUE

    def _add(self, speed: float, loss: float | None) -> None:
        cpu, self._cpu = time.process_time() - self._cpu, time.process_time()
        self.result.tokens_per_second.append(speed)
        self.result.tokens_per_cpu_second.append(self._tokens / _ranks()[1] / cpu)
        self.result.first_s = self.result.first_s or self._tokens / speed
        if loss is not None:
            self.result.losses.append(loss)
        if self._device.type == "cuda":
            self.result.peak_memory_gib = memory_peak(self._device)


Contender = Callable[[Case, Path, Windows, torch.device], None]


def run(name: str, case: Case, folder: Path) -> Result:
    """One run of a contender; under torchrun, of this rank."""
    rank = int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", 0) if case.device == "cuda" else torch.device("cpu")
    config = CausalLMConfig.model_validate(case.full_config(folder))
    windows = Windows(case, config, device)
    CONTENDERS[name](case, folder, windows, device)
    result = windows.result
    result.contender = name
    if rank == 0:
        with torch.device("meta"):
            model = new_model(config, prepare(config, folder / "cache"))
        result.weights = sum(p.numel() for p in model.parameters())
        result.flops_per_token = step_flops(model, config)
        result.attention_flops = result.flops_per_token - 6.0 * result.weights
        result.peak = peak_flops(device)
    return result


def ours(case: Case, folder: Path, windows: Windows, device: torch.device) -> None:
    """The public trainable `causal_lm`, as `tune trial` runs it."""
    rank, size = _ranks()
    job = TrialJob(
        trial_id="t",
        folder=str(folder / f"trial-{time.time_ns() if size == 1 else os.environ['MASTER_PORT']}"),
        trainable="causal_lm",
        config=case.full_config(folder),
        seed=0,
        attempt=1,
        cache=str(folder / "cache"),
        checkpoint_every=10**9,
    )
    try:
        run_trial(job, windows, device, rank=rank, world_size=size, local_rank=rank)
    except Stopped:
        return


def plain(case: Case, folder: Path, windows: Windows, device: torch.device) -> None:
    """A loop as one writes it: autocast, torch.compile, fused AdamW, DDP."""
    config, data, model = _made(case, folder, device)
    rank, size = _ranks()
    rows, share = data.sequences(Split.TRAIN), config.batch_size // size
    optimizer = optimizer_of(model, config)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_schedule(config))
    net: Any = torch.compile(model) if compiles(config, model, device) else model
    if size > 1:
        net = nn.parallel.DistributedDataParallel(net)
    order = np.random.default_rng(0).permutation(len(rows))
    dtype, step = compute_dtype(config.dtype, device), 0
    start_memory_peak(device)
    while True:
        step += 1
        first = (step - 1) * config.batch_size + rank * share
        taken = order[np.arange(first, first + share) % len(order)]
        micro = config.micro_batch_size or share
        for part in range(0, share, micro):
            tokens = torch.from_numpy(rows[taken[part : part + micro]].astype(np.int64))
            tokens = tokens.to(device, non_blocking=True)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
                logits = net(input_ids=tokens[:, :-1], use_cache=False).logits
            loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
            (loss * micro / share).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip or 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if windows.step(step, float(loss) if step % case.every == 0 else None):
            return


def trainer(case: Case, folder: Path, windows: Windows, device: torch.device) -> None:
    """`transformers.Trainer` with the same model, batch, precision and optimizer."""
    import transformers

    config, data, model = _made(case, folder, device)
    _, size = _ranks()
    share = config.batch_size // size
    micro = config.micro_batch_size or share

    class Timer(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *args: Any, **others: Any) -> None:
            start_memory_peak(device)

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            control.should_training_stop = windows.step(state.global_step)

    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        max_steps=case.every * case.windows + 1,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=share // micro,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta2=config.beta2,
        max_grad_norm=config.grad_clip or 1.0,
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        bf16=compute_dtype(config.dtype, device) == torch.bfloat16,
        torch_compile=compiles(config, model, device),
        use_cpu=device.type == "cpu",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_num_workers=0 if device.type == "cpu" else 2,
    )
    rows: Any = _Rows(data.sequences(Split.TRAIN))
    transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[Timer()]
    ).train()


CONTENDERS: dict[str, Contender] = {"ours": ours, "plain": plain, "trainer": trainer}


def _top_kernels(profiler: Any) -> str:
    """The kernels of one window, with the most time first."""
    averages = profiler.key_averages()
    gpu = any(e.self_device_time_total for e in averages)
    by = "self_device_time_total" if gpu else "self_cpu_time_total"
    return str(averages.table(sort_by=by, row_limit=30, max_name_column_width=90))


class _Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self, rows: Tokens) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.from_numpy(self._rows[index, :-1].astype(np.int64))
        return {"input_ids": tokens, "labels": tokens}


def _made(
    case: Case, folder: Path, device: torch.device
) -> tuple[CausalLMConfig, Dataset, nn.Module]:
    config = CausalLMConfig.model_validate(case.full_config(folder))
    data = prepare(config, folder / "cache")
    return config, data, new_model(config, data).to(device).train()


def _ranks() -> tuple[int, int]:
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
