"""GRPO by this platform and by trl's GRPOTrainer: rewards, and CPU seconds of a step.

    pip install trl==1.16.0
    python -m benchmarks.grpo [--steps 100] [--seeds 3]

Both start from the same fine-tuned model and learn sums with as many samples: model, questions,
rewards, loss, optimizer, learning rate and precision are the same. Each run is a process with one
thread; runs of one seed follow each other, and seeds take turns in who begins. The first window of
steps, with what is prepared once, does not count for the seconds. pass@1 is of the test split's
questions, answered greedily, and computed by the same code for both.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WINDOW = 10
"""Steps between two reports."""
CONTENDERS = ("ours", "trl")
SETTINGS: dict[str, Any] = {
    "data": {"source": "arithmetic", "difficulty": 2},
    "sequence_length": 64,
    "batch_size": 16,
    "group_size": 8,
    "max_new_tokens": 5,
    "learning_rate": 5e-4,
    "schedule": "constant",
    "warmup_fraction": 0.1,
    "eval_every": WINDOW,
    "eval_samples": 1,
}
START: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 257,
    "batch_size": 32,
    "learning_rate": 5e-3,
    "schedule": "wsd",
    "max_steps": 220,
}


class Clock:
    """CPU and wall seconds, and the training's mean reward, at the end of each window."""

    def __init__(self) -> None:
        self.times: list[tuple[int, float, float]] = []
        self.rewards: list[float] = []

    def note(self, step: int, reward: float) -> None:
        self.times.append((step, time.process_time(), time.perf_counter()))
        self.rewards.append(reward)

    @property
    def seconds_per_step(self) -> tuple[float, float]:
        """CPU and wall."""
        (first, *began), (last, *ended) = self.times[0], self.times[-1]
        return tuple((e - b) / (last - first) for b, e in zip(began, ended, strict=True))  # type: ignore[return-value]


def run_ours(config: dict[str, Any], seed: int, folder: Path, cache: Path) -> tuple[Clock, Path]:
    """Train a trial of `grpo`; returns its last checkpoint."""
    import torch

    from results.checkpoints.commit import newest_intact
    from results.records.reports import Report
    from results.trial_paths import TrialPaths
    from trainables.job import Answer, TrialJob
    from trainables.launch.run_trial import run_trial

    clock = Clock()

    class Noted:
        def report(self, report: Report) -> Answer:
            clock.note(report.step, report.metrics["reward"])
            return Answer.CONTINUE

    job = TrialJob(
        trial_id="t0000",
        folder=str(folder),
        trainable="grpo",
        config={**config, "eval_sequences": 1},
        seed=seed,
        attempt=1,
        cache=str(cache),
        checkpoint_every=1_000_000,
    )
    run_trial(job, Noted(), torch.device("cpu"))
    found = newest_intact(TrialPaths(folder))
    assert found is not None
    return clock, found.folder


