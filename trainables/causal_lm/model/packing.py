"""Documents that share a sequence: a model computes each of them as if it were alone.

A mask hides other documents from attention, not from a convolution or from a recurrent state, and
one mask does not serve layers that attend to windows. No configuration says all of that, so the
first packed batch of a model is preceded by a comparison: the cheapest form is taken whose outputs
are those of separate documents up to rounding.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from search_spaces.errors import UserError
from trainables.parallel.context import model_arguments
from trainables.parallel.fsdp import device_of, free_gathered
from trainables.parallel.mesh import Mesh

log = logging.getLogger(__name__)

SHORTEST = 8
"""Documents up to this length are padded to the longest of them; then to the next power of two."""
ROUNDING = 1e-5
"""Relative difference of float32 outputs that is due to rounding."""
ROUNDINGS = 4
"""Differences of outputs that may be as many times that of one computation in another shape."""
WHOLE = 64
"""Tokens of a sequence that a model gets before ranks have parts of it."""
COMPARED = 1024
"""Tokens of the vocabulary whose scores are compared."""


class Packing(StrEnum):
    """How a model gets the documents of a sequence, the cheapest first."""

    MASK = "mask"
    """With our mask: all of its layers attend to all tokens before."""
    POSITIONS = "positions"
    """With positions, from which `transformers` makes the masks of each kind of layer."""
    ROWS = "rows"
    """Each in a row of its own, padded at its end."""


def document_positions(tokens: torch.Tensor, end: int) -> torch.Tensor:
    """Position of each input in its document, int64 [batch, length].

    A document begins with the token `end` of the one before, so that every target counts.

    Args:
        tokens: int64 [batch, length + 1].
        end: the token that ends a document.
    """
    inputs = tokens[:, :-1]
    places = torch.arange(inputs.shape[1], device=tokens.device)
    begins = torch.where(inputs == end, places, 0).cummax(dim=1).values
    return places - begins


def packing_of(model: nn.Module, length: int) -> Packing:
    """How a model gets documents in sequences of so many tokens; all ranks call this together.

    Raises:
        UserError: its outputs depend on the tokens that follow.
    """
    known, most = getattr(model, "document_packing", (Packing.MASK, 0))
    if length > most:
        every = getattr(model, "compared", {})  # copies of a kept model are compared once
        if length not in every:
            every[length] = _compared(model, length)
        known = every[length]
        set_packing(model, known, length)
    return known


def set_packing(model: nn.Module, packing: Packing, length: float = math.inf) -> None:
    """Let a model get documents in this form, in sequences up to a length."""
    hf: Any = model
    hf.document_packing = (packing, length)


def takes_rows(model: nn.Module) -> bool:
    """Whether a model is known to get each document in a row of its own."""
    return getattr(model, "document_packing", (Packing.MASK, 0))[0] is Packing.ROWS


def packing_by_masks(model: nn.Module) -> Packing:
    """The form for models of `PIPELINED`, all of whose layers are attention."""
    windows = getattr(model.config, "sliding_window", None)
    return Packing.MASK if windows is None else Packing.POSITIONS


def check_documents(model: nn.Module, mesh: Mesh) -> None:
    """Before ranks have parts of sequences: only masks separate documents there.

    Raises:
        UserError: some layers of the model do not attend to all tokens before.
    """
    layout, hf = mesh.layout, cast(Any, model)
    if layout.cp > 1 and packing_of(model, WHOLE) is not Packing.MASK:
        kind = hf.config.model_type
        raise UserError(f"layout cp: some layers of {kind} are not attention; use dp_shard")
    if layout.cp > 1 or layout.cuts_sequences:
        set_packing(model, packing_by_masks(model))


def compute_documents(
    model: nn.Module,
    compute: Callable[..., torch.Tensor],
    inputs: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    """What a function gives of each document alone, [batch * length, width].

    Args:
        model: that the function calls.
        compute: gives [rows, tokens, width] by arguments of a `transformers` model.
        inputs: int64 [batch, length].
        positions: of each token in its document, of the same shape.
    """
    packing = packing_of(model, inputs.shape[1])
    if packing is Packing.ROWS:
        return _by_rows(model, compute, inputs, positions)
    return compute(**_arguments(model, packing, inputs, positions)).flatten(0, 1)


def _arguments(
    model: nn.Module, packing: Packing, inputs: torch.Tensor, positions: torch.Tensor
) -> dict[str, torch.Tensor]:
    if packing is Packing.POSITIONS:
        return {"input_ids": inputs, "position_ids": positions}
    return model_arguments(model, inputs, positions)


def _by_rows(
    model: nn.Module,
    compute: Callable[..., torch.Tensor],
    inputs: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    flat, parts, order = inputs.flatten(), [], []
    for places in _rows(positions, every=isinstance(model, FSDPModule)):
        real = places >= 0
        parts.append(compute(input_ids=flat[places.clamp(min=0)] * real)[real])
        order.append(places[real])
    return torch.cat(parts)[torch.cat(order).argsort()]


def _rows(positions: torch.Tensor, *, every: bool) -> Iterator[torch.Tensor]:
    """Places of documents' tokens in a flattened batch, int64 [documents, most], -1 in padding.

    Documents of like lengths are together, so that padding at most doubles what is computed.

    Args:
        positions: int64 [batch, length].
        every: whether there is a row for lengths that no document has: ranks that share weights
            compute equally often.
    """
    begins = (positions.flatten() == 0).nonzero()[:, 0]
    sizes = begins.diff(append=begins.new_tensor([positions.numel()]))
    powers = math.ceil(math.log2(max(positions.shape[1], SHORTEST) / SHORTEST))
    bounds = [0, *(SHORTEST << power for power in range(powers + 1))]
    for shorter, longest in pairwise(bounds):
        mine = (sizes > shorter) & (sizes <= longest)
        if mine.any():
            steps = torch.arange(int(sizes[mine].max()), device=positions.device)
            yield (begins[mine, None] + steps).where(steps < sizes[mine, None], -1)
        elif every:
            yield begins.new_full((1, 1), -1)


@torch.no_grad()
def _compared(model: nn.Module, length: int) -> Packing:
    """The first form that gives the outputs of separate documents up to rounding."""
    hf: Any = model
    training, device = model.training, device_of(model)
    positions = _probe_positions(length, device)
    vocabulary = hf.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, positions.shape, generator=generator).to(device)
    model.eval()
    try:
        with torch.autocast(device.type, enabled=False):
            return _first_equal(model, ids, positions)
    finally:
        model.train(training)
        free_gathered(model)  # an optimizer that is made now gets the parts of this rank


def _first_equal(model: nn.Module, ids: torch.Tensor, positions: torch.Tensor) -> Packing:
    kind, compute = cast(Any, model).config.model_type, partial(_outputs, model)
    apart = _by_rows(model, compute, ids, positions)
    length = ids.shape[1]
    half = compute(input_ids=ids[1:, : -(-length // 2)])[0]
    rounding = float(_differences(half, apart[length : length + len(half)]).median())
    if rounding > math.sqrt(torch.finfo(half.dtype).eps):
        raise UserError(
            f"model type {kind}: its outputs depend on the tokens that follow, so it is no causal"
            " language model"
        )
    number = (positions.flatten() == 0).cumsum(0) - 1
    for packing in (Packing.MASK, Packing.POSITIONS):
        try:
            packed = compute(**_arguments(model, packing, ids, positions)).flatten(0, 1)
        except Exception as e:  # noqa: BLE001 - each model has its own for what it does not take
            log.debug("%s takes no %s of documents: %s", kind, packing, e)
            continue
        each = _differences(packed, apart)
        found = torch.zeros(int(number[-1]) + 1, device=each.device).index_add(0, number, each)
        worst = float((found / number.bincount()).max())
        if worst <= max(ROUNDING, ROUNDINGS * rounding):
            return packing
        log.debug("%s with %s of documents: outputs differ by %.1e", kind, packing, worst)
    log.info("packing: %s computes each document in a row of its own, padded", kind)
    return Packing.ROWS


def _outputs(model: nn.Module, **arguments: torch.Tensor) -> torch.Tensor:
    """Scores of a part of the vocabulary, [rows, tokens, COMPARED]."""
    found: torch.Tensor = model(use_cache=False, **arguments).logits[..., :COMPARED]
    return found.clone()


def _differences(some: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Differences of outputs, [tokens, width], as parts of their usual size, float32 [tokens]."""
    each, usual = torch.linalg.vector_norm(torch.stack([some - others, others]).float(), dim=-1)
    found: torch.Tensor = each / usual.median()
    return found


def _probe_positions(length: int, device: torch.device) -> torch.Tensor:
    """Positions of a sequence of documents and of one with a single document, [2, length]."""
    sizes: list[int] = []
    for size in (1, 2, 4, 6, 14, 26):  # the last document begins at no multiple of a chunk's size
        if 2 * (sum(sizes) + size) <= length:
            sizes.append(size)
    sizes.append(length - sum(sizes))
    rows = [torch.cat([torch.arange(size) for size in sizes]), torch.arange(length)]
    return torch.stack(rows).to(device)
