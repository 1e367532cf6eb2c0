"""Federated averaging, FedAdam and DiLoCo beside one synchronous run, on equally many tokens.

    python -m benchmarks.federated [--clients 4] [--rounds 12] [--local-steps 10] [--seeds 1]

A small language model on the Python standard library's sources, divided by source file. Each
contender trains on clients x rounds x local_steps x batch_size sequences; the synchronous run takes
rounds x local_steps steps with a batch of all clients together. Prints the loss on the test split.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from results.checkpoint import newest_whole
from results.paths import TrialPaths
from results.records import Report
from trainables.base import Split
from trainables.registry import resolve
from trainables.run import run_trial
from trainables.worker import Answer, TrialJob

MODEL: dict[str, Any] = {
    "hidden_size": 64,
    "num_layers": 2,
    "vocab_size": 512,
    "sequence_length": 64,
    "eval_sequences": 512,
    "learning_rate": 3e-3,
    "data": {"max_bytes": 1_000_000},
}
BATCH = 8
CONTENDERS: dict[str, dict[str, Any]] = {
    "FedAvg": {"server": "fedavg"},
    "FedAvg, optimizers kept": {"server": "fedavg", "keep_optimizer": True},
    "FedAdam": {"server": "fedadam"},
    "DiLoCo": {"server": "diloco", "keep_optimizer": True},
}


class Silent:
    """Nobody listens, and nobody stops a trial."""

    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def test_loss(trainable: str, config: Mapping[str, Any], seed: int, cache: Path) -> float:
    """Train once, and judge the last checkpoint on the test split, in nats per token."""
    with tempfile.TemporaryDirectory() as folder:
        job = TrialJob(
            trial_id="t0000",
            folder=folder,
            trainable=trainable,
            config=dict(config),
            seed=seed,
            attempt=1,
            cache=str(cache),
            checkpoint_every=1_000_000,
        )
        run_trial(job, Silent(), torch.device("cpu"))
        found = newest_whole(TrialPaths(Path(folder)))
        assert found is not None
        made = resolve(trainable)
        checked = made.Config.model_validate(dict(config))
        return made.evaluate(checked, found.folder, Split.TEST, cache)["eval_loss"]


def contenders(given: argparse.Namespace) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name → trainable and configuration."""
    steps = given.rounds * given.local_steps
    alone = {**MODEL, "batch_size": BATCH * given.clients, "max_steps": steps, "eval_every": steps}
    shared = {
        "task": "causal_lm",
        "client": {**MODEL, "batch_size": BATCH},
        "clients": given.clients,
        "partition": "groups",
        "by": "source",
        "rounds": given.rounds,
        "local_steps": given.local_steps,
    }
    return {
        "one synchronous run": ("causal_lm", alone),
        **{name: ("federated", {**shared, **own}) for name, own in CONTENDERS.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--local-steps", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    tokens = given.clients * given.rounds * given.local_steps * BATCH * MODEL["sequence_length"]
    print(f"{tokens:,} tokens each, {given.clients} clients, {given.seeds} seeds")
    print("| contender | test loss (nats per token) | seconds |\n| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as cache:
        for name, (trainable, config) in contenders(given).items():
            since = time.perf_counter()
            found = [test_loss(trainable, config, s, Path(cache)) for s in range(given.seeds)]
            spread = f" ± {statistics.stdev(found):.3f}" if given.seeds > 1 else ""
            seconds = (time.perf_counter() - since) / given.seeds
            print(f"| {name} | {statistics.mean(found):.3f}{spread} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
