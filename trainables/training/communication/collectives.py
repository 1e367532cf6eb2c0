"""All-reduce algorithms made of point-to-point sends, written to be read.

Each sums a tensor over ranks, in place, and leaves the same bits on all of them. `builtin` is what
a job should use: NCCL and gloo know the network. The others show how it is done, and what it costs.
n ranks, S bytes:

| algorithm | messages in sequence | bytes sent by a rank |
|---|---|---|
| ring | 2 (n - 1) | 2 S (n - 1) / n |
| tree | 2 log2 n | up to S log2 n |
| doubling | log2 n | S log2 n |
| hierarchical | those of the groups and of the leaders | less between the groups |
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from trainables.parallel.footprint import Traffic


def builtin(tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic) -> None:
    """The process group's own all-reduce, counted as a ring."""
    n = len(ranks)
    traffic.add(2 * (n - 1) * size_of(tensor) // n, 2 * (n - 1))
    dist.all_reduce(tensor)


def ring(tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic) -> None:
    """Each rank passes parts to its right neighbour: n - 1 times to add, n - 1 times to copy.

    Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
    """
    n, me = len(ranks), ranks.index(dist.get_rank())
    parts = list(tensor.tensor_split(n))
    right, left = ranks[(me + 1) % n], ranks[(me - 1) % n]
    received = torch.empty_like(parts[0])
    for step in range(n - 1):  # afterwards rank i has the sum of part i + 1
        mine, other = parts[(me - step) % n], parts[(me - step - 1) % n]
        buffer = received[: len(other)]
        _exchange(mine, right, buffer, left, traffic)
        other += buffer
    for step in range(n - 1):
        _exchange(parts[(me + 1 - step) % n], right, parts[(me - step) % n], left, traffic)


def tree(tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic) -> None:
    """Pairs add up towards the first rank, which passes the sum back the same way."""
    reduce_to_first(tensor, ranks, traffic)
    broadcast_from_first(tensor, ranks, traffic)


def doubling(tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic) -> None:
    """Partners at distance 1, 2, 4, … exchange and add whole tensors: few messages, many bytes.

    Thakur et al. 2005, "Optimization of collective communication operations in MPICH". If the
    number of ranks is no power of two, those beyond it first give their values to a partner.
    """
    n, me = len(ranks), ranks.index(dist.get_rank())
    core = 1 << (n.bit_length() - 1)
    received = torch.empty_like(tensor)
    if me >= core:
        _send(tensor, ranks[me - core], traffic)
        _receive(tensor, ranks[me - core], traffic)
        return
    if me + core < n:
        _receive(received, ranks[me + core], traffic)
        tensor += received
    distance = 1
    while distance < core:
        partner = ranks[me ^ distance]
        _exchange(tensor, partner, received, partner, traffic)
        tensor += received
        distance *= 2
    if me + core < n:
        _send(tensor, ranks[me + core], traffic)


def hierarchical(
    tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic, group_size: int = 2
) -> None:
    """Sum within groups of neighbours, then over the groups' first ranks, and pass it back.

    With one group per machine, each machine sends a tensor once, however many ranks it has.
    """
    groups = [ranks[i : i + group_size] for i in range(0, len(ranks), group_size)]
    mine = next(group for group in groups if dist.get_rank() in group)
    reduce_to_first(tensor, mine, traffic)
    if dist.get_rank() == mine[0]:
        ring(tensor, [group[0] for group in groups], traffic)
    broadcast_from_first(tensor, mine, traffic)


def reduce_to_first(tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic) -> None:
    """Add up along a binomial tree: the first rank gets the sum, the others parts of it."""
    n, me = len(ranks), ranks.index(dist.get_rank())
    received = torch.empty_like(tensor)
    distance = 1
    while distance < n:
        if me % (2 * distance):
            _send(tensor, ranks[me - distance], traffic)
            return
        if me + distance < n:
            _receive(received, ranks[me + distance], traffic)
            tensor += received
        distance *= 2


def broadcast_from_first(tensor: torch.Tensor, ranks: Sequence[int], traffic: Traffic) -> None:
    """Copy the first rank's values along the same tree, downwards."""
    n, me = len(ranks), ranks.index(dist.get_rank())
    distance = 1 << (n - 1).bit_length()
    while distance > 1:
        distance //= 2
        if me % (2 * distance) == 0 and me + distance < n:
            _send(tensor, ranks[me + distance], traffic)
        elif me % (2 * distance) == distance:
            _receive(tensor, ranks[me - distance], traffic)


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's values."""
    return tensor.numel() * tensor.element_size()


def _exchange(
    sent: torch.Tensor, to: int, received: torch.Tensor, source: int, traffic: Traffic
) -> None:
    """Send to one rank and receive from one, at once: neither waits for the other to begin."""
    traffic.add(size_of(sent))
    both = [(dist.isend, sent, to), (dist.irecv, received, source)]
    operations = [dist.P2POp(way, part, peer) for way, part, peer in both if part.numel()]
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()


def _send(tensor: torch.Tensor, to: int, traffic: Traffic) -> None:
    traffic.add(size_of(tensor))
    dist.send(tensor, to)


def _receive(tensor: torch.Tensor, source: int, traffic: Traffic) -> None:
    traffic.add(0)
    dist.recv(tensor, source)
