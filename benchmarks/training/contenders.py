"""The ways to train the same model: one run of one of them, in this process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.training.case import TURN, Case, Result
from benchmarks.training.problems import Problem, problem_of
from benchmarks.training.turns import before_file, memory_mib
from results.records.reports import Report
from search_spaces.layout import Layout
from search_spaces.spec.layout import DDP, LayoutSpec
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.model.compilation import compiles
from trainables.causal_lm.model.objective import step_flops
from trainables.client import Rows
from trainables.job import Answer, TrialJob
from trainables.launch.run_trial import run_trial
from trainables.training.cross_entropy import IGNORED
from trainables.training.precision import compute_dtype
from trainables.training.throughput import memory_peak, peak_flops, start_memory_peak


class Stopped(Exception):
    """Ends a trial after its last window, without the checkpoint that its end would bring."""


class Windows:
    """Times windows of optimizer steps; as a channel, those of a trial."""

    def __init__(self, case: Case, problem: Problem, device: torch.device) -> None:
        self._case, self._device, self._problem = case, device, problem
        self._sampler, self._steps = problem.sampler(), 0
        self._began, self._cpu = time.perf_counter(), time.process_time()
        self._profiler: Any = None
        self._waited = 0.0
        self.result = Result("")

    def step(self, number: int, loss: float | None = None) -> bool:
        """Note the end of an optimizer step (from 1); whether it was the last one."""
        if number % self._problem.every:
            return False
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        seconds = time.perf_counter() - self._began
        self._problem.evaluate()
        self._add(self._next_units(), seconds, loss)
        self._await_turn()
        self._began = time.perf_counter()
        return self._enough

    @property
    def _enough(self) -> bool:
        return len(self.result.tokens_per_second) == self._case.windows

    def _await_turn(self) -> None:
        """Let the other contenders have the machine for a window."""
        if not self._enough:
            print(TURN, end="", flush=True)
            sys.stdin.readline()

    def _next_units(self) -> int:
        """Tokens or images of the next window, of all ranks."""
        begin, self._steps = self._steps, self._steps + self._problem.every
        rows = (self._sampler.batch_rows(step) for step in range(begin, self._steps))
        return sum(int(self._problem.sizes[part].sum()) for part in rows)

    def report(self, report: Report) -> Answer:
        """Take a report of a trial."""
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            self.result.profile = _top_kernels(self._profiler)
            raise Stopped
        began = time.perf_counter()
        units, told = self._next_units(), report.metrics
        speed = told.get("tokens_per_second") or told["images_per_second"]
        self._add(units, units / speed - self._waited, told["train_loss"])
        self._await_turn()
        self._waited = time.perf_counter() - began
        if self._enough:
            if _ranks()[1] > 1:
                return Answer.STOP  # the other ranks learn of it
            if not self._case.profile:
                raise Stopped
            self._profiler = torch.profiler.profile().__enter__()
        return Answer.CONTINUE

    def _add(self, units: int, seconds: float, loss: float | None) -> None:
        cpu, self._cpu = time.process_time() - self._cpu, time.process_time()
        self.result.tokens_per_second.append(units / seconds)
        self.result.tokens_per_cpu_second.append(units / _ranks()[1] / cpu)
        self.result.first_s = self.result.first_s or seconds
        if loss is not None:
            self.result.losses.append(loss)
        if self._device.type == "cuda":
            self.result.peak_memory_gib = memory_peak(self._device)


Contender = Callable[[Case, Path, Windows, Problem, torch.device], None]


def run(name: str, case: Case, folder: Path) -> Result:
    """One run of a contender; under torchrun, of this rank."""
    return run_contender(name, CONTENDERS[name], case, folder)


def run_contender(name: str, contender: Contender, case: Case, folder: Path) -> Result:
    """As `run`; those whose names begin with `ours` have a model of their own."""
    rank = int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", 0) if case.device == "cuda" else torch.device("cpu")
    before_file(folder, name, rank).write_text(str(memory_mib("VmRSS")))
    problem = problem_of(case, folder, torch.device("cpu") if _has_own(name) else device)
    windows = Windows(case, problem, device)
    if rank == 0 and isinstance(problem.config, CausalLMConfig):
        result = windows.result
        result.weights = sum(p.numel() for p in problem.model.parameters())
        result.flops_per_token = step_flops(problem.model, problem.config) or 0.0
        result.attention_flops = result.flops_per_token - 6.0 * result.weights
        result.peak = peak_flops(device)
    if _has_own(name):  # free the weights
        problem.optimizer.param_groups.clear()
        problem.model.to("meta")
    if (refs := Path("/proc/self/clear_refs")).exists():
        refs.write_text("5")  # the most memory from now on
    contender(case, folder, windows, problem, device)
    windows.result.contender = name
    return windows.result


def _has_own(name: str) -> bool:
    return name.startswith("ours")


def ours(
    case: Case, folder: Path, windows: Windows, problem: Problem, device: torch.device
) -> None:
    """The public trainable, as `tune trial` runs it."""
    rank, size = _ranks()
    try:
        run_trial(
            trial_job(case, folder), windows, device, rank=rank, world_size=size, local_rank=rank
        )
    except Stopped:
        return


def trial_job(case: Case, folder: Path) -> TrialJob:
    """A trial of a case, without checkpoints."""
    size = _ranks()[1]
    return TrialJob(
        trial_id="t",
        folder=str(folder / f"trial-{time.time_ns() if size == 1 else os.environ['MASTER_PORT']}"),
        trainable=case.trainable,
        config=case.full_config(folder),
        seed=0,
        attempt=1,
        cache=str(folder / "cache"),
        checkpoint_every=10**9,
        layout=LayoutSpec.model_validate(case.layout) if case.layout else DDP,
    )


def plain(
    case: Case, folder: Path, windows: Windows, problem: Problem, device: torch.device
) -> None:
    """A loop as one writes it: autocast, torch.compile, fused AdamW, DDP."""
    config, model = problem.config, problem.model
    rank, size = _ranks()
    share, sampler = config.batch_size // size, problem.sampler(rank, size)
    schedule = torch.optim.lr_scheduler.LambdaLR(problem.optimizer, problem.factor)
    language = isinstance(config, CausalLMConfig)
    net: Any = (
        torch.compile(model) if language and compiles(config, model, device, Layout()) else model
    )
    if size > 1:
        net = nn.parallel.DistributedDataParallel(net)
    dtype, step = compute_dtype(config.dtype, device), 0
    start_memory_peak(device)
    while True:
        taken, micro = sampler.rows(step), config.micro_batch_size or share
        step += 1
        for part in range(0, share, micro):
            inputs, targets = problem.batch(taken[part : part + micro])
            inputs = {k: _moved(value, device) for k, value in inputs.items()}
            with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
                logits = net(**inputs).logits
            loss = F.cross_entropy(logits.float().flatten(0, -2), _moved(targets, device).flatten())
            (loss * micro / share).backward()
        if config.grad_clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        problem.optimizer.step()
        schedule.step()
        problem.optimizer.zero_grad()
        if windows.step(step, float(loss) if step % problem.every == 0 else None):
            return


def trainer(
    case: Case, folder: Path, windows: Windows, problem: Problem, device: torch.device
) -> None:
    """`transformers.Trainer` with the same model, batches, precision and optimizer."""
    import transformers

    def collate(rows: list[int]) -> dict[str, torch.Tensor]:
        inputs, targets = problem.batch(np.array(rows))
        return {"input_ids": inputs["input_ids"], "shift_labels": targets, "labels": targets}

    transformers.Trainer(
        model=problem.model,
        args=transformers.TrainingArguments(**_arguments(case, folder, problem, device)),
        train_dataset=_order(case, problem).tolist(),
        data_collator=collate,
        callbacks=[_timer(windows, device)],
    ).train()


def trl(case: Case, folder: Path, windows: Windows, problem: Problem, device: torch.device) -> None:
    """trl's `SFTTrainer`, without packing, on the rows that the others take."""
    import datasets
    import trl as library

    def collate(rows: list[dict[str, int]]) -> dict[str, torch.Tensor]:
        inputs, targets = problem.batch(np.array([row["row"] for row in rows]))
        tokens, ones = inputs["input_ids"], torch.ones_like(targets)
        labels = F.pad(targets, (1, 0), value=IGNORED)[:, :-1]  # trl shifts them back
        return {"input_ids": tokens, "labels": labels, "attention_mask": ones}

    settings = {
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "gradient_checkpointing": False,
        "max_length": None,
    }
    library.SFTTrainer(
        model=problem.model,
        args=library.SFTConfig(**_arguments(case, folder, problem, device), **settings),
        train_dataset=datasets.Dataset.from_dict({"row": _order(case, problem)}),
        data_collator=collate,
        processing_class=problem.tokenizer,
        callbacks=[_timer(windows, device)],
    ).train()


