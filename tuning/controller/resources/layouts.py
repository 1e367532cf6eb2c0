"""`resources.layout: auto`: the memory of a worker, and the layouts that a configuration fits."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from results.paths import Storage
from results.storage.atomic import write_atomic
from search_spaces.errors import quantity
from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from search_spaces.spec.resources import ResourcesSpec
from search_spaces.spec.sweep import SweepSpec
from trainables.config import TrainableConfig
from trainables.parallel.footprint import RankMemory
from trainables.registry import resolve_again
from trainables.runtime.gpu_share import tensors_share

_LIST_GPUS = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
_ANSWER_S = 30.0


@dataclass(frozen=True)
class WorkerMemory:
    """What a worker has for the tensors of a training step.

    Attributes:
        bytes: of them.
        on_gpu: whether it is a GPU's.
    """

    bytes: int
    on_gpu: bool

    def __str__(self) -> str:
        return gib(self.bytes)


def gib(num_bytes: int) -> str:
    """Memory in words."""
    return f"{num_bytes / 2**30:.3g} GiB" if num_bytes >= 2**28 else f"{num_bytes / 2**20:.3g} MiB"


def worker_memory(resources: ResourcesSpec) -> WorkerMemory | None:
    """As the sweep file says it; else that of the smallest GPU of this machine, or of a part of it.

    Of a GPU, CUDA and NCCL take some. None: neither is known.
    """
    share = resources.gpus_per_worker
    gpus = () if share == 0 else gpu_memories()
    on_gpu = bool(gpus) if share == "auto" else share > 0
    if resources.memory_per_worker is not None:
        return WorkerMemory(int(resources.memory_per_worker * 2**30), on_gpu)
    if not gpus:
        return None
    total = min(gpus)
    part = 1.0 if share == "auto" else min(1.0, share)
    return WorkerMemory(int(tensors_share(part, total) * total), on_gpu)


@functools.cache
def gpu_memories() -> tuple[int, ...]:
    """Bytes of each GPU of this machine, without a start of CUDA in this process."""
    if shutil.which(_LIST_GPUS[0]) is None:
        return ()
    try:
        output = subprocess.run(
            _LIST_GPUS, capture_output=True, text=True, timeout=_ANSWER_S, check=True
        ).stdout
        return tuple(int(line) * 2**20 for line in output.split())
    except (OSError, subprocess.SubprocessError, ValueError):  # no driver, or `[N/A]`
        return ()


@dataclass(frozen=True)
class LayoutEstimate:
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
        estimates: of all that work, those of the most workers first, of these the preferred one.
        memory: of a worker.
        fastest: layouts of some numbers of workers that are known to be the fastest.
    """

    estimates: tuple[LayoutEstimate, ...]
    memory: WorkerMemory
    fastest: Mapping[int, Layout] = field(default_factory=dict)

    @functools.cached_property
    def fitting(self) -> list[LayoutEstimate]:
        """Those that fit the memory; of each number of workers the fastest first, if it is known.

        Else the preferred one is first.
        """
        fit = [one for one in self.estimates if one.memory.peak <= self.memory.bytes]
        known = self.fastest
        return sorted(fit, key=lambda one: (-one.ranks, one.layout != known.get(one.ranks)))

    @property
    def taken(self) -> LayoutEstimate | None:
        """The one that a trial takes where its most workers are free; None: none fits."""
        return next(iter(self.fitting), None)

    @property
    def problem(self) -> str:
        """In words, that none fits."""
        least = min(self.estimates, key=lambda one: one.memory.peak, default=None)
        if least is None:
            return "no layout of these workers works for this configuration"
        counts = sorted({one.ranks for one in self.estimates})
        least_to = f"{counts[0]} to " if len(counts) > 1 else ""
        return (
            f"no layout of {least_to}{quantity(counts[-1], 'worker')} fits the {self.memory} of a "
            f"worker; nearest: {least.layout.as_written()}, which needs {gib(least.memory.peak)}"
        )


def choice_of(
    spec: SweepSpec, config: Mapping[str, Any], memory: WorkerMemory, workers: int | None = None
) -> Choice:
    """The layouts of a valid configuration of a sweep; with `workers`, those of so many."""
    return Choice(tuple(_estimates(spec, config, memory, workers)), memory)


