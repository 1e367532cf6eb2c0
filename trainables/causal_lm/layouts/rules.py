"""Which layouts a language model fits; no torch, so that `tune plan` can check them quickly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from results.checkpoints.tensor_layout import read_layout, weights_file
from search_spaces.layout import Layout
from trainables.causal_lm.experts import ExpertsConfig
from trainables.parallel.pipeline_rules import pipeline_problem
from trainables.training.start_model import description_of

PIPELINED = ("llama", "mistral", "mixtral", "qwen2", "qwen3")
"""Types of models of `transformers` whose layers, and nothing else, are between the embedding and
the last norm."""
CUT_BETWEEN_LAYERS = ("llama", "mistral", "qwen2", "qwen3")
"""Types of models that follow `sequence_parallel`."""
_CUT = ("num_heads", "num_attention_heads", "num_key_value_heads", "intermediate_size")
"""Sizes that the ranks of `tp` share."""


def layout_problem(
    layout: Layout,
    whole_only: Mapping[str, str],
    sizes: Mapping[str, int],
    batch: int,
    length: int,
) -> tuple[str, str] | None:
    """What prevents a layout, if anything: the name of a field, or "" for sizes, and the rule.

    Args:
        layout: of a trial.
        whole_only: fields that need a whole model on each rank, and their values.
        sizes: numbers of layers, heads and units.
        batch: samples per step, of all ranks together.
        length: tokens of a sequence.
    """
    if not layout.shares_model:
        return None
    axis, ranks = next((n, s) for n, s in reversed(layout.sizes.items()) if s > 1)
    for field, value in whole_only.items():
        return field, f"{value} does not work with layout {axis} {ranks}".strip()
    for name, size in sizes.items():
        if name in _CUT and size % layout.tp:
            return "", f"tp {layout.tp} does not divide {name}, {size}"
    if length % layout.cp:
        return "", f"cp {layout.cp} does not divide sequence_length, {length}"
    if layout.cuts_sequences and length % (layout.cp * layout.tp):
        return "", f"cp x tp, {layout.cp * layout.tp}, does not divide sequence_length, {length}"
    if batch % layout.data_parallel:
        return "", f"{layout.data_parallel} data-parallel ranks do not divide batch_size, {batch}"
    samples = batch // layout.data_parallel
    problem = pipeline_problem(layout, samples, "num_layers", sizes.get("num_layers"))
    return None if problem is None else ("", problem)


def sequence_problem(
    layout: Layout, experts: ExpertsConfig | None, model: str | None
) -> tuple[str, str] | None:
    """What prevents `sequence_parallel`, as of `layout_problem`.

    Args:
        layout: of a trial.
        experts: of a block; None: the model has none.
        model: a folder, or of a hub; None: a Llama from scratch.
    """
    if not layout.cuts_sequences:
        return None
    if layout.pp > 1:
        return "", "sequence_parallel does not work with pp"
    if experts is not None:
        return "experts", "does not work with layout sequence_parallel"
    kind = description_of(model).get("model_type") if model else None
    if kind is None or kind in CUT_BETWEEN_LAYERS:
        return None
    return "model_name_or_path", f"{kind} does not work with layout sequence_parallel"


def window_problem(layout: Layout, model: str | None) -> tuple[str, str] | None:
    """What prevents `cp` for a model in a folder, as of `sequence_problem`."""
    known = description_of(model) if model and layout.cp > 1 else {}
    kinds = set(known.get("layer_types") or ["full_attention"])
    window = known.get("sliding_window") if known.get("use_sliding_window", True) else None
    if kinds == {"full_attention"} and window is None:
        return None
    return "model_name_or_path", f"layers that attend to a window do not work with cp {layout.cp}"


def expert_problem(
    layout: Layout, experts: ExpertsConfig | None, width: int, mlp: int, model: str | None = None
) -> tuple[str, str] | None:
    """What prevents the experts of a layout, as of `layout_problem`.

    Args:
        layout: of a trial.
        experts: of a block; None: the model has none, or is in a folder.
        width: of the residual stream.
        mlp: units of one expert.
        model: as of `sequence_problem`.
    """
    if experts is None:
        known = description_of(model) if model else {}
        if layout.ep > 1 or known.get("model_type") != "mixtral":
            return ("", f"ep {layout.ep} has no effect without experts") if layout.ep > 1 else None
        width, mlp = known["hidden_size"], known["intermediate_size"]
    elif experts.count % layout.ep:
        return "", f"ep {layout.ep} does not divide experts.count, {experts.count}"
    ranks = layout.expert_parts // layout.ep
    for name, size in (("hidden_size", width), ("2 x intermediate_size", 2 * mlp)):
        if size % ranks and layout.ep * layout.tp > 1:
            return "", f"{ranks} ranks with parts of each expert do not divide {name}, {size}"
    return None


def saved_sizes(model: str) -> dict[str, int]:
    """Numbers of layers, heads and units of a model in a folder, by its `config.json`."""
    known = description_of(model)
    found = {name: known[name] for name in _CUT if isinstance(known.get(name), int)}
    layers = known.get("num_hidden_layers")
    return {**found, "num_layers": layers} if isinstance(layers, int) else found


def saved_parameters(model: str) -> int | None:
    """Number of weights of a model in a folder, by the headers of its files; None of a hub's."""
    file = weights_file(Path(model).expanduser())
    if not file.is_file():
        return None
    return sum(math.prod(tensor.shape) for tensor in read_layout(file).tensors.values())


def unknown_type(model: str | None) -> str | None:
    """The type of a model in a folder, if its layers cannot be given to several ranks."""
    kind = description_of(model).get("model_type") if model else None
    return None if kind is None or kind in PIPELINED else str(kind)
