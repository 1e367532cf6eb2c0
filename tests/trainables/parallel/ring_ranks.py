"""One rank of a ring: attention and its gradients are those of whole sequences.

python -m tests.trainables.parallel.ring_ranks RANK WORLD FOLDER HEADS
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional as F

from trainables.parallel.ring import ring_attention


def check(rank: int, world: int, heads: int) -> None:
    """Compare this rank's part with torch's own attention; two heads of keys and values."""
    generator = torch.Generator().manual_seed(0)
    sizes = [(2, count, 12 * world, 8) for count in (heads, 2, 2)]
    whole = [torch.randn(size, generator=generator).requires_grad_() for size in sizes]
    grad = torch.randn(sizes[0], generator=generator)
    expected = F.scaled_dot_product_attention(*whole, is_causal=True, enable_gqa=True)
    gradients = torch.autograd.grad(expected, whole, grad)

    def part(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().chunk(world, dim=2)[rank].clone()

    mine = [part(tensor).requires_grad_() for tensor in whole]
    out = ring_attention(*mine, group=None)
    torch.testing.assert_close(out, part(expected))
    found = torch.autograd.grad(out, mine, part(grad))
    for one, known in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, part(known), rtol=1e-4, atol=1e-5)


def main(rank: int, world: int, folder: Path, heads: int) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / f'rendezvous_{world}'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
    check(rank, world, heads)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