def run_trl(config: dict[str, Any], seed: int, folder: Path, cache: Path) -> tuple[Clock, Path]:
    """Train with trl's GRPOTrainer; returns the folder of the model."""
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

    from trainables.base import Split
    from trainables.grpo.config import GRPOConfig
    from trainables.grpo.rewards import Completion, RewardConfig, exact
    from trainables.training.task import open_task

    given, clock = GRPOConfig.model_validate(config), Clock()
    size = given.batch_size * given.group_size

    class Noted(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "reward" in logs:
                clock.note(state.global_step, logs["reward"])

    def reward(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
        texts = (messages[0]["content"] for messages in completions)
        pairs = zip(texts, answer, strict=True)
        return [exact(Completion("", right, text), RewardConfig()) for text, right in pairs]

    rows = open_task(given, cache).dataset.questions(Split.TRAIN)
    asked = [
        {"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]}
        for row in rows
    ]
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        max_steps=given.max_steps,
        per_device_train_batch_size=size,
        generation_batch_size=size,
        num_generations=given.group_size,
        max_completion_length=given.max_new_tokens,
        temperature=given.temperature,
        loss_type=given.loss,
        scale_rewards=given.scale_rewards,
        epsilon=given.epsilon,
        beta=given.beta,
        learning_rate=given.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=round(given.warmup_fraction * given.max_steps),
        weight_decay=given.weight_decay,
        adam_beta2=given.beta2,
        max_grad_norm=given.grad_clip or 0.0,
        optim="adamw_torch",
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        logging_steps=WINDOW,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(given.model_name_or_path),
        processing_class=AutoTokenizer.from_pretrained(given.model_name_or_path),
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list(asked),
        callbacks=[Noted()],
    )
    trainer.train()
    trainer.save_model(str(folder / "final"))
    return clock, folder / "final"


def one(contender: str, seed: int, config: dict[str, Any], cache: Path) -> dict[str, Any]:
    """Train once, in this process; returns the measurements."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = {"ours": run_ours, "trl": run_trl}[contender]
        clock, model = run(config, seed, Path(folder) / "t0000", cache)
        cpu, wall = clock.seconds_per_step
        return {
            "rewards": clock.rewards,
            "cpu": cpu,
            "wall": wall,
            "pass_at_1": held_out(config, model, cache),
        }


def held_out(config: dict[str, Any], model: Path, cache: Path) -> float:
    """Share of the test split's questions that a model solves."""
    from trainables.base import Split
    from trainables.registry import resolve

    grpo = resolve("grpo")
    checked = grpo.Config.model_validate({**config, "eval_sequences": 1000})
    return grpo.evaluate(checked, model, Split.TEST, cache)["pass_at_1"]


def make_start(config: dict[str, Any], cache: Path) -> str:
    """The folder of the fine-tuned model that all begin with."""
    import torch

    from trainables.causal_lm.trained_model import trained_once
    from trainables.grpo.config import GRPOConfig

    start = GRPOConfig.model_validate({**config, "sft": START}).start
    assert start is not None
    return str(trained_once(start, cache, torch.device("cpu"), lambda: None))


def in_process(contender: str, seed: int, config: dict[str, Any], cache: Path) -> dict[str, Any]:
    """`one` in a new process with one thread."""
    given = json.dumps([contender, seed, config, str(cache)])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.grpo", "--one", given],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def show(found: dict[str, list[dict[str, Any]]]) -> None:
    """Print medians over the seeds, and the rewards of the windows."""
    print("\n| | CPU s per step | wall s per step | pass@1, test split | of each seed |")
    print("| --- | ---: | ---: | ---: | --- |")
    for name, runs in found.items():
        cpu, wall, solved = ([run[k] for run in runs] for k in ("cpu", "wall", "pass_at_1"))
        each = ", ".join(f"{value:.3f}" for value in solved)
        middle = [statistics.median(values) for values in (cpu, wall, solved)]
        print(f"| {name} | {middle[0]:.4f} | {middle[1]:.4f} | {middle[2]:.3f} | {each} |")
    pairs = zip(found["ours"], found["trl"], strict=True)
    ratio = statistics.median(a["cpu"] / b["cpu"] for a, b in pairs)
    print(f"\nours / trl, CPU seconds, median of the seeds: {ratio:.2f}\n")
    windows = range(len(found["ours"][0]["rewards"]))
    print(f"| mean reward of {WINDOW} steps to | {' | '.join(found)} |\n| ---: | ---: | ---: |")
    for window in windows:
        means = [statistics.mean(r["rewards"][window] for r in runs) for runs in found.values()]
        print(f"| {(window + 1) * WINDOW} | {' | '.join(f'{m:.3f}' for m in means)} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.grpo", description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        contender, seed, config, cache = json.loads(given.one)
        print(json.dumps(one(contender, seed, config, Path(cache))))
        return
    if importlib.util.find_spec("trl") is None:
        sys.exit("trl is not installed: pip install trl==1.16.0")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    with tempfile.TemporaryDirectory(prefix="tune-grpo-") as folder:
        cache, config = Path(folder), {**SETTINGS, "max_steps": given.steps}
        config["model_name_or_path"] = start = make_start(config, cache)
        began = held_out(config, Path(start), cache)
        print(f"pass@1 of the start, test split: {began:.3f}", flush=True)
        for seed in range(given.seeds):
            for name in CONTENDERS[:: 1 if seed % 2 == 0 else -1]:
                found[name].append(in_process(name, seed, config, cache))
                told = {k: v for k, v in found[name][-1].items() if k != "rewards"}
                print(f"seed {seed} {name}: {told}", flush=True)
        show(found)


if __name__ == "__main__":
    main()
