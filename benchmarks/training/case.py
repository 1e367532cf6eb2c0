"""What is measured: one model, one batch and one precision for every contender."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

TURN = "turn\n"
"""What a contender prints at the end of a window; it goes on when it reads a line."""
RESULT = '{"contender"'
"""What its last line begins with."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Case:
    """A model, and how long it is trained.

    Attributes:
        title: in the table.
        config: of the trainable, without data, steps and reports.
        device: `cpu` or `cuda`.
        every: optimizer steps of a window that is timed; of images it is an epoch.
        windows: of a run; the first two do not count (compilation, allocators).
        words: in the random text.
        profile: whether ours is profiled in one more window.
        trainable: its name.
        layout: of several workers, as a sweep file has it; empty: each has a copy of the model.
    """

    title: str
    config: dict[str, Any]
    device: str
    every: int = 10
    windows: int = 5
    words: int = 200_000
    profile: bool = False
    trainable: str = "causal_lm"
    layout: dict[str, int] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        """What is counted."""
        return "images" if self.trainable == "image_classifier" else "tokens"

    def dumps(self) -> str:
        """The case as text, for a command line."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Case:
        """The case of a text."""
        return Case(**json.loads(text))

    def full_config(self, folder: Path) -> dict[str, Any]:
        """The configuration of the trial, on random text in a folder."""
        if self.unit == "images":
            return {"epochs": 1000, **self.config}
        return {
            "weight_decay": 0.1,
            "learning_rate": 3e-4,
            "max_steps": 1_000_000,
            "eval_every": self.every,
            "eval_sequences": 1,
            **self.config,
            "data": {"source": "files", "paths": [str(folder / f"{self.trainable}.jsonl")]},
        }


@dataclass
class Result:
    """One run of one contender.

    Attributes:
        contender: its name.
        tokens_per_second: or images, of each window, all ranks together.
        tokens_per_cpu_second: or images, of each window, of this rank's share and process.
        losses: of training, at the end of each window; nats per token.
        flops_per_token: of a training step; see `step_flops`.
        attention_flops: part of it, which counts as if attention were not causal.
        weights: of the model.
        peak: FLOP/s of the device; None on a CPU.
        peak_memory_gib: of tensors on the GPU.
        peaks_mib: of each rank on Linux, resident memory above that before it had a model.
        first_s: seconds of the first window: with compilation.
        error: why it did not run.
        profile: a table of kernels.
    """

    contender: str
    tokens_per_second: list[float] = field(default_factory=list)
    tokens_per_cpu_second: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    flops_per_token: float = 0.0
    attention_flops: float = 0.0
    weights: int = 0
    peak: float | None = None
    peak_memory_gib: float | None = None
    peaks_mib: list[float] = field(default_factory=list)
    first_s: float = 0.0
    error: str = ""
    profile: str = ""

    @property
    def speed(self) -> float:
        """Median tokens per second of the windows that count."""
        return float(np.median(self.tokens_per_second[2:] or [float("nan")]))

    @property
    def cpu_speed(self) -> float:
        """Median tokens per second of CPU time, which other work on the machine hardly changes."""
        return float(np.median(self.tokens_per_cpu_second[2:] or [float("nan")]))

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, 0 to 1."""
        return self.speed * self.flops_per_token / self.peak if self.peak else None


def write_text(folder: Path, case: Case) -> None:
    """Random words by Zipf's law, from which the BPE makes as many tokens as the case asks for.

    For `sft`, documents of a few words to some dozens are cut into questions and answers.
    """
    if case.unit == "images":
        return
    rng = np.random.default_rng(0)
    count = max(200, case.config["vocab_size"])
    lengths = rng.integers(3, 9, count)
    letters = rng.integers(0, len(LETTERS), (count, 9))
    words = np.array(
        ["".join(LETTERS[i] for i in row[:n]) for row, n in zip(letters, lengths, strict=True)]
    )
    chances = 1 / np.arange(10, count + 10)
    chosen = words[rng.choice(count, case.words, p=chances / chances.sum())]
    documents = [*np.array_split(words, 20), *np.array_split(chosen, max(20, case.words // 500))]
    if case.trainable == "sft":
        cuts = np.cumsum(rng.integers(8, 60, len(chosen) // 60))
        documents = np.split(chosen, cuts)[:-1]
    order = rng.permutation(len(documents))
    lines = (json.dumps(_row(documents[i].tolist(), case)) for i in order)
    (folder / f"{case.trainable}.jsonl").write_text("\n".join(lines) + "\n")


def _row(words: list[str], case: Case) -> dict[str, str]:
    if case.trainable == "causal_lm":
        return {"text": " ".join(words)}
    cut = len(words) // 3
    return {"question": " ".join(words[:cut]), "answer": " ".join(words[cut:])}
