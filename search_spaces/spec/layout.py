"""`resources.layout`: how the ranks of a trial share its model and its batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from search_spaces.errors import suggest
from search_spaces.layout import (
    AXES,
    MOST_MICROBATCHES,
    ContextMethod,
    Layout,
    Schedule,
    as_written,
    divisors,
    expert_parts,
)
from search_spaces.spec.base import Section

REST = -1
"""Size of an axis that takes the ranks which the others leave."""
AUTO: Literal["auto"] = "auto"
"""Each trial has the first layout that fits the memory of its workers."""
SHORTHANDS: dict[str, dict[str, int]] = {
    "ddp": {"dp_replicate": REST},
    "fsdp": {"dp_shard": REST},
}


def _size(text: str) -> Any:
    return Field(1, ge=REST, description=f"{text} (ranks); -1: the rest.")


class LayoutSpec(Section):
    """How the ranks of a trial share its model; the product of the axes is `workers`."""

    dp_replicate: int = _size("Copies of the model, each with its part of the batch")
    dp_shard: int = _size(
        "Ranks that share a copy of weights, gradients and optimizer state (FSDP2), each with its "
        "part of the batch"
    )
    cp: int = _size(
        "Ranks that have the same samples, and a part of each sequence (context parallelism); they "
        "share weights, gradients and optimizer state like those of dp_shard"
    )
    cp_method: ContextMethod = Field(
        "gather",
        description="With cp: gather (a rank has the keys and values of whole sequences in each "
        "attention) or ring (they travel from rank to rank beside the products; without masks, so "
        "for packing: plain, and on a GPU for half precision).",
    )
    tp: int = _size("Ranks that share each layer (tensor parallelism); they have the same samples")
    sequence_parallel: bool = Field(
        False,
        description="With tp: whether each rank has a part of each sequence in norms and "
        "residuals, and whole ones in attention and MLP only; less memory, no more bytes sent.",
    )
    ep: int = Field(
        1,
        ge=1,
        description="Ranks that share the experts of each block (expert parallelism). They are "
        "ranks of dp_shard, cp and tp: ep divides the product of these, and makes no workers.",
    )
    pp: int = _size(
        "Ranks that have some layers each (pipeline parallelism); they have the same samples"
    )
    schedule: Schedule | None = Field(
        None,
        description="With pp: the order in which ranks compute the microbatches: gpipe (all "
        "forward, then all backward), 1f1b (one of each, with less memory; the default), "
        "interleaved (1f1b with two stages per rank), or zero_bubble (interleaved, and gradients "
        "of weights when a rank would wait).",
    )
    microbatches: int | None = Field(
        None,
        ge=1,
        le=MOST_MICROBATCHES,
        description="With pp: parts of a rank's samples that follow each other through the ranks; "
        "default: two for each rank of pp.",
    )
    reshard_after_forward: bool = Field(
        True,
        description="With dp_shard: whether weights are freed after the forward pass and gathered "
        "again for the backward pass (ZeRO-3); false: they stay (ZeRO-2).",
    )

    cpu_offload: bool = Field(
        False,
        description="With dp_shard: whether weights, gradients and optimizer state stay in the "
        "memory of the host, where the optimizer computes; the device has the activations and the "
        "weights of a block. Slower.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        sizes = self._sizes
        if zero := [name for name, size in sizes.items() if size == 0]:
            raise ValueError(f"{zero[0]} must be at least 1, or -1 for the rest, got 0")
        if len(rest := [name for name, size in sizes.items() if size == REST]) > 1:
            raise ValueError(f"only one axis can be -1 (the rest), got {' and '.join(rest)}")
        given = {
            "reshard_after_forward": not self.reshard_after_forward,
            "cpu_offload": self.cpu_offload,
        }
        if self.dp_shard == self.cp == 1 and (lost := [n for n, is_set in given.items() if is_set]):
            raise ValueError(f"{lost[0]} has no effect without dp_shard or cp")
        if self.cp == 1 and self.cp_method != "gather":
            raise ValueError("cp_method has no effect without cp")
        if self.tp == 1 and self.sequence_parallel:
            raise ValueError("sequence_parallel has no effect without tp")
        for name in ("schedule", "microbatches"):
            if self.pp == 1 and getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect without pp")
        return self

    @property
    def _sizes(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in AXES}

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """The section that resolves to a layout."""
        return cls.model_validate({**layout.sizes, "ep": layout.ep, **layout.choices})

    def resolve(self, workers: int) -> Layout:
        """The layout of a trial with so many ranks.

        Raises:
            ValueError: the axes do not have this product; the message has the nearest layout.
        """
        sizes = self._sizes
        given = math.prod(size for size in sizes.values() if size != REST)
        rest = next((name for name, size in sizes.items() if size == REST), None)
        if workers % given or (rest is None and given != workers):
            rule = f"gives {given} ranks, and workers is" if rest is None else "does not divide"
            nearest = self._with_ep(self._nearest(workers))
            raise ValueError(f"{_product(sizes)} {rule} {workers}; nearest layout: {nearest}")
        if rest is not None:
            sizes[rest] = workers // given
        if (parts := expert_parts(sizes)) % self.ep:
            raise ValueError(
                f"ep {self.ep} does not divide dp_shard x cp x tp, {parts}; nearest layout: "
                f"{self._with_ep(sizes)}"
            )
        return Layout(**{**self.model_dump(exclude_none=True), **sizes})

    def _with_ep(self, sizes: Mapping[str, int]) -> str:
        """These axes, and the largest `ep` that divides them and is no larger than wanted."""
        ep = max(n for n in divisors(expert_parts(sizes)) if n <= self.ep)
        return as_written({**sizes, "ep": ep})

    def _nearest(self, workers: int) -> dict[str, int]:
        """Sizes with this product: axes have the largest that divides it, one has the rest."""
        found, left = dict.fromkeys(AXES, 1), workers
        for name in reversed(AXES):
            if (wanted := self._sizes[name]) != REST:
                found[name] = max(n for n in range(1, wanted + 1) if left % n == 0)
                left //= found[name]
        taker = next((name for name in AXES if self._sizes[name] == REST), "dp_replicate")
        return {**found, taker: found[taker] * left}


DDP = LayoutSpec.model_validate(SHORTHANDS["ddp"])


def _product(sizes: Mapping[str, int]) -> str:
    factors = [f"{name} {size}" for name, size in sizes.items() if size not in (1, REST)]
    return " x ".join(factors) or "a layout of ones"


def _expand(value: object) -> object:
    if not isinstance(value, str) or value == AUTO:
        return value
    if value not in SHORTHANDS:
        known = (*SHORTHANDS, AUTO)
        raise ValueError(
            f"no layout '{value}'{suggest(value, known)}; or axes, like {{dp_shard: 4}}"
        )
    return SHORTHANDS[value]


LayoutField = Annotated[
    LayoutSpec | Literal["auto"],
    BeforeValidator(_expand, json_schema_input_type=LayoutSpec | Literal["ddp", "fsdp", "auto"]),
]
