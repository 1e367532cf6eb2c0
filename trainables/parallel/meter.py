"""Measures a training step on one rank: the storages that live, and what collectives send.

It works alike on real tensors and on fake ones, so that a simulation can be held against a run.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import transformers.integrations.moe  # noqa: F401 - its operators
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry, register_flop_formula

from trainables.parallel.footprint import Footprint, Traffic, ring
from trainables.parallel.mesh import Mesh
from trainables.parallel.sharded_state import local_part

_RELEASE = 1e-3
"""Seconds in which threads of gloo get the interpreter, to free what they have sent."""
_OF_EXPERTS = ("alltoall_base_", "all_to_all_single")
"""Only experts send such; their group may be that of another axis too."""
_ATTENTION = "_scaled_dot_product_flash_attention"
for _end in ("", "_backward"):  # the registry has the kernels of GPUs only
    _on_gpu, _on_cpu = _ATTENTION + _end, f"{_ATTENTION}_for_cpu{_end}"
    _formula = flop_registry[getattr(torch.ops.aten, _on_gpu)]
    register_flop_formula(getattr(torch.ops.aten, _on_cpu), get_raw=True)(_formula)


@register_flop_formula([torch.ops.aten._grouped_mm, torch.ops.transformers.grouped_mm_fallback])
def _grouped(tokens: tuple[int, ...], weight: tuple[int, ...], *_: Any, **__: Any) -> int:
    """Operations, by shapes, of tokens that are sorted by expert times matrices of the experts."""
    return 2 * math.prod(tokens) * weight[-1]


@register_flop_formula(torch.ops.transformers.grouped_mm_fallback_backward)
def _grouped_backward(*shapes: Any, **_: Any) -> int:
    return 2 * _grouped(*shapes)


_FORMULAS: dict[Any, Any] = flop_registry
"""Of each operation, called with its arguments and `out_val`, its result."""
_PLAIN = {torch.Tensor, nn.Parameter, nn.Buffer, FakeTensor}
"""Tensors that are no wrappers of other ones."""


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what happens on this rank while it is active: `with meter: step()`.

    Memory is the sum of the sizes of storages. Those that C++ code allocates for itself, and what
    allocators keep, are not in it.
    """

    def __init__(self, model: nn.Module, mesh: Mesh) -> None:
        """Begin with a model's parameters and buffers.

        Args:
            model: has this rank's part of the weights.
            mesh: of this rank.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._axes = _axes(mesh)
        self._parameters = list(model.parameters())
        self._weights = _bytes(chain(self._parameters, model.buffers()))
        self._sizes: dict[int, int] = {}
        self._live = self._gradients = self._kept = 0
        self._flagged: dict[int, int] = {}
        self.restart()
        for tensor in chain(self._parameters, model.buffers()):
            self._see(tensor)

    def restart(self) -> None:
        """Forget what has been counted, not what lives."""
        self._peak = self._live
        self._activations = self._flops = self._most_gradients = 0
        self._traffic: dict[str, Traffic] = {}

    @property
    def peak(self) -> int:
        """Most bytes at a time since the last `restart`."""
        return self._peak

    def footprint(self, optimizer: torch.optim.Optimizer) -> Footprint:
        """What has been counted since the last `restart`, for a model with this optimizer."""
        return Footprint(
            self._weights,
            self._most_gradients,
            _state_bytes(optimizer),
            self._activations,
            self._peak,
            self._flops,
            self._traffic,
        )

    @contextmanager
    def of_step(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Count a step of this optimizer, whose state exists."""
        self._kept = self._weights + _state_bytes(optimizer)
        self.restart()
        handles: list[Any] = [
            parameter.register_post_accumulate_grad_hook(self._flag)  # type: ignore[no-untyped-call]
            for parameter in self._parameters
            if parameter.requires_grad
        ]
        handles.append(optimizer.register_step_pre_hook(self._read_gradients))
        try:
            with self.counting():
                yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """In this block storages and collectives are seen."""
        resize, see = torch.UntypedStorage.resize_, self._resize

        def resized(storage: torch.UntypedStorage, size: int) -> Any:
            found = resize(storage, size)
            see(storage)
            return found

        with patch.object(torch.UntypedStorage, "resize_", resized), self:
            yield

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """See the storages of an operation's results, and what it sends."""
        if not _PLAIN.issuperset(types):
            return NotImplemented  # it calls operations on its parts
        kwargs, packet = kwargs or {}, func.overloadpacket
        if packet == torch.ops._c10d_functional.wait_tensor and isinstance(args[0], FakeTensor):
            return args[0]  # as it is, where a fake operation would make another one
        found = func(*args, **kwargs)
        if packet in _FORMULAS:
            self._flops += _FORMULAS[packet](*args, **kwargs, out_val=found)
        if "c10d" in func.namespace:
            if not any(issubclass(kind, FakeTensor) for kind in types):
                time.sleep(_RELEASE)
            self._send(str(packet).rpartition(".")[2], found, args)
        for tensor in _tensors(found):
            self._see(tensor)
        return found

    def _see(self, tensor: torch.Tensor) -> None:
        storage = local_part(tensor).untyped_storage()
        if id(storage) not in self._sizes:
            self._sizes[id(storage)] = 0
            weakref.finalize(storage, self._free, id(storage))
        self._resize(storage)

    def _resize(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key not in self._sizes or (grown := storage.nbytes() - self._sizes[key]) == 0:
            return
        self._sizes[key] += grown
        self._live += grown
        self._peak = max(self._peak, self._live)
        self._activations = max(self._activations, self._live - self._kept - self._gradients)

    def _free(self, key: int) -> None:
        self._live -= self._sizes.pop(key)
        self._gradients -= self._flagged.pop(key, 0)

    def _flag(self, parameter: torch.Tensor) -> None:
        """Count a storage as a gradient's from now on."""
        if parameter.grad is None:
            return
        storage = local_part(parameter.grad).untyped_storage()
        self._see(parameter.grad)
        if id(storage) not in self._flagged:
            self._flagged[id(storage)] = self._sizes[id(storage)]
            self._gradients += self._sizes[id(storage)]

    def _read_gradients(self, *_: Any) -> None:
        self._most_gradients = _bytes(p.grad for p in self._parameters if p.grad is not None)

    def _send(self, operation: str, found: Any, args: tuple[Any, ...]) -> None:
        name = next((a for a in reversed(args) if isinstance(a, str)), None)
        if name is None:
            boxed = next((a for a in args if isinstance(a, torch.ScriptObject)), None)
            name = dist.ProcessGroup.unbox(boxed).group_name if boxed is not None else ""
        axis, ranks = self._axes.get(name, ("", 1))
        if operation in _OF_EXPERTS:
            axis = "ep"
        each = [t.numel() * t.element_size() for t in (*_tensors(args), *_tensors(found))]
        sent = ring(operation, max(each, default=0), ranks)
        if sent.messages:
            self._traffic.setdefault(axis, Traffic()).add(sent.bytes, sent.messages)


def _axes(mesh: Mesh) -> dict[str, tuple[str, int]]:
    """The axis of each process group by its name, and its number of ranks."""
    axes = [name for name, size in mesh.layout.sizes.items() if size > 1]
    if not axes or not dist.is_initialized():
        return {}
    world = dist.group.WORLD
    found = [] if world is None else [("all" if len(axes) > 1 else axes[0], world)]
    named: dict[str, tuple[str, int]] = {}
    for name, group in (*found, *mesh.groups):  # axes with the same ranks may have one group
        named.setdefault(group.group_name, (name, group.size()))
    return named


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from _tensors(value)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Sum of the sizes of the tensors' parts on this rank; tied ones count once."""
    parts = {id(tensor): local_part(tensor) for tensor in tensors}
    return sum(part.numel() * part.element_size() for part in parts.values())


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    return _bytes(t for state in optimizer.state.values() for t in _tensors(list(state.values())))


@contextmanager
def counted_flops(model: nn.Module) -> Iterator[FlopCounterMode]:
    """Count the operations of a model of `transformers` in a block: `get_total_flops()`.

    Experts are one operation there. The one by one loop over them reads which have tokens, which
    tensors without content do not say. Layers of packed weights multiply by the matrix that these
    stand for, because the counter does not know their own operations.
    """
    hf: Any = model
    before = hf.get_experts_implementation()
    owned = ((m, p) for m in model.modules() for p in m.parameters(recurse=False))
    packed: list[Any] = [module for module, p in owned if num_weights(p) != p.numel()]
    for layer in packed:
        layer.forward = partial(_multiply, layer)
    with suppress(ValueError):  # it has no experts
        hf.set_experts_implementation("grouped_mm")
    try:
        with FlopCounterMode(display=False) as counter:
            yield counter
    finally:
        for layer in packed:
            del layer.forward
        with suppress(ValueError):
            hf.set_experts_implementation(before)


def num_weights(parameter: nn.Parameter) -> int:
    """Its weights, of which `bitsandbytes` may have packed two into a number."""
    return math.prod((getattr(parameter, "quant_state", None) or parameter).shape)


def _multiply(layer: Any, inputs: torch.Tensor) -> torch.Tensor:
    return F.linear(inputs, inputs.new_empty(layer.weight.quant_state.shape), layer.bias)