def _estimates(
    spec: SweepSpec, config: Mapping[str, Any], memory: WorkerMemory, workers: int | None = None
) -> Iterator[LayoutEstimate]:
    """The layouts of `choice_of` one by one, in the order of a `Choice`."""
    trainable, resources = resolve_again(spec.trainable), spec.resources
    checked, cuts = trainable.Config.model_validate(dict(config)), trainable.cuts_sequences
    counts = range(resources.max_workers, resources.min_workers - 1, -1)
    for count in counts if workers is None else [workers]:
        yield from layouts_of(
            checked, trainable.axes, count, on_gpu=memory.on_gpu, cuts_sequences=cuts
        )


def largest_choice(
    spec: SweepSpec, sampled: Sequence[Mapping[str, Any]], memory: WorkerMemory
) -> tuple[Mapping[str, Any], Choice]:
    """The checked parameters whose preferred layout needs most memory, and their layouts."""

    def needed(params: Mapping[str, Any]) -> int:
        return next(_estimates(spec, spec.nest(params), memory)).memory.peak

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
    fit = (one for one in _estimates(spec, config, memory) if one.memory.peak <= memory.bytes)
    return next((one.layout for one in fit), None)


def layouts_of(
    config: TrainableConfig,
    axes: Sequence[str],
    workers: int,
    *,
    on_gpu: bool,
    cuts_sequences: bool = False,
) -> Iterator[LayoutEstimate]:
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
            yield LayoutEstimate(layout, memory)


@functools.lru_cache(maxsize=256)
def _in_order(workers: int, axes: tuple[str, ...], cuts_sequences: bool) -> list[Layout]:
    """All layouts of so many workers, the preferred one first."""
    layouts = [*Layout(dp_replicate=workers).of_as_many_ranks(axes)]
    if cuts_sequences:
        layouts += [replace(one, sequence_parallel=True) for one in layouts if one.tp > 1]
    return sorted(layouts, key=_preference)


def _preference(layout: Layout) -> tuple[int, ...]:
    shards = 0 if layout.dp_shard == 1 else 1 if layout.dp_replicate == 1 else 2
    of_batch = (layout.model_parallel, shards, -layout.dp_shard)
    return *of_batch, layout.cp, layout.pp, layout.ep, layout.sequence_parallel


class Fastest(BaseModel):
    """The fastest layout of a shape, and the steps per second of all that ran, as written."""

    workers: int
    layout: LayoutSpec
    steps_per_second: dict[str, float]


class Probes:
    """What `tune probe` has measured, in the storage: a file for each shape of a trial and number
    of workers."""

    def __init__(self, storage: Path) -> None:
        self._folder = Storage(storage).probes

    @property
    def exist(self) -> bool:
        """Whether anything was measured."""
        return self._folder.is_dir()

    def add_to(self, choice: Choice) -> Choice:
        """The choice with the layouts that were measured to be the fastest."""
        counts = {one.ranks for one in choice.estimates} if self.exist else ()
        files = {count: self._file(choice, count) for count in counts}
        fastest = {
            count: Fastest.model_validate_json(file.read_bytes()).layout.resolve(count)
            for count, file in files.items()
            if file.is_file()
        }
        return replace(choice, fastest=fastest)

    def record(self, choice: Choice, workers: int, rates: Mapping[Layout, float]) -> None:
        """Keep the fastest layout of so many workers, by the steps per second of those that ran."""
        fastest = Fastest(
            workers=workers,
            layout=LayoutSpec.of(max(rates, key=lambda layout: rates[layout])),
            steps_per_second={layout.as_written(): rate for layout, rate in rates.items()},
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file(choice, workers), fastest.model_dump_json(indent=1).encode())

    def _file(self, choice: Choice, workers: int) -> Path:
        """Named by what each layout of so many workers needs, which differs between shapes."""
        of_as_many = (one for one in choice.estimates if one.ranks == workers)
        needs = {one.layout.as_written(): one.memory.peak for one in of_as_many}
        digest = hashlib.sha256(json.dumps(needs, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{digest[:16]}.json"
