"""`resources.layout: auto`: the layouts that a configuration fits, and the one that it takes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from search_spaces.layout import Layout
from search_spaces.spec.sweep import SweepSpec
from trainables.config import TrainableConfig
from trainables.parallel.footprint import RankMemory
from trainables.registry import resolve_again
from tuning.controller.resources.worker_memory import WorkerMemory, gib, worker_memory


@dataclass(frozen=True)
class Sized:
    """A layout that works for a configuration, and the memory of the rank that needs most."""

    layout: Layout
    memory: RankMemory

    @property
    def ranks(self) -> int:
        """Workers of the trial."""
        return self.layout.num_ranks


@dataclass(frozen=True)
class Choice:
    """The layouts of a configuration.

    Attributes:
        sized: all that work, those of the most workers first, and of these the preferred one.
        memory: of a worker.
        fastest: layouts of some numbers of workers that are known to be the fastest.
    """

    sized: tuple[Sized, ...]
    memory: WorkerMemory
    fastest: Mapping[int, Layout] = field(default_factory=dict)

    @functools.cached_property
    def fitting(self) -> list[Sized]:
        """Those that fit the memory; of each number of workers the fastest first, if it is known.

        Else the preferred one is first.
        """
        fit = [one for one in self.sized if one.memory.peak <= self.memory.bytes]
        known = self.fastest
        return sorted(fit, key=lambda one: (-one.ranks, one.layout != known.get(one.ranks)))

    @property
    def taken(self) -> Sized | None:
        """The one that a trial takes where its most workers are free; None: none fits."""
        return next(iter(self.fitting), None)

    @property
    def nearest(self) -> Sized | None:
        """The one that needs least memory."""
        return min(self.sized, key=lambda one: one.memory.peak, default=None)

    @property
    def problem(self) -> str:
        """In words, that none fits."""
        counts = sorted({one.ranks for one in self.sized})
        if (least := self.nearest) is None:
            return "no layout of these workers works for this configuration"
        workers = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        return (
            f"no layout of {workers} worker{'s' * (counts[-1] > 1)} fits the {self.memory} of a "
            f"worker; nearest: {least.layout.as_written()}, which needs {gib(least.memory.peak)}"
        )


def choice_of(
    spec: SweepSpec, config: Mapping[str, Any], memory: WorkerMemory, workers: int | None = None
) -> Choice:
    """The layouts of a valid configuration of a sweep; with `workers`, those of so many."""
    return Choice(tuple(sized_layouts(spec, config, memory, workers)), memory)


def sized_layouts(
    spec: SweepSpec, config: Mapping[str, Any], memory: WorkerMemory, workers: int | None = None
) -> Iterator[Sized]:
    """The layouts of `choice_of` one by one, in the order of a `Choice`."""
    trainable, resources = resolve_again(spec.trainable), spec.resources
    checked = trainable.Config.model_validate(dict(config))
    counts = range(resources.max_workers, resources.min_workers - 1, -1)
    for count in counts if workers is None else [workers]:
        yield from layouts_of(
            checked,
            trainable.axes,
            count,
            on_gpu=memory.on_gpu,
            cuts_sequences=trainable.cuts_sequences,
        )


def largest_choice(
    spec: SweepSpec, sampled: Sequence[Mapping[str, Any]], memory: WorkerMemory
) -> tuple[Mapping[str, Any], Choice]:
    """The checked parameters whose preferred layout needs most memory, and their layouts."""

    def needed(params: Mapping[str, Any]) -> int:
        return next(sized_layouts(spec, spec.nest(params), memory)).memory.peak

    params = max(sampled, key=needed)
    return params, choice_of(spec, spec.nest(params), memory)


def taken_layout(spec: SweepSpec, params: Mapping[str, Any]) -> Layout | None:
    """With `auto`, the layout that checked parameters take where the most workers are free."""
    memory = worker_memory(spec.resources) if spec.resources.chooses_layout else None
    return None if memory is None else first_fitting(spec, spec.nest(params), memory)


def first_fitting(
    spec: SweepSpec, config: Mapping[str, Any], memory: WorkerMemory
) -> Layout | None:
    """The first layout of a valid configuration that fits; None: none does."""
    found = (o for o in sized_layouts(spec, config, memory) if o.memory.peak <= memory.bytes)
    return next((one.layout for one in found), None)


def layouts_of(
    config: TrainableConfig,
    axes: Sequence[str],
    workers: int,
    *,
    on_gpu: bool,
    cuts_sequences: bool = False,
) -> Iterator[Sized]:
    """The layouts of so many workers that work for a configuration, the preferred one first.

    Fewer ranks that share the samples come first; then copies of the model (DDP), one shared copy
    (FSDP), and several shared ones (HSDP); then `tp`, `pp` and `cp`. Of the same axes, those
    without `ep` come first, then those with fewer ranks that exchange tokens; those with
    `sequence_parallel` come last. There is none if the memory is not known.

    Args:
        config: of a trial.
        axes: that its training code follows.
        workers: ranks of the trial.
        on_gpu: whether they have GPUs.
        cuts_sequences: whether it follows `sequence_parallel`.
    """
    for layout in _in_order(workers, tuple(axes), cuts_sequences):
        if config.validate_layout(layout) or config.validate_workers([layout.data_parallel]):
            continue
        memory = config.layout_memory(layout, on_gpu=on_gpu)
        if memory is not None:
            yield Sized(layout, memory)


@functools.lru_cache(maxsize=256)
def _in_order(workers: int, axes: tuple[str, ...], cuts_sequences: bool) -> list[Layout]:
    """All layouts of so many workers, the preferred one first."""
    found = [*Layout(dp_replicate=workers).of_as_many_ranks(axes)]
    if cuts_sequences:
        found += [replace(one, sequence_parallel=True) for one in found if one.tp > 1]
    return sorted(found, key=_preference)


def _preference(layout: Layout) -> tuple[int, ...]:
    shards = 0 if layout.dp_shard == 1 else 1 if layout.dp_replicate == 1 else 2
    of_batch = (layout.model_parallel, shards, -layout.dp_shard)
    return *of_batch, layout.cp, layout.pp, layout.ep, layout.sequence_parallel
