"""Low-rank adapters (LoRA, Hu et al. 2021) of a pretrained model, by `peft`.

A checkpoint holds the adapter alone, in the form that `peft` loads; its `lineage.json` names the
base by its digest. Adapters are merged into the base for averages and exports.
"""

from __future__ import annotations

import importlib.util
import json
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from results.trial_paths import ADAPTER, ADAPTER_CONFIG
from search_spaces.errors import UserError, suggest

if TYPE_CHECKING:
    import torch
    from torch import nn

EXTRA = "tune-platform[lora]"
_PREFIX = "base_model.model."
_NAME = "default"
_NAME_PARTS = re.compile(rf"(\.modules_to_save)?\.{_NAME}\.")
_AS_IN_PEFT = ("use_rslora", "use_dora", "modules_to_save")
"""Hyperparameters with the name that they have there."""
_DORA = ".lora_magnitude_vector"
"""A parameter that has no name of its own in `peft`'s files."""


class LoRAConfig(BaseModel):
    """Hyperparameters of an adapter: `scale * B A` is added to each matrix of `targets`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(8, gt=0, description="rows of A and columns of B")
    alpha: float = Field(16.0, gt=0, description="the scale is alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability to drop an input of A")
    targets: list[str] | None = Field(
        None,
        min_length=1,
        description="ends of the names of the adapted layers, for example [q_proj, v_proj]; null:"
        " all linear layers except the output",
    )
    use_rslora: bool = Field(
        False, description="the scale is alpha / sqrt(rank), for high ranks (2312.03732)"
    )
    use_dora: bool = Field(
        False,
        description="train the length of each row of an adapted matrix apart from its direction"
        " (DoRA, 2402.09353); slower",
    )
    modules_to_save: list[str] | None = Field(
        None,
        min_length=1,
        description="ends of the names of modules whose own weights are trained and saved, too, for"
        " example [lm_head]",
    )


def lora_problem() -> str | None:
    """Why adapters cannot be trained in this environment, if so."""
    if importlib.util.find_spec("peft") is None:
        return f"needs peft; install with: pip install '{EXTRA}'"
    return None


def add_adapter(model: nn.Module, lora: LoRAConfig, seed: int) -> None:
    """Add an adapter that changes nothing yet, and freeze the rest of the model.

    Args:
        model: of `transformers`; changed in place.
        lora: hyperparameters.
        seed: of A's initial weights. B's are zero.

    Raises:
        UserError: no layer has a name of `lora.targets`.
    """
    import torch
    from peft import LoraModel
    from peft.utils import set_additional_trainable_modules

    _check_targets(model, lora.targets or [])
    _check_saved(model, lora.modules_to_save or [])
    described = _peft_config(lora)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated attributes that peft looks at
        torch.default_generator.manual_seed(seed)
        inject: Any = LoraModel
        inject(model, described, _NAME)
        set_additional_trainable_modules(model, described, {}, _NAME)


def has_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter instead of a whole model."""
    return (folder / ADAPTER).is_file()


