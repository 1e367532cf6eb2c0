"""Federated averaging, FedAdam and DiLoCo compared with a synchronous run on equally many tokens.

    python -m benchmarks.federated [--clients 4] [--rounds 10] [--local-steps 20] [--seeds 3]

A small language model learns the sources of Python's standard library, where each file belongs to
one client. Each contender trains on clients x rounds x local_steps x batch_size sequences; the
synchronous run makes rounds x local_steps steps with the batches of all clients, and exchanges
gradients at each step. The server's step size is the one of three with the smallest loss on the
selection split for the first seed. Prints the loss on the test split: mean and standard deviation
over seeds, which also set the initial weights. Needs no Ray; about five minutes on one core.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from results.checkpoints.commit import newest_intact
from results.records.trial import Report
from results.trial_paths import TrialPaths
from trainables.base import Split
from trainables.job import Answer, TrialJob
from trainables.launch.run_trial import run_trial
from trainables.registry import resolve

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
ADAPTIVE, NESTEROV = (0.01, 0.03, 0.1), (0.3, 0.5, 0.7)


@dataclass(frozen=True)
class Contender:
    """A configuration, and the server's step sizes to try."""

    trainable: str
    config: Mapping[str, Any]
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """Losses of one run on two splits, in nats per token."""

    selection: float
    test: float


class NullClient:
    """Ignores reports and continues every trial."""

    def report(self, report: Report) -> Answer:
        return Answer.CONTINUE


def train(one: Contender, rate: float | None, seed: int, cache: Path) -> Outcome:
    """Train once, and evaluate the last checkpoint."""
    made = resolve(one.trainable)
    rated = {**one.config, **({} if rate is None else {"server_learning_rate": rate})}
    config = made.Config.with_init_seed(rated, seed)
    with tempfile.TemporaryDirectory() as folder:
        job = TrialJob(
            trial_id="t0000",
            folder=folder,
            trainable=one.trainable,
            config=config,
            seed=seed,
            attempt=1,
            cache=str(cache),
            checkpoint_every=1_000_000,
        )
        run_trial(job, NullClient(), torch.device("cpu"))
        found = newest_intact(TrialPaths(Path(folder)))
        assert found is not None
        checked = made.Config.model_validate(config)
        losses = [
            made.evaluate(checked, found.folder, split, cache)["eval_loss"]
            for split in (Split.SELECTION, Split.TEST)
        ]
    return Outcome(*losses)


def contenders(clients: int, rounds: int, local_steps: int) -> dict[str, Contender]:
    """Contenders by name."""
    steps = rounds * local_steps
    alone = {**MODEL, "batch_size": BATCH * clients, "max_steps": steps, "eval_every": steps}
    shared = {
        "task": "causal_lm",
        "client": {**MODEL, "batch_size": BATCH},
        "clients": clients,
        "partition": "groups",
        "by": "source",
        "rounds": rounds,
        "local_steps": local_steps,
    }
    kept = {**shared, "keep_optimizer": True}
    return {
        "one synchronous run": Contender("causal_lm", alone),
        "FedAvg": Contender("federated", {**shared, "server": "fedavg"}),
        "FedAvg, optimizers kept": Contender("federated", {**kept, "server": "fedavg"}),
        "FedAdam": Contender("federated", {**shared, "server": "fedadam"}, ADAPTIVE),
        "DiLoCo": Contender("federated", {**kept, "server": "diloco"}, NESTEROV),
    }


def contest(one: Contender, seeds: int, cache: Path) -> tuple[float | None, list[float]]:
    """The chosen step size, and the test loss of each seed with it."""
    tried = {rate: train(one, rate, 0, cache) for rate in one.rates or (None,)}
    best = min(tried, key=lambda rate: tried[rate].selection)
    others = [train(one, best, seed, cache).test for seed in range(1, seeds)]
    return best, [tried[best].test, *others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--local-steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    steps = given.rounds * given.local_steps
    tokens = given.clients * steps * BATCH * MODEL["sequence_length"]
    print(f"{tokens:,} tokens each, {given.clients} clients, {given.seeds} seeds")
    print("| contender | server's step size | exchanges of weights or gradients | test loss |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as cache:
        for name, one in contenders(given.clients, given.rounds, given.local_steps).items():
            rate, found = contest(one, given.seeds, Path(cache))
            spread = f" ± {statistics.stdev(found):.3f}" if given.seeds > 1 else ""
            often = given.rounds if one.trainable == "federated" else steps
            shown = "" if rate is None else f"{rate:g}"
            print(
                f"| {name} | {shown} | {often} | {statistics.mean(found):.3f}{spread} |", flush=True
            )


if __name__ == "__main__":
    main()
