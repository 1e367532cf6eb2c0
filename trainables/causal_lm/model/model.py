"""Creates, loads and saves the network in the form that plain `transformers` loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, GenerationConfig, LlamaConfig, MixtralConfig

from results.export.quiet import quiet_transformers
from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.lora import (
    LoRAConfig,
    has_adapter,
    load_adapter,
    merge_adapter,
    saved_lora,
)
from trainables.causal_lm.model.dropout import restore_dropout
from trainables.causal_lm.parametrization import scale_initial_values
from trainables.causal_lm.quantized import quantize_base, round_base
from trainables.data.text.dataset import Dataset
from trainables.data.tokenizer import load_pretrained, pad_token, wrap_bpe
from trainables.generation.text_ends import declare_ends
from trainables.training.checkpoint import read_lineage, weights_digest
from trainables.training.precision import compute_dtype
from trainables.training.pretrained import pretrained_model, saved_model
from trainables.training.start_model import description_of, loading

INIT_SCALE = 0.5
"""Standard deviation of initial weights, times width^-1/2: GPT-2's 0.02 at width 625. Narrow models
learn several times faster than with 0.02."""


def new_model(config: CausalLMConfig, dataset: Dataset) -> nn.Module:
    """The model at step 0, float32: pretrained, or random from `init_seed` alone."""
    model: nn.Module
    name, kind = config.model_name_or_path, config.model_class
    if name is not None and kind == CausalLMConfig.model_class:
        with quiet_transformers():  # draws numbers of the trial, as it always has
            model = pretrained_model(name)
        _check_tokens(model, dataset, name)
        return model
    with quiet_transformers(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.init_seed)
        if name is not None:
            model = pretrained_model(name, kind, **config.model_settings(dataset.meta))
            return model
        auto: Any = getattr(transformers, kind)
        model = auto.from_config(architecture(config, dataset.meta))
    scale_initial_values(model, config)
    return model


def fresh_model(config: CausalLMConfig, dataset: Dataset) -> tuple[nn.Module, str]:
    """As `new_model`, and the digest of its weights."""
    model = new_model(config, dataset)
    return model, weights_digest(model)


def load_model(
    config: CausalLMConfig,
    dataset: Dataset,
    weights: Path,
    lora: LoRAConfig | None = None,
    *,
    rounded: bool = False,
    base_of: Callable[[CausalLMConfig, Dataset], tuple[nn.Module, str]] = fresh_model,
) -> nn.Module:
    """The model of a configuration, with the weights of a folder.

    Args:
        config: of the trial that trained the weights.
        dataset: on which it trained.
        weights: holds `model.safetensors`, or an adapter, which is not merged.
        lora: hyperparameters of the adapter; None: those with which it was trained.
        rounded: as of `as_first`.
        base_of: gives the base of an adapter.

    Raises:
        UserError: the weights are of another model.
    """
    if has_adapter(weights):
        base, digest = base_of(config, dataset)
        if digest != read_lineage(weights):
            raise UserError(
                f"{config.model_name_or_path}: not the base of the adapter in {weights}"
            )
        as_first(base, config, rounded=rounded)
        load_adapter(base, lora or saved_lora(weights), weights)
        return base
    with quiet_transformers():
        described = description_of(weights)  # the folder of the start may have changed since
        if config.model_name_or_path is not None and described:
            shape = AutoConfig.from_pretrained(weights, trust_remote_code=False)
        else:  # no weight shows the number of heads
            shape = architecture(config, dataset.meta, described.get("num_attention_heads"))
        alone = not (weights / "generation_config.json").exists()
        generation = GenerationConfig.from_model_config(shape) if alone else None
        model: nn.Module = saved_model(
            weights, config.model_class, shape, generation_config=generation
        )
    return model


def as_first(model: nn.Module, config: CausalLMConfig, *, rounded: bool = False) -> nn.Module:
    """A model of `new_model` as an adapter finds it: with `lora.quantize`, of 4 bits.

    Where it is `rounded`, or there is no GPU, its weights are float32 of the same values.
    """
    if config.lora is not None and config.lora.quantize:
        if rounded or not torch.cuda.is_available():
            round_base(model)
        else:
            quantize_base(model, compute_dtype(config.dtype, torch.device("cuda")))
    return model


def load_merged(config: CausalLMConfig, dataset: Dataset, weights: Path) -> nn.Module:
    """As `load_model`, with the adapter merged into its base if there is one; also refuses a base
    whose tokenizer has other tokens than that of the weights.
    """
    saved = weights / "tokenizer.json"
    own = config.tokenizer_from is None or weights == Path(config.tokenizer_from)
    if saved.exists() and not own:
        known = Tokenizer.from_file(str(saved)).get_vocab()
        if known != open_tokenizer(config, dataset).get_vocab():
            raise UserError(
                f"{config.tokenizer_from}: its tokenizer has other tokens now than {saved}, with "
                "which the model was trained; put that file there again"
            )
    model = load_model(config, dataset, weights, rounded=True)
    return merge_adapter(model) if has_adapter(weights) else model


def save_model(
    model: nn.Module,
    config: CausalLMConfig,
    dataset: Dataset,
    folder: Path,
    weights: dict[str, torch.Tensor] | None = None,
) -> None:
    """Write one `model.safetensors`, `config.json` and the tokenizer's files to an existing folder.

    `weights` is a copy of the model's state to write; None for its current state.
    """
    hf: Any = model
    with quiet_transformers():
        _declare_ends(model, config, dataset)
        hf.save_pretrained(folder, state_dict=weights, max_shard_size="1000TB")
        restore_dropout(model, folder)
        save_tokenizer(config, dataset, folder)


def save_description(
    model: nn.Module, config: CausalLMConfig, dataset: Dataset, folder: Path
) -> None:
    """Write what `save_model` does, without the weights."""
    hf: Any = model
    described = copy(hf.config)
    described.architectures = [type(model).__name__.removeprefix("FSDP")]
    with quiet_transformers():
        _declare_ends(model, config, dataset)
        described.save_pretrained(folder)
        restore_dropout(model, folder)
        if hf.can_generate():
            hf.generation_config.save_pretrained(folder)
        save_tokenizer(config, dataset, folder)


def _declare_ends(model: nn.Module, config: CausalLMConfig, dataset: Dataset) -> None:
    """A model that learned conversations ends its answers as their template does."""
    hf: Any = model
    if hf.can_generate() and dataset.meta.get("chat_template"):
        declare_ends(model, open_tokenizer(config, dataset))


def save_tokenizer(config: CausalLMConfig, dataset: Dataset, folder: Path) -> None:
    """Write the tokenizer's files."""
    open_tokenizer(config, dataset).save_pretrained(folder)


