"""`resources.layout`: how the ranks of a trial share its model and its batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from search_spaces.errors import suggest
from search_spaces.spec.base import Section

MOST_MICROBATCHES = 1024
REST = -1
"""Size of an axis that takes the ranks which the others leave."""
AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""The axes, the outermost first: neighbouring ranks differ in the last one."""
Schedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]
ContextMethod = Literal["gather", "ring"]
TWO_STAGES = ("interleaved", "zero_bubble")
"""Schedules in which each rank of `pp` has two stages."""
AUTO: Literal["auto"] = "auto"
"""Each trial has the first layout that fits the memory of its workers."""
SHORTHANDS: dict[str, dict[str, int]] = {
    "ddp": {"dp_replicate": REST},
    "fsdp": {"dp_shard": REST},
}


@dataclass(frozen=True)
class Layout:
    """The axes of a trial with a known number of ranks, which is their product.

    Attributes:
        dp_replicate: copies of the model.
        dp_shard: ranks that share one copy of weights, gradients and optimizer state.
        cp: ranks that have the same samples, and a part of each sequence; they share weights too.
        tp: ranks that share each layer, and see the same samples.
        reshard_after_forward: whether the ranks gather the weights again for the backward pass.
        ep: ranks of `dp_shard`, `cp` and `tp` that share the experts of each block.
        pp: ranks that have some layers each, and see the same samples one after another.
        schedule: the order in which the ranks of `pp` compute.
        microbatches: parts of a rank's samples that follow each other; None: the default.
        cpu_offload: whether weights, gradients and optimizer state are on the host, and weights are
            copied to the device when they are gathered.
        cp_method: how the ranks of `cp` see the keys of each other.
        sequence_parallel: whether ranks of `tp` have a part of each sequence between the layers
            that they share.
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
        return _expert_parts(self.sizes)

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
            for ep in _divisors(_expert_parts(sizes)) if "ep" in axes else [1]:
                yield replace(self, **sizes, ep=ep)

    def _distance(self, other: Layout) -> tuple[float, float]:
        pairs = [*zip(self.sizes.values(), other.sizes.values(), strict=True), (self.ep, other.ep)]
        parts = abs(math.log(self.num_microbatches / other.num_microbatches))
        return sum(abs(math.log(a / b)) for a, b in pairs), parts

    def as_written(self) -> str:
        """The layout as a sweep file has it."""
        return _as_written({**self.sizes, "ep": self.ep}, self.choices)


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
        "forward, then all backward), 1f1b (in turns, with less memory; the default), interleaved "
        "(in turns, with two stages per rank), or zero_bubble (interleaved, and gradients of "
        "weights when a rank would wait).",
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

    @property
    def is_default(self) -> bool:
        """Whether the ranks share the batch only, as without a layout."""
        return self == DDP

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
        if (parts := _expert_parts(sizes)) % self.ep:
            raise ValueError(
                f"ep {self.ep} does not divide dp_shard x cp x tp, {parts}; nearest layout: "
                f"{self._with_ep(sizes)}"
            )
        return Layout(
            **sizes,
            ep=self.ep,
            reshard_after_forward=self.reshard_after_forward,
            schedule=self.schedule or "1f1b",
            microbatches=self.microbatches,
            cpu_offload=self.cpu_offload,
            cp_method=self.cp_method,
            sequence_parallel=self.sequence_parallel,
        )

    def _with_ep(self, sizes: Mapping[str, int]) -> str:
        """These axes, and the largest `ep` that divides them and is no larger than wanted."""
        ep = max(n for n in _divisors(_expert_parts(sizes)) if n <= self.ep)
        return _as_written({**sizes, "ep": ep})

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


_ALWAYS = ("dp_replicate", "dp_shard")
"""Axes that the log names also where they have one rank."""
_OF_PIPELINES = ("schedule", "microbatches")
"""Settings that the log names with every pipeline."""


def _factorings(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """All tuples of so many numbers with this product."""
    if count == 1:
        yield (total,)
        return
    for first in _divisors(total):
        yield from ((first, *rest) for rest in _factorings(total // first, count - 1))


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _expert_parts(sizes: Mapping[str, int]) -> int:
    return sizes["dp_shard"] * sizes["cp"] * sizes["tp"]


def _product(sizes: Mapping[str, int]) -> str:
    factors = [f"{name} {size}" for name, size in sizes.items() if size not in (1, REST)]
    return " x ".join(factors) or "a layout of ones"


def _as_written(sizes: Mapping[str, int], others: Mapping[str, object] | None = None) -> str:
    shown = {name: size for name, size in sizes.items() if size > 1} | dict(others or {})
    return "{" + ", ".join(f"{name}: {_written(value)}" for name, value in shown.items()) + "}"


def _written(value: object) -> str:
    return str(value).lower()  # true, as YAML has it


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