def copy_adapter(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights of a model's adapter, copied to the CPU, by their names in `peft`'s files.

    All ranks call it if they have a part of the model each.
    """
    from torch.distributed.tensor import DTensor

    from trainables.checkpointing.host_buffers import copy_to_host

    weights = _weights(model)
    whole = [t.full_tensor() if isinstance(t, DTensor) else t for t in weights.values()]
    return dict(zip(weights, copy_to_host(whole), strict=True))


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        _PREFIX + _NAME_PARTS.sub(".", name).replace(".lora_magnitude_vector.weight", _DORA): tensor
        for name, tensor in model.state_dict().items()
        if f".{_NAME}." in name
    }


def write_adapter(
    folder: Path, lora: LoRAConfig, base: str, weights: Mapping[str, torch.Tensor]
) -> None:
    """Write an adapter into a checkpoint, as `peft.AutoPeftModelForCausalLM` loads it.

    Args:
        folder: of the checkpoint.
        lora: hyperparameters.
        base: name or folder of the base.
        weights: of `copy_adapter`.
    """
    from trainables.checkpointing.tensor_file import write_tensors

    described = _peft_config(lora).to_dict() | {"base_model_name_or_path": base}
    parts = [name.removeprefix(_PREFIX).partition(".lora_") for name in weights]
    described["target_modules"] = sorted({layer for layer, found, _ in parts if found})
    text = json.dumps(described, indent=1, sort_keys=True)
    (folder / ADAPTER_CONFIG).write_text(text)
    write_tensors(folder / ADAPTER, weights, {"format": "pt"})


def saved_lora(folder: Path) -> LoRAConfig:
    """The hyperparameters with which the adapter of a folder was trained."""
    found = json.loads((folder / ADAPTER_CONFIG).read_text())
    return LoRAConfig(
        rank=found["r"],
        alpha=found["lora_alpha"],
        dropout=found["lora_dropout"],
        targets=found["target_modules"],
        **{name: found.get(name, LoRAConfig.model_fields[name].default) for name in _AS_IN_PEFT},
    )


def scale_by_tensors(model: nn.Module) -> None:
    """Scale adapters by tensors: numbers would be constants of compiled code."""
    import torch

    for module in model.modules():
        if isinstance(scaling := getattr(module, "scaling", None), dict):
            device = next(module.parameters()).device
            scaling.update({n: torch.tensor(float(s), device=device) for n, s in scaling.items()})


def load_adapter(model: nn.Module, lora: LoRAConfig, folder: Path) -> None:
    """Add the adapter of a folder to its base, in place; `lora` may have another alpha or dropout.

    Raises:
        UserError: the adapter has another rank, or is of another model.
    """
    from safetensors.torch import load_file

    add_adapter(model, lora, seed=0)
    found, mine = load_file(folder / ADAPTER), _weights(model)
    if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in mine.items()}:
        raise UserError(f"{folder}: its adapter is of another model, rank or targets")
    for name, tensor in mine.items():
        tensor.copy_(found[name])


def merge_adapter(model: nn.Module) -> nn.Module:
    """Add a model's adapter, if it has one, to its weights; in place. Returns the plain model."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    layer: Any
    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            model.set_submodule(name, layer.get_base_layer())
        elif isinstance(layer, ModulesToSaveWrapper):
            model.set_submodule(name, layer.modules_to_save[_NAME])
    return model


def _check_targets(model: nn.Module, targets: list[str]) -> None:
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    hf: Any = model
    output = hf.get_output_embeddings()
    linear = [(n, m) for n, m in model.named_modules() if isinstance(m, (nn.Linear, Conv1D))]
    layers = [name for name, module in linear if module is not output]  # may share its matrix
    for target in targets:
        if not any(f".{name}".endswith(f".{target}") for name in layers):
            known = sorted({name.rpartition(".")[2] for name in layers})
            raise UserError(
                f"lora.targets: no layer '{target}' that can be adapted{suggest(target, known)}"
            )


def _check_saved(model: nn.Module, names: list[str]) -> None:
    modules = dict(model.named_modules())
    owners = [(id(p), name) for name, m in modules.items() for p in m.parameters(recurse=False)]
    for wanted in names:
        found = [m for name, m in modules.items() if f".{name}".endswith(f".{wanted}")]
        if not found:
            known = suggest(wanted, {name.rpartition(".")[2] for name in modules})
            raise UserError(f"lora.modules_to_save: no module '{wanted}'{known}")
        for parameter in found[0].parameters():
            if len(shared := [name for owner, name in owners if owner == id(parameter)]) > 1:
                raise UserError(
                    f"lora.modules_to_save: '{wanted}' has a matrix that {' and '.join(shared)}"
                    " share; it cannot be trained for one of them"
                )


def _peft_config(lora: LoRAConfig) -> Any:
    from peft import LoraConfig

    made: Any = LoraConfig
    return made(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets or "all-linear",
        task_type="CAUSAL_LM",
        **lora.model_dump(include={*_AS_IN_PEFT}),
    )
