"""The next token of many texts, in tensors of fixed shape and place: on a GPU a CUDA graph."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from trainables.parallel.context import attention_name

SLOTS = 64
"""On a GPU, keys and values of so many tokens are read, then of twice as many, and so on."""
MOST_STEPS = 6
"""Of a model, which are kept on a GPU."""
LARGEST_SHARE = 1 / 32
"""Of a GPU's memory, which the keys and values of a step may take."""
_KEPT: WeakKeyDictionary[nn.Module, dict[Any, DecodeStep]] = WeakKeyDictionary()


def step_of(model: nn.Module, before: Any, texts: int, slots: int) -> DecodeStep | None:
    """A step for texts that a model has begun to read; None: they must be read in another way.

    Args:
        model: in evaluation mode, with an attention that takes masks.
        before: its cache of their prompts.
        texts: their number, as many of each prompt.
        slots: tokens of a text, at most.
    """
    if not isinstance(before, Cache) or not all(_keeps_all(x, slots) for x in before.layers):
        return None
    weights = [*model.parameters(), *model.buffers()]
    shared = any(isinstance(module, FSDPModule) for module in model.modules())
    if shared or any(isinstance(weight, DTensor) for weight in weights):
        return None
    if weights[0].device.type != "cuda":
        return DecodeStep(before, texts, slots)
    slots = -(-slots // SLOTS) * SLOTS
    held = sum(one.nbytes // one.shape[0] // one.shape[2] for one in _tensors(before))
    memory = torch.cuda.get_device_properties(weights[0].device).total_memory
    if held * texts * slots > memory * LARGEST_SHARE:
        return None
    places = [weight.data_ptr() for weight in weights]
    steps = _KEPT.setdefault(model, {})
    key = (*places, texts, slots, _dtype(weights[0]), attention_name(model))
    if key not in steps:
        while len(steps) == MOST_STEPS:
            del steps[next(iter(steps))]
        steps[key] = DecodeStep(before, texts, slots)
    return steps[key]


def _keeps_all(layer: Any, slots: int) -> bool:
    """Whether a layer's keys and values are those of all tokens."""
    if isinstance(layer, DynamicSlidingWindowLayer):
        return bool(layer.sliding_window > slots)
    return type(layer) is DynamicLayer


def _tensors(cache: Any) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype of products with it."""
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype


class DecodeStep:
    """Computes the scores of the next token of some texts, and later of others of the same shape.

    On a GPU its kernels are recorded once as a CUDA graph. That reads the weights where they are,
    and so sees updates in place.
    """

    def __init__(self, before: Any, texts: int, slots: int) -> None:
        device = _tensors(before)[0].device
        self._ids, self._positions = torch.zeros(2, texts, 1, dtype=torch.int64, device=device)
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._mask = torch.zeros(texts, 1, 1, slots, dtype=torch.bool, device=device)
        layers: Any = [_Slots(layer, texts, slots, self._place) for layer in before.layers]
        self._cache: Any = Cache(layers=layers)
        self._length, self._is_masked = 0, True
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}

    def begin(self, before: Any, mask: torch.Tensor) -> None:
        """Take over prompts by the model's cache, of which `mask`, [prompts, tokens], is theirs."""
        samples, width = len(self._ids) // len(mask), mask.shape[1]
        each = mask.repeat_interleave(samples, dim=0)
        self._mask.zero_()[:, 0, 0, :width] = each
        self._positions.copy_(each.sum(dim=1, keepdim=True))
        self._place.fill_(width)
        self._length = width
        for mine, prompts in zip(_tensors(self._cache), _tensors(before), strict=True):
            torch.unflatten(mine[:, :, :width], 0, (-1, samples)).copy_(prompts[:, None])
            if mine.device.type == "cuda":
                mine[:, :, width:] = 0  # what is masked must be finite
        if mask.device.type != "cuda":  # attention without a mask rounds otherwise
            self._is_masked = not bool(mask.all())

    def select(self, rows: torch.Tensor) -> tuple[Cache, torch.Tensor]:
        """The cache and the mask, [texts, tokens], of some of its texts, int64 [texts]."""
        layers: Any = []
        for mine in self._cache.layers:
            layers.append(DynamicLayer())  # type: ignore[no-untyped-call]
            layers[-1].lazy_initialization(mine.keys, mine.values)
            layers[-1].keys, layers[-1].values = (
                tensor[:, :, : self._length][rows] for tensor in (mine.keys, mine.values)
            )
        return Cache(layers=layers), self._mask[rows, 0, 0, : self._length]

    def scores(self, model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
        """Logits after one more token of each text, float32 [texts, vocabulary].

        The next call overwrites them. `model` is that of the texts, and `ids`, int64 [texts, 1].
        """
        self._ids.copy_(ids)
        self._length += 1
        if ids.device.type != "cuda":
            return self._compute(model, self._length)
        seen = SLOTS
        while seen < self._length:
            seen *= 2
        seen = min(seen, self._mask.shape[-1])
        if seen not in self._graphs:
            kind, dtype = ids.device.type, torch.get_autocast_dtype(ids.device.type)
            # what autocast keeps of converted weights would be gone when the graph reads it
            with torch.autocast(kind, dtype, torch.is_autocast_enabled(kind), cache_enabled=False):
                self._graphs[seen] = self._record(model, seen)
        graph, scores = self._graphs[seen]
        graph.replay()
        return scores

    def _compute(self, model: Any, seen: int) -> torch.Tensor:
        """What a graph holds: no number of the host, no new shape, no random number."""
        self._mask.index_fill_(3, self._place, True)
        for layer in self._cache.layers:
            layer.seen = seen
        found = model(
            input_ids=self._ids,
            attention_mask=self._mask[..., :seen] if self._is_masked else None,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._place += 1
        self._positions += 1
        scores: torch.Tensor = found.logits[:, -1].float()
        return scores

    def _record(self, model: nn.Module, seen: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """A graph of `_compute`, after a first run, which is undone but for what comes again."""
        now, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(now)
        with torch.cuda.stream(aside), _NoWaits():  # type: ignore[no-untyped-call]
            self._compute(model, seen)
        now.wait_stream(aside)
        self._place -= 1
        self._positions -= 1
        graph = torch.cuda.CUDAGraph()
        pool = next((other.pool() for other, _ in self._graphs.values()), None)
        # other threads go on meanwhile, such as those that write checkpoints
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            scores = self._compute(model, seen)
        return graph, scores


class _Slots(DynamicLayer):  # type: ignore[no-untyped-call]
    """A layer's keys and values, [texts, heads, slots, size], of which the first `seen` are read.

    `place`, int64 [1], is the slot of the next token. Autocast would convert all of them for each
    token, if they were not of its dtype.
    """

    def __init__(self, prompts: Any, texts: int, slots: int, place: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = (
            like.new_empty((texts, like.shape[1], slots, like.shape[3]), dtype=_dtype(like))
            for like in (prompts.keys, prompts.values)
        )
        self.is_initialized, self.seen, self._place = True, slots, place

    def get_seq_length(self) -> int:
        """Tokens before the next one, as far as they are read."""
        return self.seen - 1

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> Any:
        """Write those of the next token of each text; returns those that are read."""
        both: Any = (self.keys, key_states), (self.values, value_states)
        for mine, new in both:
            mine.index_copy_(2, self._place, new.to(mine.dtype))
        return tuple(mine[:, :, : self.seen] for mine, _ in both)


class _NoWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what waits for the device, before a graph is recorded: that would not end well."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}:
            raise RuntimeError(f"{func} waits for the device")
        return func(*args, **(kwargs or {}))
