"""Nested training state on disk without pickle: tensors as safetensors, everything else as JSON.

A checkpoint outlives the code that wrote it, and loading one must never run code.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from trainables.checkpointing.host_buffers import copy_to_host
from trainables.checkpointing.tensor_file import write_tensors

_TAG = "$"  # in every encoded dict; plain dicts become lists of pairs, which keeps int keys


@dataclass(frozen=True)
class Tree:
    """A copy of a nested structure that shares no memory with it, ready to be written."""

    encoded: Any
    tensors: dict[str, torch.Tensor]

    def write(self, folder: Path, stem: str) -> None:
        """Write `<stem>.json` and `<stem>.safetensors` in an existing folder."""
        (folder / f"{stem}.json").write_text(json.dumps(self.encoded, allow_nan=False))
        write_tensors(folder / f"{stem}.safetensors", self.tensors)


def copy_tree(tree: Any) -> Tree:
    """Copy a nested structure to the CPU.

    Args:
        tree: dense tensors of any dtype, None, bool, int, float, str, lists, tuples, and dicts
            with int or str keys, nested to any depth.

    Raises:
        TypeError: the tree holds anything else.
    """
    tensors: dict[str, torch.Tensor] = {}
    encoded = _encode(tree, tensors)
    return Tree(encoded, dict(zip(tensors, copy_to_host(list(tensors.values())), strict=True)))


def save_tree(folder: Path, stem: str, tree: Any) -> None:
    """Write a nested structure as `<stem>.json` and `<stem>.safetensors`; see `copy_tree`."""
    copy_tree(tree).write(folder, stem)


def copy_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """A model's state, copied to the CPU; tensors that share memory share it in the copy too."""
    state: dict[str, torch.Tensor] = model.state_dict()
    keys = {name: (tensor.data_ptr(), tensor.shape) for name, tensor in state.items()}
    once = {keys[name]: tensor for name, tensor in state.items()}
    copies = dict(zip(once, copy_to_host(list(once.values())), strict=True))
    return {name: copies[key] for name, key in keys.items()}


def load_tree(folder: Path, stem: str) -> Any:
    """Read a structure that `save_tree` wrote: same types and values, tensors on the CPU."""
    encoded = json.loads((folder / f"{stem}.json").read_text())
    return _decode(encoded, load_file(folder / f"{stem}.safetensors"))


def _encode(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, tensors)
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {_TAG: "float", "value": repr(value)}
    if type(value) is list:
        return [_encode(v, tensors) for v in value]
    if type(value) is tuple:
        return {_TAG: "tuple", "items": [_encode(v, tensors) for v in value]}
    if isinstance(value, dict):
        return {_TAG: "dict", "items": [[_key(k), _encode(v, tensors)] for k, v in value.items()]}
    raise TypeError(f"training state cannot hold a {type(value).__name__}: {value!r}")


def _key(key: object) -> int | str:
    if type(key) is int or type(key) is str:
        return key
    raise TypeError(f"training state cannot hold a dict key of {type(key).__name__}: {key!r}")


def _encode_tensor(value: torch.Tensor, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    name = f"t{len(tensors)}"
    plain = value.detach()
    if value.is_complex():  # safetensors has no complex128
        plain = torch.view_as_real(plain.resolve_conj())
    tensors[name] = plain
    return {_TAG: "tensor", "name": name, "complex": value.is_complex()}


def _decode(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    match value[_TAG]:
        case "float":
            return float(value["value"])
        case "tuple":
            return tuple(_decode(v, tensors) for v in value["items"])
        case "dict":
            return {k: _decode(v, tensors) for k, v in value["items"]}
        case "tensor":
            found = tensors[value["name"]]
            return torch.view_as_complex(found) if value["complex"] else found
    raise ValueError(f"unknown tag {value[_TAG]!r} in training state")
