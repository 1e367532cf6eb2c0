"""Rounds of federated training: read `train` from top to bottom.

The training of a client depends only on the seed, the round and its own number. So any number of
ranks, and a resumed run, give the same model bit for bit (on the CPU).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from results.averaging import Method, make_method
from results.averaging.mean import Uniform
from results.averaging.stack import ArrayStack
from results.trial_paths import LINEAGE
from trainables.checkpointing.training_state import load_tree, save_tree
from trainables.client import Client, Rows
from trainables.federated.config import FederatedConfig
from trainables.federated.partition import partition_rows
from trainables.federated.server import Server, State, Update, gather
from trainables.job import Answer
from trainables.parallel.sharded_state import unique_state
from trainables.registry import resolve
from trainables.runtime.seeding import rng_state, seed_everything
from trainables.training.checkpoint import read_lineage, weights_digest
from trainables.training.client import train_step
from trainables.training.data_sampler import Sampler
from trainables.worker import Worker

CLIENTS = "clients"


def train(config: FederatedConfig, worker: Worker) -> None:
    """Train one trial on this rank."""
    run = _start(config, worker)
    for number in range(run.round + 1, config.rounds + 1):
        metrics = run.advance(number)
        final = number == config.rounds
        answer = worker.report(step=number, metrics=metrics, checkpoint=run.save, final=final)
        if answer is not Answer.CONTINUE:
            break


@dataclass
class _Run:
    """The training state of a trial on this rank; `state` holds the server's weights."""

    config: FederatedConfig
    worker: Worker
    client: Client
    model: nn.Module
    lineage: str
    server: Server
    round: int = 0
    optimizers: dict[int, dict[str, Any]] = field(default_factory=dict)
    state: State = field(init=False)
    shards: list[Rows] = field(init=False)
    method: Method = field(init=False)
    updates: list[tuple[int, Update]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.state = _copy(self.model)
        self.shards = partition_rows(self.config, self.client.size, self.client.groups)
        self.method = make_method(self.config.aggregation, self.config.aggregation_options)
        self.model.to(self.worker.device)

    def advance(self, number: int) -> dict[str, float]:
        """One round: clients train, the server averages; returns the metrics."""
        present = sample(self.config, self.worker.seed, number)
        owners = [self._owner(place, client) for place, client in enumerate(present)]
        mine = {
            place: self._train(client, number)
            for place, (client, owner) in enumerate(zip(present, owners, strict=True))
            if owner == self.worker.rank
        }
        with self.worker.times.of("communication"):
            updates = gather(mine, owners, self.state, self.worker)
        if updates:
            self.state = self._next(present, updates)
        self.updates, self.round = list(zip(present, updates, strict=True)), number
        _put(self.model, self.state)
        losses = [update.loss for update in updates]
        trained = {"train_loss": float(np.mean(losses))} if losses else {}
        with self.worker.times.of("evaluation"):
            metrics = self.client.evaluate(self.model, self.worker)
        return {**metrics, **trained, "clients": float(len(present))}

    def _owner(self, place: int, client: int) -> int:
        """Round robin; a client whose optimizer is kept stays on the rank that has it."""
        return (client if self.config.keep_optimizer else place) % self.worker.world_size

    def _train(self, client: int, number: int) -> Update:
        """Train one client for its local steps, from the server's weights."""
        config, shard = self.config, self.shards[client]
        seed_everything(self._seed(1, number, client))
        _put(self.model, self.state)
        self.model.train()
        optimizer = self.client.optimizer(self.model)
        if client in self.optimizers:
            optimizer.load_state_dict(self.optimizers[client])
        sampler = Sampler(len(shard), self.client.batch_size, self._seed(2, client))
        pull = _proximal(self.model, config.proximal)
        losses = []
        total = config.rounds * config.local_steps
        for step in range((number - 1) * config.local_steps, number * config.local_steps):
            rows, device = shard[sampler.rows(step)], self.worker.device
            losses.append(
                train_step(self.client, self.model, optimizer, rows, step, total, device, pull)
            )
        if config.keep_optimizer:
            self.optimizers[client] = optimizer.state_dict()
        return Update(_copy(self.model), float(torch.stack(losses).double().mean()))

    def _seed(self, *what: int) -> int:
        return int(np.random.SeedSequence([self.worker.seed, *what]).generate_state(1)[0])

    def _next(self, present: list[int], updates: list[Update]) -> State:
        """The server's next state."""
        counts = [float(len(self.shards[client])) for client in present]
        weighted = self.method.name() == "weighted"
        shares = self.method.shares(len(updates), counts if weighted else None)
        trained = {name for name, p in self.model.named_parameters() if p.requires_grad}
        made: State = {}
        for name, before in self.state.items():
            values = [update.state[name] for update in updates]
            if not before.is_floating_point():
                made[name] = torch.stack(values).amax(dim=0)
                continue
            learned = name in trained
            average = _average(self.method if learned else Uniform(), name, before, values, shares)
            weights = before.double().numpy().reshape(-1)
            after = self.server.step(name, weights, average) if learned else average
            made[name] = torch.from_numpy(after).reshape(before.shape).to(before.dtype)
        return made

    def save(self, folder: Path) -> None:
        """Write this rank's part of a checkpoint."""
        save_tree(folder, f"rng_{self.worker.rank}", rng_state(self.worker.device))
        for client, state in self.optimizers.items():
            if self._owner(0, client) == self.worker.rank:
                save_tree(folder, f"optimizer_{client:05d}", state)
        if self.worker.rank:
            return
        self.client.save(self.model, folder)
        tensors = {name: torch.from_numpy(value) for name, value in self.server.state.items()}
        save_tree(folder, "progress", {"server": tensors})
        (folder / LINEAGE).write_text(json.dumps({"init": self.lineage}))
        if self.config.keep_clients:
            self._save_clients(folder / CLIENTS)

    def _save_clients(self, folder: Path) -> None:
        for client, update in self.updates:
            at = folder / f"{client:05d}"
            at.mkdir(parents=True)
            _put(self.model, update.state)
            self.client.save(self.model, at)
            lineage = {"init": self.lineage, "examples": len(self.shards[client])}
            (at / LINEAGE).write_text(json.dumps(lineage))
        _put(self.model, self.state)


def sample(config: FederatedConfig, seed: int, number: int) -> list[int]:
    """Clients that take part in a round and answer, ascending; depends on seed and round only."""
    rng = np.random.default_rng([seed, 0, number])
    size = max(1, round(config.participation * config.clients))
    chosen = np.sort(rng.choice(config.clients, size, replace=False))
    return [int(client) for client in chosen[rng.random(size) >= config.drop_out]]


def _start(config: FederatedConfig, worker: Worker) -> _Run:
    client = resolve(config.task).client(config.inner, worker.cache)
    model = client.model()
    found = worker.resume()
    if found is None:
        return _Run(config, worker, client, model, weights_digest(model), Server(config))
    client.load(model, found.folder)
    kept = load_tree(found.folder, "progress")["server"]
    server = Server(config, {name: value.numpy() for name, value in kept.items()})
    lineage = read_lineage(found.folder)
    optimizers = {
        client_id: load_tree(found.folder, f"optimizer_{client_id:05d}")
        for client_id in range(config.clients)
        if (found.folder / f"optimizer_{client_id:05d}.json").exists()
    }
    worker.loaded()
    return _Run(config, worker, client, model, lineage, server, found.step, optimizers)


def _copy(model: nn.Module) -> State:
    """A copy of the model's tensors; a tied one under its first name only."""
    return {name: t.detach().cpu().clone() for name, t in unique_state(model).items()}


def _put(model: nn.Module, state: State) -> None:
    own = model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            own[name].copy_(tensor)


def _proximal(model: nn.Module, strength: float) -> Callable[[], torch.Tensor | float]:
    """FedProx's term: half the squared distance from the server's weights, times a factor."""
    if not strength:
        return lambda: 0.0
    trained = [p for p in model.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in trained]

    def term() -> torch.Tensor:
        squares = [((p - s) ** 2).sum() for p, s in zip(trained, start, strict=True)]
        return 0.5 * strength * torch.stack(squares).sum()

    return term


def _average(
    method: Method,
    name: str,
    before: torch.Tensor,
    values: list[torch.Tensor],
    shares: list[float],
) -> Any:
    """A method's result for one tensor, float64, flat.

    The models are sorted by their shares, so that the result does not depend on their order.
    """
    flat = [value.double().numpy().reshape(-1) for value in values]
    order = sorted(range(len(flat)), key=lambda i: -shares[i])
    base = before.double().numpy().reshape(-1)
    stack = ArrayStack(name, [flat[i] for i in order], base, [shares[i] for i in order])
    combine = method.prepare(stack)
    pieces = [combine(piece).copy() for piece in stack.pieces()]
    return np.concatenate(pieces) if pieces else base