def open_tokenizer(config: CausalLMConfig, dataset: Dataset) -> Any:
    """The `transformers` tokenizer of a trial, with the chat template of its data."""
    if config.tokenizer_from is None:
        tokenizer = wrap_bpe(dataset.tokenizer_file, config.sequence_length)
    else:
        tokenizer = load_pretrained(config.tokenizer_from)
    if template := dataset.meta.get("chat_template"):
        tokenizer.chat_template = template
    if config.model_class != CausalLMConfig.model_class:
        pad_token(tokenizer)
    return tokenizer


def architecture(
    config: CausalLMConfig, meta: Mapping[str, Any], saved_heads: int | None = None
) -> Any:
    """The configuration of the model's class in `transformers`.

    Args:
        config: of a trial.
        meta: of its data; `vocab_size` and `end` are needed for a model from scratch.
        saved_heads: attention heads of a checkpoint, unless `config` gives their number.
    """
    if config.model_name_or_path is not None:
        name, settings = config.model_name_or_path, config.model_settings(meta)
        with loading(name):
            return AutoConfig.from_pretrained(name, trust_remote_code=False, **settings)
    heads = config.num_heads or saved_heads or config.heads
    kind: Any = LlamaConfig if config.experts is None else MixtralConfig
    settings = dict(
        vocab_size=meta["vocab_size"],
        hidden_size=config.hidden_size,
        intermediate_size=config.mlp_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=config.sequence_length,
        initializer_range=INIT_SCALE * config.hidden_size**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=meta["end"],
        pad_token_id=None,
        **(config.experts.shape() if config.experts is not None else {}),
    )
    return kind(**settings | config.model_settings(meta))


def _check_tokens(model: Any, dataset: Dataset, name: str) -> None:
    """Pass if the data has no token that a model, which was not resized, does not know."""
    known = model.get_input_embeddings().num_embeddings
    if dataset.meta["vocab_size"] > known:
        most = max(int(dataset.sequences(split).max()) for split in Split)
        if most >= known:
            raise UserError(f"{name}: knows {known} tokens, and its tokenizer gives number {most}")