def _timer(windows: Windows, device: torch.device) -> Any:
    import transformers

    class Timer(transformers.TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *args: Any, **others: Any) -> None:
            start_memory_peak(device)

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            control.should_training_stop = windows.step(state.global_step)

    return Timer()


def _arguments(case: Case, folder: Path, problem: Problem, device: torch.device) -> dict[str, Any]:
    """Of `transformers.TrainingArguments`, for the training of a problem."""
    config = problem.config
    share = config.batch_size // _ranks()[1]
    micro = config.micro_batch_size or share
    return dict(
        output_dir=str(folder / "trainer"),
        max_steps=_steps(case, problem),
        train_sampling_strategy="sequential",
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=share // micro,
        learning_rate=config.learning_rate,
        weight_decay=config.weight_decay,
        adam_beta2=config.beta2,
        max_grad_norm=config.grad_clip or 1.0,
        lr_scheduler_type="cosine",
        optim="adamw_torch_fused",
        bf16=compute_dtype(config.dtype, device) == torch.bfloat16,
        torch_compile=compiles(config, problem.model, device, Layout()),
        use_cpu=device.type == "cpu",
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_num_workers=0 if device.type == "cpu" else 2,
    )


def _order(case: Case, problem: Problem) -> Rows:
    """Rows of all steps: sequences differ in length, and all take the same ones in a window."""
    sampler = problem.sampler()
    return np.concatenate([sampler.batch_rows(step) for step in range(_steps(case, problem))])


def _steps(case: Case, problem: Problem) -> int:
    return problem.every * case.windows + 1


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value


CONTENDERS: dict[str, Contender] = {"ours": ours, "plain": plain, "trainer": trainer, "trl": trl}


def _top_kernels(profiler: Any) -> str:
    """The kernels of one window, with the most time first."""
    averages = profiler.key_averages()
    gpu = any(e.self_device_time_total for e in averages)
    by = "self_device_time_total" if gpu else "self_cpu_time_total"
    return str(averages.table(sort_by=by, row_limit=30, max_name_column_width=90))


def _ranks() -> tuple[int, int]:
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
