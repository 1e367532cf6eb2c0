"""LoRA adapters of one base that train together, against one after the other.

    python -m benchmarks.adapters [--sizes tiny 37M 1B] [--adapters 4] [--seconds 3]

Each adapter has a batch, a loss and gradients of its own. Stacked, the base reads all batches at
once, and the adapters are batched matrix products. `sequential`: one at a time on the same base. On
a GPU each is also a CUDA graph, which leaves no gaps between kernels: of one adapter that is what
several processes reach at best. It is a prototype: the trainables train one adapter per trial.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from trainables.causal_lm.model.objective import move_model

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    | {"num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 512},
    "37M": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8}
    | {"num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 32000},
    "1B": {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32}
    | {"num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32000},
}
RANK, SCALE, SEQUENCES, LENGTH = 8, 2.0, 4, 256


class StackedLoRA(nn.Module):
    """A frozen layer with adapters, the input of each a slice of the batch."""

    def __init__(self, layer: nn.Linear, seeds: list[int]) -> None:
        super().__init__()
        self.layer, device = layer, layer.weight.device
        each, shape = [torch.Generator().manual_seed(s) for s in seeds], (RANK, layer.in_features)
        drawn = [torch.randn(shape, generator=generator) for generator in each]
        self.down = nn.Parameter(torch.stack(drawn).to(device) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(len(seeds), layer.out_features, RANK, device=device))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs [batch, tokens, out] of inputs [batch, tokens, in]."""
        found: torch.Tensor = self.layer(inputs)
        each = inputs.reshape(len(self.down), -1, inputs.shape[-1])
        low = each @ self.down.to(inputs.dtype).mT
        return found + (low @ self.up.to(inputs.dtype).mT).view_as(found) * SCALE


class Training:
    """The training of some adapters on a base, until `remove`."""

    def __init__(self, base: nn.Module, seeds: list[int]) -> None:
        self.base, self.count, self.layers = base, len(seeds), dict[str, StackedLoRA]()
        device = next(base.parameters()).device
        for name, layer in list(base.named_modules()):
            if isinstance(layer, nn.Linear) and not name.endswith("lm_head"):
                self.layers[name] = StackedLoRA(layer, seeds)
                base.set_submodule(name, self.layers[name])
        weights = [w for layer in self.layers.values() for w in (layer.down, layer.up)]
        graphs = {"capturable": True, "fused": True} if device.type == "cuda" else {}
        self.optimizer = torch.optim.AdamW(weights, lr=1e-3, **graphs)
        each = [torch.Generator().manual_seed(seed) for seed in seeds]
        size = int(base.config.vocab_size)  # type: ignore[union-attr, arg-type]
        drawn = [torch.randint(size, (SEQUENCES, LENGTH + 1), generator=g) for g in each]
        self.tokens = torch.cat(drawn).to(device)

    def step(self) -> torch.Tensor:
        """An optimizer step; returns the loss of each adapter, float32 [adapters]."""
        logits: torch.Tensor = self.base(self.tokens[:, :-1], use_cache=False).logits
        targets = self.tokens[:, 1:].reshape(-1)
        losses = F.cross_entropy(logits.flatten(0, 1).float(), targets, reduction="none")
        means = losses.view(self.count, -1).mean(dim=1)
        means.sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad()
        return means.detach()

    def remove(self) -> None:
        """Take the adapters out of the base."""
        for name, layer in self.layers.items():
            self.base.set_submodule(name, layer.layer)


def as_graph(step: Callable[[], object]) -> Callable[[], object]:
    """The step as one CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def rate(training: Training, step: Callable[[], object], seconds: float) -> float:
    """Tokens per second of a step, with those of all its adapters."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        for _ in range(5):
            step()
        if training.tokens.is_cuda:
            torch.cuda.synchronize()
        count += 5
    return count * training.count * SEQUENCES * LENGTH / (time.perf_counter() - begin)


def compare(size: str, adapters: int, seconds: float) -> dict[str, Any]:
    """Tokens per second of both ways, and the largest difference of their first losses."""
    cuda = torch.cuda.is_available()
    with torch.device("cuda" if cuda else "cpu") as device:
        base = LlamaForCausalLM(LlamaConfig(**SIZES[size])).requires_grad_(False)
    base = move_model(base.bfloat16() if cuda else base, device)
    found: dict[str, Any] = {"size": size, "adapters": adapters}
    losses, every = dict[str, list[torch.Tensor]](), list(range(adapters))
    for name, groups in (("sequential", [[seed] for seed in every]), ("stacked", [every])):
        for group in groups:
            training = Training(base, group)
            few = torch.stack([training.step() for _ in range(5)])
            losses.setdefault(name, []).append(few)
            if group is groups[-1]:
                found[name] = round(rate(training, training.step, seconds))
                if cuda:
                    graph = as_graph(training.step)
                    found[f"{name}_graph"] = round(rate(training, graph, seconds))
            training.remove()
    one, other = (torch.cat(each, dim=1) for each in losses.values())
    found["loss_difference"] = float((one - other).abs().max())
    found["ratio"] = round(found["stacked"] / found["sequential"], 2)
    if cuda:
        found["ratio_graph"] = round(found["stacked_graph"] / found["sequential_graph"], 2)
        found["memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["tiny"])
    parser.add_argument("--adapters", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    for size in options.sizes:
        print(json.dumps(compare(size, options.adapters, options.seconds)), flush=True)
