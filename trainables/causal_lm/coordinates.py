"""The coordinate check: whether training changes activations alike at all sizes (Yang et al. 2022).

Under the right rules the change of each activation after some steps does not depend on the width
or depth. A wrong rule shows as a power of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, linear_regression
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from search_spaces.errors import UserError
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.task import TextTask

STEPS, SEEDS, ROWS = 4, 3, 16
"""Steps before the measurement, models of one size, and sequences of a batch."""
GROWN, FALLEN = 0.2, -0.4
"""Exponents of a right rule lie between them: a wrong one is off by a power of 1/2 or more. Narrow
models with large learning rates change more than the rule says, so changes fall somewhat."""


@dataclass(frozen=True)
class Coordinate:
    """The change of one activation at several sizes.

    Attributes:
        axis: the size that differs, `hidden_size` or `num_layers`.
        name: embedding, attention, mlp (means over blocks), residual (before the last norm) or
            logits.
        sizes: ascending.
        changes: root mean square of the change in `STEPS` steps, for each size.
    """

    axis: str
    name: str
    sizes: tuple[int, ...]
    changes: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """Of the power of the size that fits the changes; not a number if they are not finite."""
        if not all(0 < change < math.inf for change in self.changes):
            return math.nan
        return linear_regression(
            list(map(math.log, self.sizes)), list(map(math.log, self.changes))
        )[0]

    @property
    def is_flat(self) -> bool:
        """Whether the size does not matter.

        Logits may fall: while the random embedding outweighs what it has learned, with small
        learning rates, their change falls as width^-1/2 under the right rule.
        """
        lowest = -math.inf if self.name == "logits" else FALLEN
        return lowest <= self.exponent <= GROWN


def coordinates(config: CausalLMConfig, cache: Path) -> Iterator[Coordinate]:
    """Train some steps at an eighth to the whole of the configuration's width and depth.

    The depth is checked with `completep` alone, where blocks share one sum: their own outputs are
    as small as there are many.

    Args:
        config: of a trial; its learning rate is constant here. Its width and depth are of powers of
            two.
        cache: folder of prepared data.

    Raises:
        UserError: there is no smaller model, or no check of such a model.
    """
    if config.is_pretrained or config.experts is not None:
        raise UserError("the check is of models from scratch without experts")
    yield from _along("hidden_size", _smaller(config.hidden_size, 32), config, cache)
    if config.parametrization == "completep":
        found = _along("num_layers", _smaller(config.num_layers, 2), config, cache)
        yield from (one for one in found if one.name in ("embedding", "residual", "logits"))


def _smaller(size: int, least: int) -> list[int]:
    """The size and its halves, ascending, at most four."""
    whole = (k for k in (3, 2, 1) if size % 2**k == 0 and size // 2**k >= least)
    return [*(size // 2**k for k in whole), size]


def _along(
    axis: str, sizes: Sequence[int], config: CausalLMConfig, cache: Path
) -> Iterator[Coordinate]:
    if len(sizes) < 2:
        raise UserError(f"{axis}: {sizes[-1]} has no half to compare with; give a power of two")
    of_sizes = [
        [_of_model(_resized(config, axis, size, seed), cache) for seed in range(SEEDS)]
        for size in sizes
    ]
    for name in of_sizes[0][0]:
        means = (geometric_mean([one[name] for one in models]) for models in of_sizes)
        yield Coordinate(axis, name, tuple(sizes), tuple(means))


def _resized(config: CausalLMConfig, axis: str, size: int, seed: int) -> CausalLMConfig:
    """The configuration at another size; an MLP whose width is given keeps its ratio."""
    changes = {axis: size, "init_seed": seed}
    if axis == "hidden_size" and config.intermediate_size is not None:
        changes["intermediate_size"] = config.intermediate_size * size // config.hidden_size
    try:
        return CausalLMConfig.model_validate(config.model_dump() | changes)
    except ValidationError as e:
        raise UserError(f"{axis} {size}: {e.errors()[0]['msg']}") from e


def _of_model(config: CausalLMConfig, cache: Path) -> dict[str, float]:
    task = TextTask.open(config, cache)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = task.new_model().to(device).train()
    optimizer = task.optimizer(model)
    objective = task.objective(model)
    rows = np.arange(STEPS * ROWS).reshape(STEPS, ROWS) % task.size
    batches = [task.batch(part, device) for part in rows]
    before = _activations(model, batches[0][0][:, :-1])
    for batch in batches:
        task.loss(objective, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    after = _activations(model, batches[0][0][:, :-1])
    found: dict[str, list[float]] = {}
    for name, value in after.items():
        change = (value - before[name]).square().mean().sqrt()
        found.setdefault(name.partition(" ")[0], []).append(float(change))
    return {name: sum(parts) / len(parts) for name, parts in found.items()}


@torch.no_grad()
def _activations(model: nn.Module, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs of the parts of a model, float32, by name."""
    hf: Any = model
    parts = {"embedding": hf.model.embed_tokens, "residual": hf.model.norm, "logits": hf.lm_head}
    for number, layer in enumerate(hf.model.layers):
        parts |= {f"attention {number}": layer.self_attn, f"mlp {number}": layer.mlp}
    found: dict[str, torch.Tensor] = {}

    def hook(name: str, _: nn.Module, given: Any, out: Any) -> None:
        kept = given if name == "residual" else out
        found[name] = (kept[0] if isinstance(kept, tuple) else kept).float()

    hooks = [part.register_forward_hook(partial(hook, name)) for name, part in parts.items()]
    model(input_ids=tokens)
    for one in hooks:
        one.remove()
    return found
