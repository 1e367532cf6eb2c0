"""The layout of a trial: how many ranks share its model and its batch, axis by axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

MOST_MICROBATCHES = 1024
AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""The axes, the outermost first: neighbouring ranks differ in the last one."""
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]
ContextMethod = Literal["gather", "ring"]
TWO_STAGES = ("interleaved", "zero_bubble")
"""Schedules in which each rank of `pp` has two stages."""
_ALWAYS = ("dp_replicate", "dp_shard")
"""Axes that the log names also where they have one rank."""
_OF_PIPELINES = ("schedule", "microbatches")
"""Settings that the log names with every pipeline."""


@dataclass(frozen=True)
class Layout:
    """The axes of a trial with a known number of ranks, which is their product.

    `search_spaces.spec.layout.LayoutSpec` has the meaning of each field.
    """

    dp_replicate: int = 1
    dp_shard: int = 1
    cp: int = 1
    tp: int = 1
    reshard_after_forward: bool = True
    pp: int = 1
    schedule: Schedule = "1f1b"
    microbatches: int | None = None
    ep: int = 1
    cpu_offload: bool = False
    cp_method: ContextMethod = "gather"
    sequence_parallel: bool = False

    @property
    def stages_per_rank(self) -> int:
        """Stages that each rank of `pp` has."""
        return 2 if self.pp > 1 and self.schedule in TWO_STAGES else 1

    @property
    def num_stages(self) -> int:
        """Parts of the model that compute one after another."""
        return self.pp * self.stages_per_rank

    @property
    def num_microbatches(self) -> int:
        """Parts of a rank's samples that follow each other; by default two for each rank."""
        return self.microbatches or 2 * self.pp

    @property
    def data_parallel(self) -> int:
        """Ranks that share a batch: each has other samples."""
        return self.dp_replicate * self.dp_shard

    @property
    def model_parallel(self) -> int:
        """Ranks that have the same samples, each with its part of them or of the model."""
        return self.pp * self.cp * self.tp

    @property
    def num_ranks(self) -> int:
        """Ranks of the trial: the product of the axes."""
        return math.prod(self.sizes.values())

    @property
    def weight_parts(self) -> int:
        """Ranks that gather a model's weights from each other, block by block (FSDP2)."""
        return self.dp_shard * self.cp

    @property
    def expert_parts(self) -> int:
        """Ranks that have parts of the experts of a block: `ep`, and those that gather them."""
        return expert_parts(self.sizes)

    @property
    def shares_model(self) -> bool:
        """Whether a rank has a part of the weights only."""
        return self.dp_shard * self.model_parallel > 1

    @property
    def gathers_weights(self) -> bool:
        """Whether FSDP2 has the weights, also where it only averages gradients of copies."""
        return self.shares_model and self.weight_parts * self.dp_replicate > 1

    @property
    def cuts_weights_only(self) -> bool:
        """Whether a rank computes whole layers on its own samples, as without a layout."""
        return self.model_parallel == self.ep == 1

    @property
    def cuts_sequences(self) -> bool:
        """Whether activations between layers are cut over the ranks of `tp`."""
        return self.sequence_parallel and self.tp > 1

    @property
    def sizes(self) -> dict[str, int]:
        """Number of ranks on each axis."""
        return {name: getattr(self, name) for name in AXES}

    def __str__(self) -> str:
        sizes = {**self.sizes, "ep": self.ep}
        shown = {n: size for n, size in sizes.items() if size > 1 or n in _ALWAYS}
        text = " x ".join(f"{name} {size}" for name, size in shown.items())
        for name, value in self.choices.items():
            if name not in _OF_PIPELINES:
                text += f" ({name})" if value is True else f" ({name}: {_written(value)})"
        if self.pp == 1:
            return text
        return f"{text} ({self.schedule}, {self.num_microbatches} microbatches)"

    @property
    def choices(self) -> dict[str, object]:
        """The settings beside the sizes that are not the default and have an effect."""
        has_effect = {
            "schedule": self.pp > 1,
            "microbatches": self.pp > 1,
            "cp_method": self.cp > 1,
            "sequence_parallel": self.tp > 1,
            "reshard_after_forward": self.weight_parts > 1,
            "cpu_offload": self.weight_parts > 1,
        }
        found = {name: getattr(self, name) for name, has in has_effect.items() if has}
        return {name: value for name, value in found.items() if value != getattr(Layout, name)}

    def neighbours(self, axes: Sequence[str]) -> Iterator[Layout]:
        """Other layouts of as many ranks on these axes, the most similar one first."""
        others = [*self.of_as_many_ranks(axes)]
        if self.pp > 1:
            others += [replace(self, microbatches=n) for n in range(1, MOST_MICROBATCHES + 1)]
        return iter(sorted((o for o in others if o != self), key=self._distance))

    def of_as_many_ranks(self, axes: Sequence[str]) -> Iterator[Layout]:
        """All layouts of as many ranks on these axes."""
        free = [name for name in AXES if name in axes]
        ones: dict[str, Any] = dict.fromkeys(AXES, 1)
        for found in _factorings(self.num_ranks, len(free)):
            sizes = ones | dict(zip(free, found, strict=True))
            for ep in divisors(expert_parts(sizes)) if "ep" in axes else [1]:
                yield replace(self, **sizes, ep=ep)

    def _distance(self, other: Layout) -> tuple[float, float]:
        pairs = [*zip(self.sizes.values(), other.sizes.values(), strict=True), (self.ep, other.ep)]
        parts = abs(math.log(self.num_microbatches / other.num_microbatches))
        return sum(abs(math.log(a / b)) for a, b in pairs), parts

    def as_written(self) -> str:
        """The layout as a sweep file has it."""
        return as_written({**self.sizes, "ep": self.ep}, self.choices)


def divisors(number: int) -> list[int]:
    """All divisors of a number, ascending."""
    return [n for n in range(1, number + 1) if number % n == 0]


def expert_parts(sizes: Mapping[str, int]) -> int:
    """Ranks among which the experts of a block can be shared: `ep` divides their number."""
    return sizes["dp_shard"] * sizes["cp"] * sizes["tp"]


def as_written(sizes: Mapping[str, int], others: Mapping[str, object] | None = None) -> str:
    """Axes of more than one rank, and other keys, as a sweep file has them."""
    shown = {name: size for name, size in sizes.items() if size > 1} | dict(others or {})
    return "{" + ", ".join(f"{name}: {_written(value)}" for name, value in shown.items()) + "}"


def _written(value: object) -> str:
    return str(value).lower()  # true, as YAML has it


def _factorings(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """All tuples of so many numbers with this product."""
    if count == 1:
        yield (total,)
        return
    for first in divisors(total):
        yield from ((first, *rest) for rest in _factorings(total // first, count - 1))
