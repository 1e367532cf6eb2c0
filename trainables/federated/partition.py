"""Partition of a train split among clients: depends on the seed only, the same on every rank."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trainables.client import Rows
from trainables.federated.config import FederatedConfig


def partition_rows(config: FederatedConfig, size: int, groups: Callable[[str], Rows]) -> list[Rows]:
    """Rows of each client, ascending; every row has one client, every client at least one row.

    The split has `size` rows; `groups` gives the label or source of each, see `Client.groups`.

    Raises:
        ValueError: there are fewer rows than clients.
    """
    if size < config.clients:
        raise ValueError(f"{size} examples cannot be dealt to {config.clients} clients")
    rng = np.random.default_rng([config.partition_seed, config.clients])
    if config.partition == "iid":
        owners = rng.permutation(np.arange(size) % config.clients)
    elif config.partition == "dirichlet":
        owners = _dirichlet(groups(config.by), config.clients, config.alpha, rng)
    else:
        owners = _whole_groups(groups(config.by), config.clients, rng)
    owners = _no_empty(owners, config.clients)
    return [np.flatnonzero(owners == client).astype(np.int64) for client in range(config.clients)]


def _dirichlet(groups: Rows, clients: int, alpha: float, rng: np.random.Generator) -> Rows:
    """Divide each group in shares of its own (Hsu et al. 2019, arXiv 1909.06335)."""
    owners = np.zeros(len(groups), np.int64)
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        cuts = np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(rows)
        owners[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return owners


def _whole_groups(groups: Rows, clients: int, rng: np.random.Generator) -> Rows:
    """Give the groups, in random order, to the client that has the fewest rows then."""
    names, sizes = np.unique(groups, return_counts=True)
    held, owner_of = np.zeros(clients, np.int64), {}
    for at in rng.permutation(len(names)):
        owner_of[names[at]] = int(held.argmin())
        held[held.argmin()] += sizes[at]
    return np.array([owner_of[group] for group in groups], dtype=np.int64)


def _no_empty(owners: Rows, clients: int) -> Rows:
    """Move a row from the largest client to each client that has none."""
    owners = owners.copy()
    for client in range(clients):
        counts = np.bincount(owners, minlength=clients)
        if not counts[client]:
            owners[np.flatnonzero(owners == counts.argmax())[0]] = client
    return owners
